#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "egt/workload/workload.hpp"
#include "model/mlp_trainer.hpp"
#include "workload/common/fault_reporter.hpp"
#include "workload/train/state_repair.hpp"

namespace egt {

/// Losses of every rank since the last verified state, to compare with those of a repetition. If they are too
/// many, because checks are rare or keep failing, none are kept: a part would not show which rank deviated
/// first. A single rank keeps none. Not thread-safe.
class LossHistory {
 public:
  static constexpr std::size_t max_losses = std::size_t{1} << 22;  ///< of all ranks: 16 MiB, twice

  /// Steps must be consecutive. `own_losses`: by rank.
  void keep(std::int64_t step, const std::vector<float>& own_losses);
  /// Call when the state from which repetitions start changes.
  void clear();
  /// True if there were too many since the last `clear`.
  bool too_many() const { return too_many_; }
  /// The step after the last one kept; 0: none is kept.
  std::int64_t end() const;
  /// Forgets step `end` and later ones; `too_many`: all.
  void cut(std::int64_t end, bool too_many);
  /// The first step whose loss differed when it was repeated; none: unknown, because there were too many. If
  /// the repetition left all ranks equal, training continues from it. Its losses then replace the kept ones,
  /// but only once a later step is repeated, because a restart may repeat and compare this one again.
  std::optional<Deviation> compare(const Repetition& repetition);

 private:
  /// Losses of repeated steps.
  struct Repeated {
    std::int64_t first_step = 0;
    std::vector<std::vector<float>> losses;  ///< by step, then by rank
    std::int64_t end() const { return first_step + static_cast<std::int64_t>(losses.size()); }
  };

  bool has(std::int64_t step) const { return step >= first_step_ && step < end(); }
  std::size_t index(std::int64_t step) const { return static_cast<std::size_t>(step - first_step_) * ranks_; }
  void replace(const Repeated& repeated);

  std::deque<float> losses_;  ///< by step, then by rank
  Repeated replacement_;      ///< pending
  std::int64_t first_step_ = 0;
  std::size_t ranks_ = 0;
  bool too_many_ = false;
};

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

  /// First step whose loss was non-finite again in the repetition, without another fault.
  std::optional<std::int64_t> diverged_step() const { return diverged_step_; }
  /// The rank whose own loss diverged first; none: no single rank.
  std::optional<LossApart> diverged_first() const { return diverged_first_; }
  /// A step with a non-finite loss that was not repeated (yet).
  std::optional<std::int64_t> unexamined_step() const { return open_ ? open_->step : unexamined_step_; }

 private:
  struct Nonfinite {
    std::int64_t step = -1;
    std::vector<int> ranks;  ///< ranks with a non-finite loss
  };

  void tell(const Nonfinite& loss, std::uint64_t check);

  Environment& environment_;
  FaultReporter& reporter_;
  std::optional<Nonfinite> open_;
  bool is_finite_ = true;
  bool diverges_ = false;  ///< since the last restart; no further loss becomes pending
  std::optional<std::int64_t> diverged_step_, unexamined_step_;
  std::optional<LossApart> diverged_first_;
};

}  // namespace egt
