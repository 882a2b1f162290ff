#pragma once

#include <memory>

#include "egt/core/clock.hpp"
#include "egt/core/record.hpp"
#include "egt/device/sensor.hpp"

namespace egt {

/// Samples a rank's sensor and its node's load on a thread of its own, and keeps what a report needs. All
/// calls may come from any thread.
class Telemetry {
 public:
  /// Reads limits and counters, then starts to sample. `sensor` may be null (only the node is watched) and is
  /// used by no one else from now on; it is shared since a thread that hangs in its driver keeps it.
  Telemetry(std::shared_ptr<Sensor> sensor, double sample_seconds, Clock::time_point process_started);
  ~Telemetry();
  Telemetry(const Telemetry&) = delete;
  Telemetry& operator=(const Telemetry&) = delete;

  /// A last look at the counters, then no more. A sensor that does not answer within `patience_seconds` is
  /// left behind with its thread, and the figures are those of its last answer.
  void stop(double patience_seconds = stop_seconds);
  static constexpr double stop_seconds = 3;

  /// {gpu_utilization_percent, power_w, temperature_c, memory_temperature_c, sm_clock_mhz, memory_used_bytes,
  /// cpu_percent, host_memory_percent: {min, avg, max, last} or null, throttle_seconds: {reason: seconds} or
  /// null, power_limit_w, energy_j, time_to_full_load_s, sensor_failures}. Energy is since the start of this
  /// object; the time to full load from the process's start to the first sample with 90 % of utilization;
  /// sensor failures are samples in which the device did not answer.
  Json summary() const;
  /// {name: {before, after}}, null what was not answered; `after` is at most about 5 s old, or of `stop`.
  Json counters() const;
  /// The newest sample; empty where the device does not answer (any more).
  SensorReading latest() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace egt
