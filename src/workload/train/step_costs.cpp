#include "workload/train/step_costs.hpp"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

namespace egt {

namespace {

double median(const std::deque<double>& values) {
  std::vector<double> sorted(values.begin(), values.end());
  std::nth_element(sorted.begin(), sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2),
                   sorted.end());
  return sorted[sorted.size() / 2];
}

}  // namespace

void StepCosts::add(std::int64_t step, std::optional<double> ms) {
  if (ms) all_ms_ += *ms;
  if (checks_.empty() || step <= checks_.front()) {
    if (!ms) return;
    plain_.push_back(*ms);
    if (plain_.size() > remembered) plain_.pop_front();
    return;
  }
  if (ms) {
    affected_ms_ += *ms;
    ++affected_steps_;
  }
  if (step < checks_.front() + affected) return;
  constexpr float unknown = std::numeric_limits<float>::quiet_NaN();
  const bool measured = !disturbed_ && affected_steps_ == affected && !plain_.empty();
  const double plain = plain_.empty() ? 0 : median(plain_);
  const double cost = affected_ms_ - static_cast<double>(affected) * plain;
  if (measured) checks_ms_ = checks_ms_.value_or(0) + cost;
  note_.check_ms = measured ? static_cast<float>(cost) : unknown;
  note_.step_ms = measured ? static_cast<float>(plain) : unknown;
  checks_.pop_front();
  disturbed_ = false;
  affected_ms_ = 0;
  affected_steps_ = 0;
}

void StepCosts::give_up() {
  checks_.clear();
  disturbed_ = false;
  affected_ms_ = 0;
  affected_steps_ = 0;
  note_ = {};
}

StepNote StepCosts::take_note() {
  return std::exchange(note_, StepNote{});
}

std::optional<double> StepCosts::fraction() const {
  if (all_ms_ <= 0 || !checks_ms_) return std::nullopt;
  return std::clamp(*checks_ms_ / all_ms_, 0.0, 1.0);
}

}  // namespace egt
