#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "egt/core/load_control.hpp"
#include "egt/core/record.hpp"
#include "egt/device/sensor.hpp"

/// Keeps the power at its limit with as few memory-resident GEMMs as possible. Pure functions of their input,
/// without clock, thread or sensor. One thread at a time.
namespace egt {

/// Mean power of the last second or so, and the newest reading.
struct PowerMean {
  double seconds = 0;
  std::optional<double> read_w;     ///< from the power readings
  std::optional<double> counted_w;  ///< from the energy counter
  SensorReading newest;

  /// At least one of the two members is set. The energy counter has precedence.
  double watts() const { return counted_w ? *counted_w : *read_w; }
  bool is_capped() const;
  /// Returns whether heat or the hardware throttles the clocks.
  bool is_slowed() const;
  /// Returns whether the device is idle; false if its utilization is unknown.
  bool is_idle() const;
};

/// Averages samples; a gap starts a new mean.
class PowerMeter {
 public:
  std::optional<PowerMean> add(double now, const std::optional<SensorReading>& reading);

 private:
  std::optional<double> began_, energy_began_j_;
  double last_ = 0, sum_w_ = 0;
  int readings_ = 0;
};

/// Detects an implausible power sensor.
class PowerSensorCheck {
 public:
  explicit PowerSensorCheck(double limit_w) : limit_w_(limit_w) {}
  /// Returns the problem as text; empty: none. `is_full`: neither the load nor the clocks are limited.
  std::string look(const PowerMean& power, LoadLead lead, bool is_full);

 private:
  bool stays(const PowerMean& power, LoadLead lead);

  const double limit_w_;
  double high_seconds_ = 0, low_seconds_ = 0;
  double compared_seconds_ = 0, read_j_ = 0, counted_j_ = 0;
  std::optional<double> last_w_;  ///< this and the next three members detect a constant reading
  double still_seconds_ = 0;
  LoadLead lead_ = LoadLead::extreme;
  std::optional<double> switched_;  ///< still_seconds_ at the first change of the lead
};

/// Minimizes the time share of memory-resident GEMMs that keeps the power at its limit while transcendental
/// chains lead. It starts with the full share and lowers it step by step. If the power falls too low it
/// returns to the previous share, and waits longer before each new attempt. It does not change while the
/// limiter or heat reduces the load, or while the power is unknown.
class MixControl {
 public:
  /// Min share. With less, GEMMs would run below a quarter of their standalone rate over a round of epochs.
  static constexpr double usual_least_duty = 0.6;
  /// `fixed`: why the share is not controlled. If empty, it is controlled once a limit and the power are
  /// known. `min_duty`: min share.
  MixControl(const std::optional<double>& limit_w, std::string fixed, double min_duty = usual_least_duty);
  /// Call it about once per second or more often. Returns a warning, or an empty string.
  std::string look(double now, const std::optional<SensorReading>& reading, LoadLead lead, double guard_duty);
  /// The share for LoadControl.
  double products_duty() const { return duty_; }
  /// Returns {control: "power", or why it is fixed; power_sensor: its problem, or null; unreached_seconds:
  /// time below the limit with all parts at full load and clocks not throttled}.
  Json summary() const;

 private:
  void move(double now, const PowerMean& power, LoadLead lead);
  void raise(double now, double seconds);

  const double limit_w_, min_duty_;
  std::string fixed_, sensor_wrong_;
  PowerMeter meter_;
  PowerSensorCheck check_;
  bool power_known_ = false;
  LoadLead lead_ = LoadLead::extreme;
  double duty_ = 1, step_;
  double unsettled_at_ = 0;  ///< time of the last load change by other causes
  double at_limit_seconds_ = 0, unreached_seconds_ = 0;
  double smooth_ratio_ = 1;                    ///< smoothed power / limit, while settled
  int looks_below_ = 0, looks_far_below_ = 0;  ///< consecutive low samples
  bool was_lowered_ = false;                   ///< the share was lowered since the last raise
  double lowered_seconds_ = 0;  ///< since the last step down, settled and while transcendental chains lead
  double raised_at_ = 0, wait_seconds_, lower_from_ = 0;
};

}  // namespace egt
