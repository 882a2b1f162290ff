#pragma once

#include <cstdint>
#include <deque>
#include <optional>

#include "model/mlp_trainer.hpp"

namespace egt {

/// Schedule of the checks, identical on all ranks that pass the same values. Not thread-safe.
///
/// `every` > 0: one check after each `every`-th step, whatever the cost. `every` 0: checks use at most
/// `budget` (a share such as 0.01) of the steps' time. The first check comes early. Each further one comes
/// once the time of all steps covers all checks so far and the next; a budget of 0 allows none. The next
/// check waits until `learn` reported the cost of the last.
class CheckSchedule {
 public:
  /// Steps before the first check by budget; its cost is compensated later.
  static constexpr std::int64_t first_check = 5;
  /// Min steps between two checks by budget, because a check's result arrives two steps later.
  static constexpr std::int64_t min_period = 3;
  /// Cap on the cost of a check after the first, relative to the costliest recent check or a step. The excess
  /// is an external stall and is not charged. Otherwise a stall of one second would delay checks for minutes.
  static constexpr double stall_factor = 4;
  /// Limits how fast unspent budget is used. A check comes at most this factor earlier than the costliest
  /// recent check requires.
  static constexpr double haste = 4;

  /// 0 <= every, 0 <= budget.
  CheckSchedule(std::int64_t every, double budget);

  /// True if a check is due after step `step`. Call once per step, in order.
  bool due(std::int64_t step);

  /// Reports the cost of a check and of a step without one since the last check, in ms, as agreed by all
  /// ranks. Call once per check when its result is known (some steps later). The cost, a difference of
  /// measured times, may be negative; noise cancels in the sum. Invalid values (a step of 0 ms, NaN,
  /// infinite) are replaced by the previous ones. Without these, a check is assumed to cost one step.
  void learn(double check_ms, double step_ms);

  /// Steps between checks, as currently planned.
  std::int64_t period() const { return period_; }

 private:
  double dearest() const;
  void charge(double check_ms);
  std::int64_t planned_period() const;

  std::int64_t every_;
  double budget_;
  std::int64_t period_;
  std::int64_t steps_ = 0;          ///< calls of `due` so far
  std::int64_t last_check_ = 0;     ///< `steps_` at the last check
  bool under_way_ = false;          ///< a check whose cost is not known yet
  std::int64_t settled_steps_ = 0;  ///< steps included in `steps_ms_`
  double steps_ms_ = 0;
  std::optional<double> step_ms_;  ///< last reported
  double checks_ms_ = 0;           ///< of all checks so far
  std::deque<double> recent_ms_;   ///< costs of the last checks
};

/// Cost of checks on this rank: the time by which the steps after a check exceeded those before. The ranks
/// exchange these values with the steps, so that all ranks decide identically.
class StepCosts {
 public:
  /// A check was enqueued after `step`.
  void check_enqueued(std::int64_t step) { checks_.push_back(step); }
  /// `ms`: duration of the step; none: unknown. Call in order.
  void add(std::int64_t step, std::optional<double> ms);
  /// Steps were repeated, so their times are invalid.
  void disturb() { affected_.disturbed = true; }
  /// The steps in flight were aborted; drops their pending reports.
  void give_up();
  /// Cost to report to the peers, once; all 0: nothing new.
  StepMessage take_note();
  /// Share of the time of all steps; none: not measured yet.
  std::optional<double> fraction() const;

 private:
  static constexpr std::int64_t affected = 2;  ///< steps after a check that it may delay
  static constexpr std::size_t remembered = 8;

  std::deque<std::int64_t> checks_;  ///< steps before the pending checks
  std::deque<double> plain_;         ///< recent steps not delayed by a check
  struct Affected {
    bool disturbed = false;
    double ms = 0;
    int steps = 0;
  } affected_;  ///< steps after the first pending check so far
  double all_ms_ = 0;
  std::optional<double> checks_ms_;  ///< none: no check was measured yet
  StepMessage note_;
};

}  // namespace egt
