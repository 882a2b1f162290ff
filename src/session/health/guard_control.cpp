#include "session/health/guard_control.hpp"

#include <algorithm>
#include <cmath>

#include "egt/core/load_control.hpp"

namespace egt {
namespace {

constexpr double aim_c = 2;              ///< target distance below the limit
constexpr double proportional = 0.05;    ///< duty cycle per degree
constexpr double integral_rate = 0.004;  ///< duty cycle per degree and second
constexpr double max_coolness_c = 4;     ///< max margin that counts, which bounds the rate of increase
constexpr double raise_rate = 0.03;      ///< max increase of the duty cycle per second
constexpr double tracking_seconds = 3;   ///< anti-windup time constant: integral at a clamped output
constexpr double smoothing_seconds = 2;
constexpr double critical_c = 1;  ///< distance to the slowdown temperature that causes the min load at once
constexpr double calm_wanted_seconds = 15;
constexpr double calm_c = 3;         ///< distance below the limit that counts as cool
constexpr double longest_gap_s = 5;  ///< longer gaps between samples count as this

constexpr double power_step = 0.1;
constexpr double power_raise_seconds = 30;

constexpr double pressure_step = 0.1;
constexpr double pressure_seconds = 1.5;  ///< one sample above the limit does not count
constexpr double settle_seconds = 5;
constexpr double min_effect = 0.002;  ///< min effect of a step, as a share of the memory
constexpr int futile_steps = 3;
constexpr double min_share = 0.1;

}  // namespace

/// Extrapolates the last two samples to the next one. Part of the rise may be sensor noise, so this only
/// halves the load.
double HeatControl::highest_duty(const Heat& heat) {
  const double before = headrooms_c_[1].value_or(headrooms_c_[0].value_or(heat.headroom_c));
  const double looks = headrooms_c_[1] ? 2 : 1;
  headrooms_c_ = {heat.headroom_c, headrooms_c_[0]};
  if (heat.headroom_c <= critical_c) return LoadControl::min_duty;
  if (!std::isfinite(heat.headroom_c) || !std::isfinite(before)) return 1;
  const double rise = std::max((before - heat.headroom_c) / looks, 0.0);
  return heat.headroom_c - rise <= critical_c ? std::max(duty_ / 2, LoadControl::min_duty) : 1;
}

void HeatControl::take_over(const Heat& heat) {
  holds_ = true;
  integral_ = duty_ = 1;
  excess_c_ = heat.excess_c;
  calm_seconds_ = 0;
}

void HeatControl::look(const Heat& heat, double seconds) {
  const double dt = std::clamp(seconds, 0.0, longest_gap_s);
  const double highest = highest_duty(heat);
  if (!holds_ && heat.excess_c < 0 && highest >= 1) return;
  if (!holds_) take_over(heat);
  const double smoothed = excess_c_ + (heat.excess_c - excess_c_) * (1 - std::exp(-dt / smoothing_seconds));
  excess_c_ = std::max(heat.excess_c, smoothed);
  control(dt, highest);
  let_go_if_calm(dt);
}

void HeatControl::control(double seconds, double highest) {
  const double coolness = std::min(-aim_c - excess_c_, max_coolness_c);
  integral_ += integral_rate * coolness * seconds;
  const double wanted = proportional * coolness + integral_;
  duty_ = std::clamp(wanted, LoadControl::min_duty, std::min(highest, duty_ + raise_rate * seconds));
  integral_ += (duty_ - wanted) * std::min(seconds / tracking_seconds, 1.0);
}

void HeatControl::let_go_if_calm(double seconds) {
  const bool calm = duty_ >= 1 && excess_c_ <= -calm_c;
  calm_seconds_ = calm ? calm_seconds_ + seconds : 0;
  if (calm_seconds_ >= calm_wanted_seconds) holds_ = false;
}

bool PowerControl::look(double power_w, double limit_w, double seconds) {
  const double dt = std::clamp(seconds, 0.0, longest_gap_s);
  const bool above = power_w > limit_w * (1 + tolerance);
  above_seconds_ = above ? above_seconds_ + dt : 0;
  below_seconds_ = above ? 0 : below_seconds_ + dt;
  if (!above && duty_ < 1) raise(power_w, limit_w);
  if (above_seconds_ < window_seconds) return false;
  above_seconds_ = 0;
  duty_ = std::max(duty_ - power_step, LoadControl::min_duty);
  return true;
}

/// Raises only if the expected power stays within the limit. Otherwise the load would oscillate.
void PowerControl::raise(double power_w, double limit_w) {
  if (below_seconds_ < power_raise_seconds) return;
  const double higher = std::min(duty_ + power_step, 1.0);
  if (power_w * higher / duty_ > limit_w) return;
  below_seconds_ = 0;
  duty_ = higher;
}

PressureControl::Move PressureControl::look(double used, double seconds) {
  if (used <= limit_) {
    settled_seconds_ = 0;
    futile_steps_ = 0;
    gave_up_ = false;
    used_at_step_.reset();
    return Move::none;
  }
  settled_seconds_ += std::clamp(seconds, 0.0, longest_gap_s);
  if (gave_up_ || settled_seconds_ < (used_at_step_ ? settle_seconds : pressure_seconds)) return Move::none;
  settled_seconds_ = 0;
  const bool futile = used_at_step_ && used > *used_at_step_ - min_effect;
  futile_steps_ = futile ? futile_steps_ + 1 : 0;
  gave_up_ = futile_steps_ >= futile_steps || share_ <= min_share;
  if (gave_up_) return Move::gave_up;
  used_at_step_ = used;
  share_ = std::max(share_ - pressure_step, min_share);
  return Move::lowered;
}

}  // namespace egt
