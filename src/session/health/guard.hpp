#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "egt/core/record.hpp"
#include "egt/device/sensor.hpp"
#include "session/health/guard_control.hpp"
#include "session/health/monitored_device.hpp"
#include "session/options.hpp"

namespace egt {

/// What the guard is shown, about once a second.
struct GuardSample {
  double seconds = 0;                   ///< since the load began; never falls
  std::optional<SensorReading> device;  ///< none: there is no sensor, or it does not answer
  HostLoad host;
};

/// What is to be done: the load that is allowed from now on, and what is to be reported now.
struct GuardDecision {
  double duty = 1;          ///< LoadControl's
  double memory_share = 1;  ///< LoadControl's
  std::vector<std::string> notices;
  std::vector<std::string> warnings;
  std::vector<Finding> findings;
};

/// Keeps the load from harming the node, as a pure function of what it is shown:
/// - heat: at the limit a warning, then less duty until the temperature is a little below it, and slowly more
///   again. The limit is GuardOptions::temperature_limit_c, but always some degrees below the device's
///   slowdown and shutdown temperatures; the memory's limit is 10 degrees above. Lowered for longer than
///   throttle_limit of the run: a finding "temperature".
/// - power above its enforced limit for 10 s: a finding "power", and less duty.
/// - clocks held down by heat, hardware or a power brake for longer than throttle_limit of the run: a finding
///   "throttle". Held down by the power cap: the aim of a burn-in.
/// - memory of the device or the host above memory_limit: a warning, and a smaller fill, step by step.
/// Each kind of finding once a run. For one thread at a time.
class Guard {
 public:
  /// `planned_seconds`: of the run; none: not known, and what is judged by its share of the run is judged at
  /// the end.
  Guard(const GuardOptions& options, const SensorLimits& limits, MonitoredDevice device,
        std::optional<double> planned_seconds = {});

  GuardDecision look(const GuardSample& sample);
  /// The run is over: judges what is a share of it.
  std::vector<Finding> finish();
  /// The temperature at which it lowers the duty, degrees Celsius.
  double temperature_limit() const { return temperature_limit_c_; }
  /// {temperature_limit_c, heat_seconds, least_heat_duty, power_seconds, throttle_seconds: {reason: seconds},
  /// memory_steps}: what it did. Heat and power seconds: with a lowered duty.
  Json summary() const;

 private:
  /// One of the reasons for which clocks are held down.
  struct Throttle {
    const char* name = "";     ///< of NVML's clocks event reasons, as in the telemetry
    const char* meaning = "";  ///< for people
    const char* advice = "";
    std::uint64_t bit = 0;
    std::uint64_t unless = 0;                                 ///< bits of more exact reasons
    std::optional<double> ThrottleTimes::*counter = nullptr;  ///< null: there is none
    std::optional<double> counter_before = {};
    double counted_seconds = 0;
    double sampled_seconds = 0;
    bool told = false;
    /// A counter misses nothing, but some never move.
    double seconds() const { return counted_seconds > 0 ? counted_seconds : sampled_seconds; }
  };
  /// What is nearest to its limit.
  struct Hottest {
    const char* what = "";
    double temperature_c = 0;
    double limit_c = 0;
    Heat heat;
  };
  static std::array<Throttle, 4> throttles();

  std::optional<Hottest> hottest(const SensorReading& reading) const;
  void watch_heat(const SensorReading& reading, double now, double seconds, GuardDecision& decision);
  void tell_heat(const Hottest& hot, bool held_before, double now, GuardDecision& decision);
  void tell_blindness(double now, GuardDecision& decision);
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

  double heat_seconds_ = 0, power_seconds_ = 0;  ///< with lowered duty
  double least_heat_duty_ = 1;
  std::optional<Hottest> hottest_;  ///< so far
  double heat_known_at_ = 0;        ///< these three: seconds of the run
  double taken_over_at_ = 0;
  std::optional<double> heat_told_at_;
  bool heat_was_told_ = false;  ///< this time that it is lowered
  bool heat_found_ = false, power_found_ = false, blindness_told_ = false;
  int memory_steps_ = 0;
};

}  // namespace egt
