#include "session/health/guard.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "egt/core/load_control.hpp"

namespace egt {
namespace {

constexpr double slowdown_margin_c = 4;  ///< min distance of the limit to the slowdown temperature
constexpr double shutdown_margin_c = 7;
constexpr double slowdown_to_shutdown_c = 3;  ///< used if the slowdown temperature is not reported
constexpr double memory_above_device_c = 10;  ///< stacked memory is specified for 95, the GPU for 85
constexpr double lowest_plausible_c = 40, highest_plausible_c = 150;
constexpr double warning_gap_seconds = 60;
constexpr double blind_seconds = 5;
constexpr double min_judged_seconds = 2;  ///< less may be a single sample, which lasts a second
constexpr double full_duty = 0.995;

/// Rejects a threshold reported as a distance to a limit, or an invalid one.
std::optional<double> plausible_threshold(const std::optional<double>& c) {
  return c && *c > lowest_plausible_c && *c < highest_plausible_c ? c : std::nullopt;
}

/// Returns std::nullopt for an implausible reading or NaN.
std::optional<double> plausible_reading(const std::optional<double>& c) {
  return c && *c > -40 && *c < highest_plausible_c ? c : std::nullopt;
}

double lowest_limit(double asked, const SensorLimits& limits) {
  if (const auto c = plausible_threshold(limits.slowdown_temperature_c))
    asked = std::min(asked, *c - slowdown_margin_c);
  if (const auto c = plausible_threshold(limits.shutdown_temperature_c))
    asked = std::min(asked, *c - shutdown_margin_c);
  return asked;
}

std::optional<double> slowdown(const SensorLimits& limits) {
  const auto slow = plausible_threshold(limits.slowdown_temperature_c);
  const auto shut = plausible_threshold(limits.shutdown_temperature_c);
  if (!slow && !shut) return std::nullopt;
  return std::min(slow.value_or(highest_plausible_c),
                  shut ? *shut - slowdown_to_shutdown_c : highest_plausible_c);
}

std::string percent(double share) {
  return fmt::format("{:.0f} %", 100 * share);
}

/// The larger used share of device memory and host memory.
struct MemoryUse {
  double share = 0;
  const char* of = "";
};

MemoryUse memory_use(const GuardSample& sample) {
  MemoryUse use;
  if (sample.device && sample.device->memory_used_bytes && sample.device->memory_total_bytes.value_or(0) > 0)
    use = {static_cast<double>(*sample.device->memory_used_bytes) /
               static_cast<double>(*sample.device->memory_total_bytes),
           "the device's"};
  if (sample.host.memory_percent && *sample.host.memory_percent / 100 > use.share)
    use = {*sample.host.memory_percent / 100, "the host's"};
  return use;
}

// Constants of the controllers.
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

/// Upper bound of the duty cycle near the slowdown temperature. It is min_duty if the headroom is critical
/// now. It is half the current duty cycle if the headroom would be critical at the next sample, extrapolated
/// from the last samples. It is not lower, because part of the rise may be sensor noise. Otherwise it is 1.
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

std::array<Guard::Throttle, 4> Guard::throttles() {
  constexpr std::uint64_t hw_slowdown = 0x8, sw_thermal = 0x20, hw_thermal = 0x40, hw_power_brake = 0x80;
  return {Throttle{.name = "sw_thermal",
                   .meaning = "the driver, because of heat",
                   .advice = "improve the cooling",
                   .bit = sw_thermal,
                   .counter = &ThrottleTimes::sw_thermal_s},
          Throttle{.name = "hw_thermal",
                   .meaning = "the hardware, because of heat",
                   .advice = "improve the cooling",
                   .bit = hw_thermal,
                   .counter = &ThrottleTimes::hw_thermal_s},
          Throttle{.name = "hw_power_brake",
                   .meaning = "the power brake",
                   .advice = "check the node's power supply",
                   .bit = hw_power_brake,
                   .counter = &ThrottleTimes::power_brake_s},
          Throttle{.name = "hw_slowdown",
                   .meaning = "the hardware",
                   .advice = "check cooling and power supply",
                   .bit = hw_slowdown,
                   .unless = hw_thermal | hw_power_brake}};  // these two reasons also set hw_slowdown
}

Guard::Guard(const GuardOptions& options, const SensorLimits& limits, MonitoredDevice device,
             std::optional<double> planned_seconds)
    : options_(options),
      limits_(limits),
      device_(std::move(device)),
      planned_seconds_(planned_seconds),
      temperature_limit_c_(lowest_limit(options.temperature_limit_c, limits)),
      memory_temperature_limit_c_(options.temperature_limit_c + memory_above_device_c),
      slowdown_c_(slowdown(limits)),
      pressure_(options.memory_limit) {}

GuardDecision Guard::look(const GuardSample& sample) {
  const double seconds = std::max(sample.seconds - last_seconds_.value_or(sample.seconds), 0.0);
  const double began = first_seconds_.value_or(sample.seconds);
  first_seconds_ = began;
  last_seconds_ = sample.seconds;
  GuardDecision decision;
  if (heat_.duty() < full_duty) heat_seconds_ += seconds;
  if (power_.duty() < full_duty) power_seconds_ += seconds;
  if (sample.device) {
    watch_heat(*sample.device, sample.seconds, seconds, decision);
    watch_power(*sample.device, seconds, decision);
    watch_clocks(*sample.device, seconds);
  }
  report_blindness(sample.seconds, decision);
  watch_memory(sample, seconds, decision);
  if (planned_seconds_)
    for (Finding& found : judge_shares(std::max(*planned_seconds_, sample.seconds - began)))
      decision.findings.push_back(std::move(found));
  decision.duty = std::min(heat_.duty(), power_.duty());
  decision.memory_share = pressure_.share();
  return decision;
}

std::vector<Finding> Guard::finish() {
  return judge_shares(last_seconds_.value_or(0) - first_seconds_.value_or(0));
}

std::optional<Guard::Hottest> Guard::hottest(const SensorReading& reading) const {
  std::optional<Hottest> found;
  if (const auto c = plausible_reading(reading.temperature_c)) {
    found = {"temperature", *c, temperature_limit_c_, {.excess_c = *c - temperature_limit_c_}};
    if (slowdown_c_) found->heat.headroom_c = *slowdown_c_ - *c;
  }
  const auto memory = plausible_reading(reading.memory_temperature_c);
  if (!memory) return found;
  const double excess = *memory - memory_temperature_limit_c_;
  if (found && excess <= found->heat.excess_c) return found;
  const Heat heat{.excess_c = excess, .headroom_c = found ? found->heat.headroom_c : Heat().headroom_c};
  return Hottest{"memory temperature", *memory, memory_temperature_limit_c_, heat};
}

void Guard::watch_heat(const SensorReading& reading, double now, double seconds, GuardDecision& decision) {
  const auto hot = hottest(reading);
  if (!hot) return;
  heat_known_at_ = now;
  blindness_told_ = false;
  if (!hottest_ || hot->heat.excess_c > hottest_->heat.excess_c) hottest_ = hot;
  const bool held_before = heat_.holds();
  heat_.look(hot->heat, seconds);
  min_heat_duty_ = std::min(min_heat_duty_, heat_.duty());
  report_heat(*hot, held_before, now, decision);
}

/// Limits the messages of a temperature that oscillates around the limit.
void Guard::report_heat(const Hottest& hot, bool held_before, double now, GuardDecision& decision) {
  if (heat_.holds() && !held_before) {
    taken_over_at_ = now;
    heat_was_told_ = now - heat_told_at_.value_or(-warning_gap_seconds) >= warning_gap_seconds;
    if (!heat_was_told_) return;
    heat_told_at_ = now;
    decision.warnings.push_back(
        fmt::format("{} of {:.0f} C, the limit is {:.0f} C: the load is lowered until it falls", hot.what,
                    hot.temperature_c, hot.limit_c));
  }
  if (!heat_.holds() && held_before && heat_was_told_) {
    heat_told_at_ = now;
    decision.notices.push_back(fmt::format("{} is down to {:.0f} C: full load again after {:.0f} s", hot.what,
                                           hot.temperature_c, now - taken_over_at_));
  }
}

/// Warns that the load cannot be raised without temperature readings.
void Guard::report_blindness(double now, GuardDecision& decision) {
  if (!heat_.holds() || blindness_told_ || now - heat_known_at_ < blind_seconds) return;
  blindness_told_ = true;
  decision.warnings.push_back(fmt::format(
      "the device does not tell its temperature any more: the load stays at {}", percent(heat_.duty())));
}

void Guard::watch_power(const SensorReading& reading, double seconds, GuardDecision& decision) {
  if (!reading.power_w || limits_.power_limit_w.value_or(0) <= 0) return;
  const double limit = *limits_.power_limit_w, power = *reading.power_w;
  if (!power_.look(power, limit, seconds)) return;
  const std::string text = fmt::format("power of {:.0f} W, above its limit of {:.0f} W for {:.0f} s", power,
                                       limit, PowerControl::window_seconds);
  decision.warnings.push_back(fmt::format("{}: the load is lowered to {}", text, percent(power_.duty())));
  if (!std::exchange(power_found_, true))
    decision.findings.push_back(device_.finding("power", "power", text, limit, power));
}

void Guard::watch_clocks(const SensorReading& reading, double seconds) {
  const std::uint64_t active = reading.event_reasons.value_or(0);
  for (Throttle& one : throttles_) {
    if ((active & one.bit) != 0 && (active & one.unless) == 0) one.sampled_seconds += seconds;
    const auto counter = one.counter ? reading.throttle.*one.counter : std::nullopt;
    const auto before = std::exchange(one.counter_before, counter);
    if (counter && before) one.counted_seconds += std::clamp(*counter - *before, 0.0, seconds + 1);
  }
}

void Guard::watch_memory(const GuardSample& sample, double seconds, GuardDecision& decision) {
  const MemoryUse use = memory_use(sample);
  const PressureControl::Move move = pressure_.look(use.share, seconds);
  if (move == PressureControl::Move::none) return;
  const std::string text = fmt::format("{:.1f} % of {} memory is in use, the limit is {:.0f} %",
                                       100 * use.share, use.of, 100 * options_.memory_limit);
  if (move == PressureControl::Move::gave_up) {
    decision.warnings.push_back(text + ": a smaller fill does not help, others use it");
    return;
  }
  ++memory_steps_;
  decision.warnings.push_back(fmt::format("{}: the fill is made smaller, to {} of what was planned", text,
                                          percent(pressure_.share())));
}

double Guard::allowed_seconds(double run_seconds) const {
  return std::max(options_.throttle_limit * run_seconds, min_judged_seconds);
}

std::vector<Finding> Guard::judge_shares(double run_seconds) {
  const double allowed = allowed_seconds(run_seconds);
  const std::string policy = fmt::format("allowed are {} of the run", percent(options_.throttle_limit));
  std::vector<Finding> found;
  if (hottest_ && heat_seconds_ > allowed && !std::exchange(heat_found_, true))
    found.push_back(device_.finding(
        "temperature", hottest_->what,
        fmt::format(
            "{} of up to {:.0f} C at a limit of {:.0f} C: the load was lowered for {:.1f} s, to {} at "
            "least; {}: improve the cooling",
            hottest_->what, hottest_->temperature_c, hottest_->limit_c, heat_seconds_,
            percent(min_heat_duty_), policy),
        hottest_->limit_c, hottest_->temperature_c));
  for (Throttle& one : throttles_)
    if (one.seconds() > allowed && !std::exchange(one.reported, true))
      found.push_back(device_.finding("throttle", one.name,
                                      fmt::format("clocks throttled by {} ({}) for {:.1f} s; {}: {}",
                                                  one.meaning, one.name, one.seconds(), policy, one.advice),
                                      allowed, one.seconds()));
  return found;
}

Json Guard::summary() const {
  Json throttled = Json::object();
  for (const Throttle& one : throttles_)
    if (one.seconds() > 0) throttled[one.name] = one.seconds();
  return {{"temperature_limit_c", temperature_limit_c_},
          {"heat_seconds", heat_seconds_},
          {"least_heat_duty", min_heat_duty_},
          {"power_seconds", power_seconds_},
          {"throttle_seconds", throttled},
          {"memory_steps", memory_steps_}};
}

}  // namespace egt
