#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <vector>

#include "model/digest_exchange.hpp"

namespace egt {

/// Schedule of the checks, and their measured cost on this rank. Not thread-safe.
///
/// `every` > 0: one check after each `every`-th step, whatever the cost. `every` 0: checks use at most
/// `budget` (a share such as 0.01) of the steps' time. The first check comes early. Each further one comes
/// once the time of all steps covers all checks so far and the next; a budget of 0 allows none. Each rank
/// proposes a period from its own times. The ranks exchange the proposals with each check and use the
/// longest, so they decide identically and every rank stays within the budget.
class CheckSchedule {
 public:
  /// Steps before the first check by budget; its cost is compensated later.
  static constexpr std::int64_t first_check = 5;
  /// Min steps between two checks by budget, because a check's result arrives two steps later.
  static constexpr std::int64_t min_period = 3;

  /// 0 <= every, 0 <= budget.
  CheckSchedule(std::int64_t every, double budget) : every_(every), budget_(budget) { restart(-1); }

  /// The run continues after `step`. The times so far still count.
  void restart(std::int64_t step) { plan(step, first_check); }
  bool due(std::int64_t step) const {
    return every_ > 0 ? (step + 1) % every_ == 0 : budget_ > 0 && step >= next_;
  }
  /// Times that are not positive or not finite are invalid: a step is ignored, a check counts as one step.
  void add_step(double ms) {
    if (is_valid(ms)) steps_ms_ += ms, ++steps_;
  }
  void add_check(double ms) { checks_ms_ += is_valid(ms) ? ms : step_ms(), ++checks_; }

  /// Steps from the check that is being enqueued to the next one. Both are assumed to cost the mean of the
  /// checks so far; the first two, one step each.
  std::uint32_t proposal() const {
    constexpr double headroom = 0.95;  // because the next costs are estimates
    constexpr double longest = 1u << 31;
    const double check_ms = checks_ > 0 ? checks_ms_ / checks_ : step_ms();
    const double steps = ((checks_ms_ + 2 * check_ms) / (headroom * budget_) - steps_ms_) / step_ms();
    return static_cast<std::uint32_t>(std::clamp<double>(std::ceil(steps), min_period, longest));
  }
  /// `answers`: of all ranks in the check after `step`, each ending with the stamp of its proposal. Others
  /// changed in transit and are ignored.
  void agree(std::int64_t step, const std::vector<Answers>& answers) {
    std::int64_t longest = min_period;
    for (const Answers& rank : answers)
      if (const auto proposed = static_cast<std::uint32_t>(rank.back().a); rank.back() == stamp(proposed))
        longest = std::max<std::int64_t>(longest, proposed);
    plan(step, longest);
  }

  /// Steps between checks, as currently planned.
  std::int64_t period() const { return period_; }
  /// Share of the time of all steps; none: not measured yet.
  std::optional<double> fraction() const {
    return steps_ > 0 && checks_ > 0 ? std::optional(std::min(checks_ms_ / steps_ms_, 1.0)) : std::nullopt;
  }

 private:
  static bool is_valid(double ms) { return std::isfinite(ms) && ms > 0; }
  double step_ms() const { return steps_ > 0 ? steps_ms_ / steps_ : 1; }
  void plan(std::int64_t step, std::int64_t period) {
    period_ = every_ > 0 ? every_ : period;
    next_ = step + period_;
  }

  std::int64_t every_;
  double budget_;
  std::int64_t period_ = 0, next_ = 0;  ///< the step after which a check is due
  double steps_ = 0, steps_ms_ = 0, checks_ = 0, checks_ms_ = 0;
};

}  // namespace egt
