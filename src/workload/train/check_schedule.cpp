#include "workload/train/check_schedule.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

namespace egt {
namespace {

/// Number of recent checks; the costliest of them counts.
constexpr std::size_t remembered = 8;
/// Share of the budget to use, because estimates have errors.
constexpr double headroom = 0.95;
/// In steps: longer than any run, and exact as a double.
constexpr double never = 1e15;

double median(const std::deque<double>& values) {
  std::vector<double> sorted(values.begin(), values.end());
  std::nth_element(sorted.begin(), sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2),
                   sorted.end());
  return sorted[sorted.size() / 2];
}

}  // namespace

CheckSchedule::CheckSchedule(std::int64_t every, double budget)
    : every_(every), budget_(budget), period_(every > 0 ? every : first_check) {}

bool CheckSchedule::due(std::int64_t step) {
  if (every_ > 0) return (step + 1) % every_ == 0;
  ++steps_;
  if (!(budget_ > 0) || under_way_ || steps_ - last_check_ < period_) return false;
  under_way_ = true;
  last_check_ = steps_;
  return true;
}

void CheckSchedule::learn(double check_ms, double step_ms) {
  if (every_ > 0 || !(budget_ > 0)) return;
  under_way_ = false;
  if (std::isfinite(step_ms) && step_ms > 0) step_ms_ = step_ms;
  if (step_ms_) {
    steps_ms_ += static_cast<double>(steps_ - settled_steps_) * *step_ms_;
    settled_steps_ = steps_;
  }
  charge(check_ms);
  period_ = planned_period();
}

double CheckSchedule::dearest() const {
  if (recent_ms_.empty()) return 0;
  return std::max(*std::max_element(recent_ms_.begin(), recent_ms_.end()), 0.0);
}

void CheckSchedule::charge(double check_ms) {
  const double step_ms = step_ms_.value_or(0);
  if (!std::isfinite(check_ms)) check_ms = recent_ms_.empty() ? step_ms : dearest();
  const double limit = stall_factor * std::max(dearest(), step_ms);
  check_ms = std::max(check_ms, -limit);
  if (!recent_ms_.empty() && limit > 0) check_ms = std::min(check_ms, limit);
  checks_ms_ += check_ms;
  recent_ms_.push_back(check_ms);
  if (recent_ms_.size() > remembered) recent_ms_.pop_front();
}

std::int64_t CheckSchedule::planned_period() const {
  const double budget = headroom * budget_;
  double steps = 1 / budget;
  if (step_ms_) {
    const double at_last_check = steps_ms_ - static_cast<double>(steps_ - last_check_) * *step_ms_;
    const double paid_ms = (checks_ms_ + dearest()) / budget - at_last_check;
    const double at_least_ms = dearest() / budget / haste;
    steps = std::max(paid_ms, at_least_ms) / *step_ms_;
  }
  const double least = static_cast<double>(min_period);
  return static_cast<std::int64_t>(std::ceil(std::clamp(steps, least, never)));
}

void StepCosts::add(std::int64_t step, std::optional<double> ms) {
  if (ms) all_ms_ += *ms;
  if (checks_.empty() || step <= checks_.front()) {
    if (!ms) return;
    plain_.push_back(*ms);
    if (plain_.size() > remembered) plain_.pop_front();
    return;
  }
  if (ms) {
    affected_.ms += *ms;
    ++affected_.steps;
  }
  if (step < checks_.front() + affected) return;
  constexpr float unknown = std::numeric_limits<float>::quiet_NaN();
  const bool measured = !affected_.disturbed && affected_.steps == affected && !plain_.empty();
  const double plain = plain_.empty() ? 0 : median(plain_);
  const double cost = affected_.ms - static_cast<double>(affected) * plain;
  if (measured) checks_ms_ = checks_ms_.value_or(0) + cost;
  note_.check_ms = measured ? static_cast<float>(cost) : unknown;
  note_.step_ms = measured ? static_cast<float>(plain) : unknown;
  checks_.pop_front();
  affected_ = {};
}

void StepCosts::give_up() {
  checks_.clear();
  affected_ = {};
  note_ = {};
}

StepMessage StepCosts::take_note() {
  return std::exchange(note_, StepMessage{});
}

std::optional<double> StepCosts::fraction() const {
  if (all_ms_ <= 0 || !checks_ms_) return std::nullopt;
  return std::clamp(*checks_ms_ / all_ms_, 0.0, 1.0);
}

}  // namespace egt
