#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "egt/core/record.hpp"
#include "egt/device/sensor.hpp"
#include "session/health/monitored_device.hpp"
#include "session/options.hpp"

namespace egt {

// The three controllers of the limiter. Each is a pure function of its input, without clock, thread or
// sensor. One thread at a time.

/// Thermal margins of a device.
struct Heat {
  double excess_c = 0;  ///< degrees above the limit; negative: below it
  double headroom_c = std::numeric_limits<double>::infinity();  ///< distance to the slowdown
};

/// PI controller that keeps a device slightly below its temperature limit by its duty cycle. It engages at
/// the limit, and disengages once the device stays cool at full load. Source: Astrom and Haegglund, "Advanced
/// PID Control", 2006 (anti-windup by back-calculation, first-order plant with a gain of 40 to 100 degrees
/// and a time constant of 3 to 200 s).
class HeatControl {
 public:
  /// Called about once per second, with the `seconds` since the previous sample. Without a temperature it is
  /// not called, and the load stays unchanged.
  void look(const Heat& heat, double seconds);
  double duty() const { return duty_; }
  /// Returns whether the controller is engaged.
  bool holds() const { return holds_; }

 private:
  /// Upper bound near the slowdown temperature, independent of the controller.
  double highest_duty(const Heat& heat);
  void take_over(const Heat& heat);
  void control(double seconds, double highest);
  void let_go_if_calm(double seconds);

  bool holds_ = false;
  double duty_ = 1;
  double integral_ = 1;
  double excess_c_ = 0;                               ///< rises at once, falls slowly
  double calm_seconds_ = 0;                           ///< time cool at full load
  std::array<std::optional<double>, 2> headrooms_c_;  ///< of the two previous samples, newest first
};

/// Reduces the load if the power stays above the device's limit. It is a fallback for drivers that do not
/// enforce the limit.
class PowerControl {
 public:
  static constexpr double tolerance = 0.05;     ///< share of the limit, for sensor errors
  static constexpr double window_seconds = 10;  ///< max time above the limit

  /// Returns whether every sample of a whole window was above the limit.
  bool look(double power_w, double limit_w, double seconds);
  double duty() const { return duty_; }

 private:
  void raise(double power_w, double limit_w);

  double duty_ = 1;
  double above_seconds_ = 0;
  double below_seconds_ = 0;
};

/// Shrinks the share of memory for the fill step by step while too much is in use. Each step has time to show
/// an effect. Released memory is not filled again.
class PressureControl {
 public:
  enum class Move {
    none,
    lowered,  ///< the share was reduced
    gave_up,  ///< it does not help, since other processes use the memory
  };

  explicit PressureControl(double limit) : limit_(limit) {}
  /// `used`: share of the memory in use.
  Move look(double used, double seconds);
  double share() const { return share_; }

 private:
  const double limit_;
  double share_ = 1;
  double settled_seconds_ = 0;  ///< time above the limit since the last step
  std::optional<double> used_at_step_;
  int futile_steps_ = 0;
  bool gave_up_ = false;
};

/// Input of the limiter, about once per second.
struct GuardSample {
  double seconds = 0;                   ///< since the load started; monotonic
  std::optional<SensorReading> device;  ///< std::nullopt: no sensor, or no answer
  HostLoad host;
};

/// The load allowed from now on, and events to report now.
struct GuardDecision {
  double duty = 1;          ///< for LoadControl
  double memory_share = 1;  ///< for LoadControl
  std::vector<std::string> notices;
  std::vector<std::string> warnings;
  std::vector<Finding> findings;
};

/// Limits the load to protect the node. It is a pure function of its input, for one thread at a time. Each
/// kind of finding is reported once per run.
/// - Heat: at the limit it warns, reduces the load until the temperature is slightly below, then raises it
///   slowly. The limit is GuardOptions::temperature_limit_c, but always some degrees below the device's
///   slowdown and shutdown temperatures. The memory's limit is 10 degrees higher. Reduced load for longer
///   than throttle_limit of the run is a finding "temperature".
/// - Power: above its enforced limit for 10 s, it is a finding "power", and the load is reduced.
/// - Clocks: throttled by heat, hardware or a power brake for longer than throttle_limit of the run, they are
///   a finding "throttle". Throttling by the power cap is intended in a burn-in, so it is no finding.
/// - Memory: if device or host memory exceeds memory_limit, it warns and shrinks the fill step by step.
class Guard {
 public:
  /// `planned_seconds`: planned run time. If it is unknown, shares of the run are judged at the end.
  Guard(const GuardOptions& options, const SensorLimits& limits, MonitoredDevice device,
        std::optional<double> planned_seconds = {});

