#pragma once

#include <cstdint>
#include <deque>
#include <optional>

#include "model/mlp_trainer.hpp"

namespace egt {

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
  /// The steps under way were given up, and with them what was to be told of checks.
  void give_up();
  /// What is to be told to the peers, once; all 0: nothing new.
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
