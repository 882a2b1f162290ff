#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "egt/core/clock.hpp"
#include "egt/core/load_control.hpp"
#include "egt/core/progress_board.hpp"
#include "egt/core/record_queue.hpp"
#include "egt/device/sensor.hpp"
#include "session/health/guard.hpp"
#include "session/health/pulse.hpp"

namespace egt {

/// What a telemetry needs to guard the load by its samples.
struct Guarding {
  GuardOptions options;
  MonitoredDevice device;
  LoadControl& load;  ///< these three outlive `Telemetry::stop`
  RecordQueue& records;
  const ProgressBoard& board;             ///< its line "main" says amid what a counter moved
  std::optional<double> planned_seconds;  ///< of the run; none: not known
  const Pulse* pulse = nullptr;           ///< of the load; null: it is steady
  std::function<double()> seconds = {};   ///< a clock that never falls; empty: the steady one
  std::optional<Result<SensorCounters>> counters_before = {};  ///< when the sensor was opened; none: not read
  std::string fixed_mix = {};  ///< why no MixControl holds the power at its limit; empty: one does
};

/// Samples a rank's sensor and its node's load on a thread of its own, keeps what a report needs, lets a
/// Guard set the load by it and a ErrorCounterMonitor judge its counters: their faults and findings become
/// records. All calls may come from any thread.
class Telemetry {
 public:
  /// Reads limits and counters, then starts to sample. `sensor` may be null (only the node is watched) and is
  /// used by no one else from now on; it is shared since a thread that hangs in its driver keeps it. With
  /// `guarding` it samples at least once a second.
  Telemetry(std::shared_ptr<Sensor> sensor, double sample_seconds, Clock::time_point process_started,
            std::optional<Guarding> guarding = {});
  ~Telemetry();
  /// unavailable: there is no thread for it, and nothing is sampled.
  Status started() const;
  Telemetry(const Telemetry&) = delete;
  Telemetry& operator=(const Telemetry&) = delete;

  /// A last look at the counters and the last judgements of both, then no more. A sensor that does not answer
  /// within `patience_seconds` is left behind with its thread: a warning, and the figures are those of its
  /// last answer.
  void stop(double patience_seconds = stop_seconds);
  static constexpr double stop_seconds = 10;  ///< a loaded host may answer late

  /// Does the sensor keep its thread for too long? To be asked about once a second, by a thread that does not
  /// wait for the sensor.
  void ask_overdue();

  /// {gpu_utilization_percent, power_w, temperature_c, memory_temperature_c, sm_clock_mhz, memory_used_bytes,
  /// cpu_percent, host_memory_percent: {min, avg, max, last} or null, throttle_seconds: {reason: seconds} or
  /// null, power_w_mean, power_w_between, power_limit_w, energy_j, time_to_full_load_s, time_to_full_power_s,
  /// sensor_failures, duty, memory_share, products_duty: {min, avg, max, last}, guard: Guard::summary, mix:
  /// MixControl::summary, pulse_power_w: {high, low}}; the last six are null where nothing is guarded. Means
  /// of power are by the energy counter, all in all and, {min, avg, max, last}, from sample to sample. Energy
  /// is since the start of this object; the times from the process's start to the first sample with 90 % of
  /// utilization, and with 90 % of the power limit since the sample before it, by the energy counter; sensor
  /// failures are samples in which the device did not answer.
  Json summary() const;
  /// ErrorCounterMonitor::counters; what is newest in it is at most about 5 s old, or of `stop`.
  Json counters() const;
  /// The newest sample; empty where the device does not answer (any more).
  SensorReading latest() const;
  /// The same of the node.
  HostLoad latest_host() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace egt
