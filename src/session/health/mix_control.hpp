#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "egt/core/load_control.hpp"
#include "egt/core/record.hpp"
#include "egt/device/sensor.hpp"

/// What holds the power at its limit with the least products. Pure functions of what they were shown so far:
/// no clock, no thread, no sensor. For one thread at a time.
namespace egt {

/// What a device drew on average in the last second or so, and its newest reading.
struct PowerMean {
  double seconds = 0;
  std::optional<double> read_w;     ///< by its power readings
  std::optional<double> counted_w;  ///< by its energy counter
  SensorReading newest;

  /// One of the two is known.
  double watts() const { return counted_w ? *counted_w : *read_w; }
  bool is_capped() const;
  /// Are its clocks held down by heat or the hardware?
  bool is_slowed() const;
  /// Does it do nothing? Where no utilization is known: no.
  bool is_idle() const;
};

/// Makes means of samples; a gap begins a new one.
class PowerMeter {
 public:
  std::optional<PowerMean> add(double now, const std::optional<SensorReading>& reading);

 private:
  std::optional<double> began_, energy_began_j_;
  double last_ = 0, sum_w_ = 0;
  int readings_ = 0;
};

/// Says of a power sensor that it cannot be right.
class PowerSensorCheck {
 public:
  explicit PowerSensorCheck(double limit_w) : limit_w_(limit_w) {}
  /// What is wrong, in words; empty: nothing. `is_full`: nobody holds the load or the clocks down.
  std::string look(const PowerMean& power, LoadLead lead, bool is_full);

 private:
  bool stays(const PowerMean& power, LoadLead lead);

  const double limit_w_;
  double high_seconds_ = 0, low_seconds_ = 0;
  double compared_seconds_ = 0, read_j_ = 0, counted_j_ = 0;
  std::optional<double> last_w_;  ///< these four: of a reading that stays as it is
  double still_seconds_ = 0;
  LoadLead lead_ = LoadLead::extreme;
  std::optional<double> switched_;  ///< when the lead first changed, of still_seconds_
};

/// Finds the least share of the time for products, where extreme terms lead, that holds the power at its
/// limit: begins with all of it, lowers it step by step, and returns where that was too little, with longer
/// and longer waits before it tries again. Stays as it is while the guard or heat hold the device down, and
/// where nothing is known.
class MixControl {
 public:
  /// Of the share: with less, products would not have a quarter of their own rate over a round of epochs.
  static constexpr double usual_least_duty = 0.6;
  /// `fixed`: why the share is not controlled; empty: it is, where a limit and the power are known.
  /// `least_duty`: it is not lowered below this.
  MixControl(const std::optional<double>& limit_w, std::string fixed, double least_duty = usual_least_duty);
  /// About once a second, or more often. A warning; empty: none.
  std::string look(double now, const std::optional<SensorReading>& reading, LoadLead lead, double guard_duty);
  /// LoadControl's.
  double products_duty() const { return duty_; }
  /// {control: "power", or why it is fixed; power_sensor: what is wrong with it, or null; unreached_seconds:
  /// below the limit with all parts at full duty and nothing that holds the clocks down}.
  Json summary() const;

 private:
  void move(double now, const PowerMean& power, LoadLead lead);
  void raise(double now, double seconds);

  const double limit_w_, least_duty_;
  std::string fixed_, sensor_wrong_;
  PowerMeter meter_;
  PowerSensorCheck check_;
  bool power_known_ = false;
  LoadLead lead_ = LoadLead::extreme;
  double duty_ = 1, step_;
  double unsettled_at_ = 0;  ///< since the load changed for other reasons
  double at_limit_seconds_ = 0, unreached_seconds_ = 0;
  double smooth_ratio_ = 1;                    ///< of power and limit, settled
  int looks_below_ = 0, looks_far_below_ = 0;  ///< in a row
  bool was_lowered_ = false;                   ///< since the last raise
  double lowered_seconds_ = 0;                 ///< since then, settled where extreme terms lead
  double raised_at_ = 0, wait_seconds_, lower_from_ = 0;
};

}  // namespace egt
