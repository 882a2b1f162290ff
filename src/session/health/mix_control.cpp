#include "session/health/mix_control.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

namespace egt {
namespace {

/// NVML's clocks event reasons: power cap; slowdowns by driver heat, hardware heat, power brake, hardware.
constexpr std::uint64_t power_cap = 0x4, slowdowns = 0x20 | 0x40 | 0x80 | 0x8;
constexpr double idle_percent = 10, busy_percent = 90;
constexpr double shortest_mean_s = 0.9, longest_pause_s = 5;

constexpr double impossible = 1.5, impossible_seconds = 10;  ///< min implausible share of the limit
constexpr double idle_like = 0.2;                            ///< implausibly low share under load
constexpr double difference = 0.2;                           ///< of two powers, as a share of the larger one
constexpr double doubt_seconds = 30;
constexpr double answer_seconds = 10;  ///< time in which any sensor shows a change of the load
constexpr double near = 0.9;  ///< share of the limit; above it, a capped device may have a constant reading

/// Shares of the power limit below which the power counts as below or far below the limit. For a capped
/// device, `capped_aim` is compared with the smoothed power: the cap may limit only the peaks, so single
/// samples may be lower.
constexpr double aim = 0.985, capped_aim = 0.98, far_below = 0.95;
constexpr double min_smoothed = 0.92;    ///< lower bound of a sample, so that a single one has little effect
constexpr double smoothed_seconds = 10;  ///< time constant of the smoothing
constexpr double unsettled_seconds = 2;
constexpr double lower_seconds = 10;  ///< time at the limit before a step down
constexpr double first_step = 0.1, min_step = 0.025;
constexpr double raise_seconds = 5;      ///< between steps up, since slow sensors lag
constexpr double fast_raise_rate = 0.5;  ///< per second
constexpr int looks_to_raise = 2;        ///< a single sample may be a transient
constexpr double first_wait_s = 60, longest_wait_s = 1800;
constexpr double unheld_duty = 0.995;

std::optional<double> plausible(const std::optional<double>& value) {
  return value && std::isfinite(*value) && *value >= 0 ? value : std::nullopt;
}

}  // namespace

bool PowerMean::is_capped() const {
  return (newest.event_reasons.value_or(0) & power_cap) != 0;
}

bool PowerMean::is_slowed() const {
  return (newest.event_reasons.value_or(0) & slowdowns) != 0;
}

bool PowerMean::is_idle() const {
  return newest.gpu_utilization_percent.value_or(100) < idle_percent;
}

std::optional<PowerMean> PowerMeter::add(double now, const std::optional<SensorReading>& reading) {
  const auto power = reading ? plausible(reading->power_w) : std::nullopt,
             energy = reading ? plausible(reading->energy_j) : std::nullopt;
  const bool is_gap = !began_ || (!power && !energy) || std::exchange(last_, now) + longest_pause_s < now;
  std::optional<PowerMean> mean;
  if (!is_gap) {
    sum_w_ += power.value_or(0);
    readings_ += power ? 1 : 0;
    if (now - *began_ < shortest_mean_s) return std::nullopt;
    mean = {.seconds = now - *began_, .read_w = {}, .counted_w = {}, .newest = *reading};
    if (readings_ > 0) mean->read_w = sum_w_ / readings_;
    if (energy && energy_began_j_ && *energy >= *energy_began_j_)
      mean->counted_w = (*energy - *energy_began_j_) / mean->seconds;
    if (!mean->read_w && !mean->counted_w) mean.reset();
  }
  began_ = power || energy ? std::optional(now) : std::nullopt;
  last_ = now;
  energy_began_j_ = energy;
  sum_w_ = readings_ = 0;
  return mean;
}

std::string PowerSensorCheck::look(const PowerMean& power, LoadLead lead, bool is_full) {
  const double watts = power.watts(), busy = power.newest.gpu_utilization_percent.value_or(0);
  high_seconds_ = watts > impossible * limit_w_ ? high_seconds_ + power.seconds : 0;
  if (high_seconds_ >= impossible_seconds)
    return fmt::format("{:.0f} W for {:.0f} s, at a limit of {:.0f} W", watts, high_seconds_, limit_w_);
  const bool counts = is_full && !power.is_idle(), is_compared = counts && power.read_w && power.counted_w;
  const bool is_low = counts && watts < idle_like * limit_w_ && busy >= busy_percent &&
                      power.newest.event_reasons && !power.is_capped();
  low_seconds_ = is_low ? low_seconds_ + power.seconds : 0;
  if (low_seconds_ >= doubt_seconds)
    return fmt::format(
        "{:.0f} W for {:.0f} s at {:.0f} % of utilization, of {:.0f} W, and no throttle "
        "reason",
        watts, low_seconds_, busy, limit_w_);
  if (!is_compared || compared_seconds_ >= doubt_seconds) compared_seconds_ = read_j_ = counted_j_ = 0;
  if (is_compared) {
    compared_seconds_ += power.seconds;
    read_j_ += *power.read_w * power.seconds;
    counted_j_ += *power.counted_w * power.seconds;
  }
  if (compared_seconds_ >= doubt_seconds &&
      std::abs(read_j_ - counted_j_) > difference * std::max(read_j_, counted_j_))
    return fmt::format("its readings come to {:.0f} W, its energy counter to {:.0f} W, over {:.0f} s",
                       read_j_ / compared_seconds_, counted_j_ / compared_seconds_, compared_seconds_);
  if (counts && stays(power, lead))
    return fmt::format("it stays at {:.2f} W for {:.0f} s while the load is switched", *last_w_,
                       still_seconds_);
  if (!counts) last_w_.reset();
  return {};
}

/// Returns whether the sensor is stuck. Under load it fluctuates, unless the device is capped at its limit.
bool PowerSensorCheck::stays(const PowerMean& power, LoadLead lead) {
  const auto w = power.newest.power_w;
  const bool may_be_capped = power.is_capped() || !power.newest.event_reasons,
             is_held = may_be_capped && power.watts() >= near * limit_w_;
  const bool switched = lead != std::exchange(lead_, lead);
  if (std::exchange(last_w_, w) != w || !w || is_held) {
    still_seconds_ = 0;
    switched_.reset();
    return false;
  }
  still_seconds_ += power.seconds;
  if (switched && !switched_) switched_ = still_seconds_;
  return switched_ && still_seconds_ >= doubt_seconds && still_seconds_ - *switched_ >= answer_seconds;
}

MixControl::MixControl(const std::optional<double>& limit_w, std::string fixed, double min_duty)
    : limit_w_(limit_w.value_or(0)),
      min_duty_(min_duty),
      fixed_(std::move(fixed)),
      check_(limit_w_),
      step_(first_step),
      wait_seconds_(first_wait_s) {
  if (fixed_.empty() && limit_w_ <= 0) fixed_ = "no power limit";
}

std::string MixControl::look(double now, const std::optional<SensorReading>& reading, LoadLead lead,
                             double guard_duty) {
  if (!fixed_.empty()) return {};
  const auto power = meter_.add(now, reading);
  const bool is_full = guard_duty >= unheld_duty && !(power && power->is_slowed());
  if (lead != std::exchange(lead_, lead) || !is_full) unsettled_at_ = now;
  if (!power) return {};
  power_known_ = true;
  sensor_wrong_ = check_.look(*power, lead, is_full);
  if (!sensor_wrong_.empty()) {
    fixed_ = "the power sensor is wrong";
    duty_ = 1;
    return fmt::format("the power sensor cannot be right: {}; power is not controlled by it", sensor_wrong_);
  }
  if (power->is_idle()) unsettled_at_ = now;
  if (now - unsettled_at_ > unsettled_seconds) {
    move(now, *power, lead);
  } else {
    looks_below_ = looks_far_below_ = 0;
    smooth_ratio_ = 1;
  }
  return {};
}

void MixControl::move(double now, const PowerMean& power, LoadLead lead) {
  const double ratio = power.watts() / limit_w_;
  smooth_ratio_ +=
      (std::max(ratio, min_smoothed) - smooth_ratio_) * std::min(power.seconds / smoothed_seconds, 1.0);
  const bool is_below = power.is_capped() ? smooth_ratio_ < capped_aim : ratio < aim;
  looks_below_ = is_below ? looks_below_ + 1 : 0;
  looks_far_below_ = is_below && ratio < far_below ? looks_far_below_ + 1 : 0;
  if (is_below && !power.is_capped() && duty_ >= 1) unreached_seconds_ += power.seconds;
  if (lead == LoadLead::products) return;  // while GEMMs lead, their share has no effect
  at_limit_seconds_ = is_below ? 0 : at_limit_seconds_ + power.seconds;
  lowered_seconds_ += power.seconds;
  if (at_limit_seconds_ >= lower_seconds && now >= lower_from_ && duty_ > min_duty_) {
    duty_ = std::max(duty_ - step_, min_duty_);
    at_limit_seconds_ = lowered_seconds_ = 0;
    was_lowered_ = true;
  }
  if (looks_below_ >= looks_to_raise && duty_ < 1) raise(now, power.seconds);
}

/// Returns to the previous share if it was just lowered. Otherwise it raises fast if much power is missing.
/// It raises in steps if little is missing, since a slow sensor would cause overshoot.
void MixControl::raise(double now, double seconds) {
  const bool goes_back = was_lowered_ && lowered_seconds_ <= answer_seconds,
             is_fast = !goes_back && looks_far_below_ >= looks_to_raise;
  if (!is_fast && now - raised_at_ < raise_seconds) return;
  duty_ = std::min(duty_ + (is_fast ? fast_raise_rate * std::min(seconds, 1.0) : step_), 1.0);
  raised_at_ = now;
  if (goes_back) looks_below_ = looks_far_below_ = 0;  // the samples so far belong to the lower share
  smooth_ratio_ = 1;
  lower_from_ = now + wait_seconds_;
  if (!std::exchange(was_lowered_, false)) return;
  step_ = std::max(step_ / 2, min_step);
  wait_seconds_ = std::min(2 * wait_seconds_, longest_wait_s);
}

Json MixControl::summary() const {
  const std::string control = !fixed_.empty() ? fixed_ : power_known_ ? "power" : "no power reading";
  return {{"control", control},
          {"power_sensor", sensor_wrong_.empty() ? Json(nullptr) : Json(sensor_wrong_)},
          {"unreached_seconds", unreached_seconds_}};
}

}  // namespace egt
