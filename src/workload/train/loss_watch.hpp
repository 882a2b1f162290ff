#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "egt/workload/workload.hpp"
#include "model/mlp_trainer.hpp"
#include "workload/common/fault_reporter.hpp"
#include "workload/train/state_repair.hpp"

namespace egt {

/// A rank whose own loss deviates from those of the other ranks.
struct LossApart {
  int rank = -1;
  std::int64_t step = -1;
};
/// The first such rank in the repeated steps up to `last`. Its loss is the only non-finite one, or is 10 or
/// more times any other. Equal weights and identically distributed inputs give closer losses.
std::optional<LossApart> first_loss_apart(const Repetition& repetition, std::int64_t last);

/// Checks that the loss stays finite. The first non-finite loss is pending until its step is repeated. That
/// distinguishes a device fault, which is reported, from diverging training. Collective: the same calls,
/// order and results on all ranks. Main thread only.
class LossWatch {
 public:
  /// Both must outlive the watch.
  LossWatch(Environment& environment, FaultReporter& reporter)
      : environment_(environment), reporter_(reporter) {}

  /// Call after step `step`.
  void note(std::int64_t step, const StepResult& result);
  /// Step of the pending loss; a check that repeats it is wanted at once.
  std::optional<std::int64_t> open_step() const;
  /// Judges the repetition of the same steps from the same state, in check number `check`. If the loss is
  /// finite now, a device or transfer was wrong before. If not, but the ranks' states differed, it still is.
  /// `explained`: another detected fault may be the cause. Returns true if a fault was reported.
  bool judge(const Repetition& repetition, bool explained, std::uint64_t check);
  /// For a restart: training goes back, and a loss that is pending on some ranks only stays unexamined.
  void give_up();

  /// Judgements of the losses so far.
  struct Figures {
    /// Step of the first non-finite loss that was the same in a repetition without other faults, so training
    /// diverges. None: no divergence.
    std::optional<std::int64_t> diverged_step = {};
    std::optional<LossApart> diverged_first =
        {};  ///< rank whose own loss diverged first; none: no single rank
    /// Step of a non-finite loss that was not repeated (yet).
    std::optional<std::int64_t> unexamined_step = {};
  };
  Figures figures() const;

 private:
  struct Nonfinite {
    std::int64_t step = -1;
    std::vector<int> ranks;  ///< ranks with a non-finite loss
  };

  void report(const Nonfinite& loss, std::uint64_t check);

  Environment& environment_;
  FaultReporter& reporter_;
  std::optional<Nonfinite> open_;
  bool is_finite_ = true;
  bool diverges_ = false;  ///< since the last restart; no further loss becomes pending
  Figures figures_;
};

}  // namespace egt
