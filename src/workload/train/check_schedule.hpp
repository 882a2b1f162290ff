#pragma once

#include <cstdint>
#include <deque>
#include <optional>

#include "model/mlp_trainer.hpp"

namespace egt {

/// When checks come: the same on every rank that is fed with the same figures. Not thread-safe.
///
/// `every` > 0: behind each `every`-th step, whatever it costs. `every` 0: so that the checks' time stays at
/// or below `budget` (a share, 0.01) of the steps' time: the first comes early, and each further one as soon
/// as the time of all steps pays for all checks so far and the next; a budget of 0 allows none. One check at
/// a time: the next waits until `learn` reported the cost of the last.
class CheckSchedule {
 public:
  /// Steps before the first check by budget; it is paid for afterwards.
  static constexpr std::int64_t first_check = 5;
  /// Steps from one check by budget to the next, at least: a check's result comes two steps later.
  static constexpr std::int64_t least_period = 3;
  /// A check behind the first may cost this factor more than the dearest of the last ones or a step; what is
  /// above was not its own doing (the machine stood still) and is not paid for, or a stall of a second would
  /// put off checks for minutes.
  static constexpr double stall_factor = 4;
  /// A credit (checks were cheap before) is spent slowly: none comes earlier than by this factor than the
  /// dearest of the last ones calls for.
  static constexpr double haste = 4;

  /// 0 <= every, 0 <= budget.
  CheckSchedule(std::int64_t every, double budget);

  /// Is a check due behind step `step`? Asked once a step, in order.
  bool due(std::int64_t step);

  /// What a check cost, and a step without one since the last check, in milliseconds, as all ranks agreed;
  /// called once a check, when its result is known (some steps later). A cost may be negative where it is a
  /// difference of measured times: noise evens out in the sum. Figures that cannot be (a step of 0 ms, NaN,
  /// infinite) are replaced by those before, or with none before by a check as dear as a step.
  void learn(double check_ms, double step_ms);

  /// Steps from one check to the next, as planned now.
  std::int64_t period() const { return period_; }

 private:
  double dearest() const;
  void charge(double check_ms);
  std::int64_t planned_period() const;

  std::int64_t every_;
  double budget_;
  std::int64_t period_;
  std::int64_t steps_ = 0;          ///< asked so far
  std::int64_t last_check_ = 0;     ///< `steps_` at the last check
  bool under_way_ = false;          ///< a check whose cost is not yet known
  std::int64_t settled_steps_ = 0;  ///< steps whose time is in `steps_ms_`
  double steps_ms_ = 0;
  std::optional<double> step_ms_;  ///< learnt last
  double checks_ms_ = 0;           ///< of all checks so far
  std::deque<double> recent_ms_;   ///< costs of the last checks
};

/// What checks cost this rank: by how much the steps behind one were longer than those before it. The ranks'
/// figures travel with the steps, so that all decide alike.
class StepCosts {
 public:
  /// A check was put in line behind `step`.
  void check_enqueued(std::int64_t step) { checks_.push_back(step); }
  /// `ms`: how long the step took; none: not known. In order.
  void add(std::int64_t step, std::optional<double> ms);
  /// Steps were repeated: their times say nothing.
  void disturb() { disturbed_ = true; }
  /// The steps under way were given up, and with them what was to be reported of checks.
  void give_up();
  /// What is to be reported to the peers, once; all 0: nothing new.
  StepNote take_note();
  /// Of the time of all steps; none: not measured yet.
  std::optional<double> fraction() const;

 private:
  static constexpr std::int64_t affected = 2;  ///< steps behind a check that it may delay
  static constexpr std::size_t remembered = 8;

  std::deque<std::int64_t> checks_;  ///< the steps before those that are to come
  bool disturbed_ = false;
  std::deque<double> plain_;  ///< the last steps that no check delayed
  double affected_ms_ = 0;
  int affected_steps_ = 0;
  double all_ms_ = 0;
  std::optional<double> checks_ms_;  ///< none: no check was measured yet
  StepNote note_;
};

}  // namespace egt
