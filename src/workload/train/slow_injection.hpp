#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>

#include "egt/workload/workload.hpp"
#include "model/mlp_trainer.hpp"

namespace egt {

/// A slow device on purpose (kind slow): from its step to the end, every pass of training carries real work
/// more on the compute stream, in memory of its own. Its amount follows what events measure, so that a step
/// takes `ms` longer or, where that is not given, `count` percent of what the rank's own pass takes (5, where
/// count is not given either). Main thread only.
class SlowInjection {
 public:
  static constexpr double default_percent = 5;

  /// The environment outlives the object. The trainer goes first: its streams use the object's memory to
  /// their end. `in_force`: one that struck and was reported before, and holds on here.
  SlowInjection(Environment& environment, MlpTrainer& trainer, std::optional<Injection> in_force = {})
      : environment_(environment), trainer_(trainer), in_force_(in_force) {}

  /// What it adds, of the work itself, where `ms` is not given.
  static double percent_of(const Injection& injection);

  /// Takes what is due just before training step `step` is enqueued.
  Status before_step(std::int64_t step);
  /// What the step took, once it is retired.
  Status learn(std::int64_t step, const StepResult& result);
  /// What is added to a step now, by the last one measured, milliseconds; 0: nothing.
  double extra_ms() const { return extra_ms_; }

 private:
  struct Mark {
    std::unique_ptr<Event> begin, end;
    int turns = 0;
  };

  Status prepare();
  Status work(std::int64_t step, Stream& compute);
  double target_ms() const;
  Mark& mark_of(std::int64_t step) { return marks_[static_cast<std::size_t>(step) % marks_.size()]; }

  Environment& environment_;
  MlpTrainer& trainer_;
  const std::optional<Injection> in_force_;  ///< from the first step on that can be measured
  std::optional<Injection> injection_;       ///< that is carried out
  Buffer words_, digest_;
  std::array<Mark, MlpTrainer::depth + 2> marks_;  ///< a step in line each
  std::optional<double> pass_ms_;                  ///< of a pass without the work added, of late
  double extra_ms_ = 0, turn_ms_ = 0;
  int turns_ = 1;
};

}  // namespace egt
