#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>

#include "egt/workload/workload.hpp"
#include "model/mlp_trainer.hpp"

namespace egt {

/// Injected slow device (kind slow). From its step on, every training pass includes additional real work on
/// the compute stream, in separate memory. Event timing controls the amount: a step is `ms` longer or, if not
/// given, `count` percent of the rank's own pass time (default 5). Main thread only.
class SlowInjection {
 public:
  static constexpr double default_percent = 5;

  /// The environment must outlive the object. The trainer must be destroyed first, because its streams use
  /// the object's memory until they finish. `in_force`: an injection that was reported before and continues.
  SlowInjection(Environment& environment, MlpTrainer& trainer, std::optional<Injection> in_force = {})
      : environment_(environment), trainer_(trainer), in_force_(in_force) {}

  /// Additional work in percent of the pass, if `ms` is not given.
  static double percent_of(const Injection& injection);

  /// Starts the injection if due. Call directly before training step `step` is enqueued.
  Status before_step(std::int64_t step);
  /// Reports the duration of a retired step.
  Status learn(std::int64_t step, const StepResult& result);
  /// Time currently added to a step in ms, by the last measurement; 0: none.
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
  const std::optional<Injection> in_force_;  ///< applied from the first step that can be measured
  std::optional<Injection> injection_;       ///< in progress
  Buffer words_, digest_;
  std::array<Mark, MlpTrainer::depth + 2> marks_;  ///< one per enqueued step
  std::optional<double> pass_ms_;                  ///< recent mean pass time without the added work
  double extra_ms_ = 0, turn_ms_ = 0;
  int turns_ = 1;
};

}  // namespace egt