  GuardDecision look(const GuardSample& sample);
  /// Judges the shares of the run at its end.
  std::vector<Finding> finish();
  /// Temperature at which the load is reduced, in degrees Celsius.
  double temperature_limit() const { return temperature_limit_c_; }
  /// Returns {temperature_limit_c, heat_seconds, least_heat_duty, power_seconds, throttle_seconds: {reason:
  /// seconds}, memory_steps}. Heat and power seconds count the time with reduced load.
  Json summary() const;

 private:
  /// One reason for throttled clocks.
  struct Throttle {
    const char* name = "";     ///< from NVML's clocks event reasons, as in the telemetry
    const char* meaning = "";  ///< text for reports
    const char* advice = "";
    std::uint64_t bit = 0;
    std::uint64_t unless = 0;                                 ///< bits of more specific reasons
    std::optional<double> ThrottleTimes::*counter = nullptr;  ///< null: no counter
    std::optional<double> counter_before = {};
    double counted_seconds = 0;
    double sampled_seconds = 0;
    bool reported = false;
    /// The driver's counter is exact; samples are not. Some drivers never increment it.
    double seconds() const { return counted_seconds > 0 ? counted_seconds : sampled_seconds; }
  };
  /// The temperature closest to its limit.
  struct Hottest {
    const char* what = "";
    double temperature_c = 0;
    double limit_c = 0;
    Heat heat;
  };
  static std::array<Throttle, 4> throttles();

  std::optional<Hottest> hottest(const SensorReading& reading) const;
  void watch_heat(const SensorReading& reading, double now, double seconds, GuardDecision& decision);
  void report_heat(const Hottest& hot, bool held_before, double now, GuardDecision& decision);
  void report_blindness(double now, GuardDecision& decision);
  void watch_power(const SensorReading& reading, double seconds, GuardDecision& decision);
  void watch_clocks(const SensorReading& reading, double seconds);
  void watch_memory(const GuardSample& sample, double seconds, GuardDecision& decision);
  std::vector<Finding> judge_shares(double run_seconds);
  double allowed_seconds(double run_seconds) const;

  const GuardOptions options_;
  const SensorLimits limits_;
  const MonitoredDevice device_;
  const std::optional<double> planned_seconds_;
  const double temperature_limit_c_;
  const double memory_temperature_limit_c_;
  const std::optional<double> slowdown_c_;

  std::optional<double> first_seconds_, last_seconds_;
  HeatControl heat_;
  PowerControl power_;
  PressureControl pressure_;
  std::array<Throttle, 4> throttles_ = throttles();

  double heat_seconds_ = 0, power_seconds_ = 0;  ///< with reduced load
  double min_heat_duty_ = 1;
  std::optional<Hottest> hottest_;  ///< the hottest one so far
  double heat_known_at_ = 0;        ///< times in seconds of the run, as the next two members
  double taken_over_at_ = 0;
  std::optional<double> heat_told_at_;
  bool heat_was_told_ = false;  ///< the current reduction was reported
  bool heat_found_ = false, power_found_ = false, blindness_told_ = false;
  int memory_steps_ = 0;
};

}  // namespace egt
