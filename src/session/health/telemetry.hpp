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

/// Input for limiting the load by the samples.
struct Guarding {
  GuardOptions options;
  MonitoredDevice device;
  LoadControl& load;  ///< load, records and board outlive `Telemetry::stop`
  RecordQueue& records;
  const ProgressBoard& board;             ///< its line "main" shows the phase in which a counter moved
  std::optional<double> planned_seconds;  ///< planned run time; unset: unknown
  const Pulse* pulse = nullptr;           ///< of the load; null: steady load
  std::function<double()> seconds = {};   ///< a monotonic clock; empty: the steady clock
  std::optional<Result<SensorCounters>> counters_before = {};  ///< from the opening of the sensor, if read
  std::string fixed_mix = {};  ///< why MixControl does not control the power; empty: it does
};

/// Samples a rank's sensor and its node's load on its own thread, and keeps statistics for reports. A Guard
/// sets the load and an ErrorCounterMonitor judges the counters; their faults and findings become records.
/// Any thread.
class Telemetry {
 public:
  /// Reads limits and counters, then starts sampling. A null `sensor` samples the node only. No other object
  /// uses the sensor from now on. It is shared, since a thread that hangs in its driver keeps it. With
  /// `guarding` it samples once per second or more often.
  Telemetry(std::shared_ptr<Sensor> sensor, double sample_seconds, Clock::time_point process_started,
            std::optional<Guarding> guarding = {});
  ~Telemetry();
  /// unavailable if the thread cannot be created; nothing is sampled then.
  Status started() const;
  Telemetry(const Telemetry&) = delete;
  Telemetry& operator=(const Telemetry&) = delete;

  /// Reads the counters once more, emits the last faults and findings, and stops. A sensor that does not
  /// answer within `patience_seconds` is abandoned with its thread. Then a warning is emitted, and the values
  /// are from the last answer.
  void stop(double patience_seconds = stop_seconds);
  static constexpr double stop_seconds = 10;  ///< the driver of a loaded node may respond late

  /// Checks whether the sensor blocks its thread for too long. Call it about once per second, from a thread
  /// that does not wait for the sensor.
  void ask_overdue();

  /// Returns {a key per row of `sampled_metrics`: {min, avg, max, last} or null, throttle_seconds: {reason:
  /// seconds} or null, power_w_mean, power_w_between, power_limit_w, energy_j, time_to_full_load_s,
  /// time_to_full_power_s, sensor_failures, duty, memory_share, products_duty: {min, avg, max, last}, guard:
  /// Guard::summary, mix: MixControl::summary, pulse_power_w: {high, low}}. The last six are null without a
  /// limiter. power_w_mean (overall) and power_w_between ({min, avg, max, last} between samples) are from the
  /// energy counter. energy_j counts from the start of this object. time_to_full_load_s is from the process
  /// start to the first sample with 90 % utilization. time_to_full_power_s is to the first sample with a mean
  /// power of 90 % of the limit since the previous sample, by the energy counter. sensor_failures counts
  /// samples without an answer.
  Json summary() const;
  /// ErrorCounterMonitor::counters, up to about 5 s old, or from `stop`.
  Json counters() const;
  /// The newest sample; empty if the device does not answer (any more).
  SensorReading latest() const;
  /// The newest load of the node.
  HostLoad latest_host() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace egt
