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

/// Every rank's own losses of the steps since the proven state, to be held against those of a repetition.
/// Where checks are so far apart, or fail for so long, that these are too many, none are kept: a part of them
/// would not show whose came first. One rank alone keeps none. Not thread-safe.
class LossHistory {
 public:
  static constexpr std::size_t most_losses = std::size_t{1} << 22;  ///< of all ranks: 16 MiB, twice

  /// Steps come without a gap. `own_losses`: by rank.
  void keep(std::int64_t step, const std::vector<float>& own_losses);
  /// The state that repetitions begin with is another.
  void clear();
  /// Since then.
  bool too_many() const { return too_many_; }
  /// The step behind the last one kept; 0: none is.
  std::int64_t end() const;
  /// Forgets `end` and the steps behind it; `too_many`: all.
  void cut(std::int64_t end, bool too_many);
  /// The first step whose loss came out otherwise when it was repeated; none: not known, as too many came.
  /// Where the repetition left all ranks alike, training goes on from it: it takes the place of what is kept,
  /// but only when a later step is repeated, as a restart may have this one repeated and compared once more.
  std::optional<Deviation> compare(const Repetition& repetition);

 private:
  /// Of steps that were repeated.
  struct Repeated {
    std::int64_t first_step = 0;
    std::vector<std::vector<float>> losses;  ///< by step, then by rank
    std::int64_t end() const { return first_step + static_cast<std::int64_t>(losses.size()); }
  };

  bool has(std::int64_t step) const { return step >= first_step_ && step < end(); }
  std::size_t index(std::int64_t step) const { return static_cast<std::size_t>(step - first_step_) * ranks_; }
  void replace(const Repeated& repeated);

  std::deque<float> losses_;  ///< by step, then by rank
  Repeated replacement_;      ///< to come
  std::int64_t first_step_ = 0;
  std::size_t ranks_ = 0;
  bool too_many_ = false;
};

/// A rank whose own loss left the others'.
struct LossApart {
  int rank = -1;
  std::int64_t step = -1;
};
/// The first one, of the repeated steps up to `last`: its loss is not finite while the others' are, or is ten
/// times as large as all of theirs. Equal weights and inputs of one distribution give losses that are closer.
std::optional<LossApart> first_loss_apart(const Repetition& repetition, std::int64_t last);

/// Watches that the loss stays finite. The first one that is not is open until its step is repeated: that
/// separates a loss that a device made infinite, which is reported as a fault, from training that diverges.
/// All ranks make the same calls in the same order, and get the same answers. Main thread only.
class LossWatch {
 public:
  /// Both outlive the watch.
  LossWatch(Environment& environment, FaultReporter& reporter)
      : environment_(environment), reporter_(reporter) {}

  /// Step `step` is over.
  void note(std::int64_t step, const StepResult& result);
  /// The step whose loss is open: a check that goes back before it is wanted at once.
  std::optional<std::int64_t> open_step() const;
  /// The same steps from the same state, in check number `check`: where the loss is finite now, a device or a
  /// transfer was wrong before; where it is not, but comes from states that are not the same on all ranks, it
  /// is so still. `explained`: something else was found wrong that may have made it so. Was a fault reported?
  bool judge(const Repetition& repetition, bool explained, std::uint64_t check);
  /// A restart: training goes back, and a loss that was open on some ranks only stays unexamined.
  void give_up();

  /// The first step whose loss was not finite, and was so again with nothing else wrong.
  std::optional<std::int64_t> diverged_step() const { return diverged_step_; }
  /// The rank whose own loss diverged before the others'; none: no single one.
  std::optional<LossApart> diverged_first() const { return diverged_first_; }
  /// A step whose loss was not finite, and that was not repeated, or not yet.
  std::optional<std::int64_t> unexamined_step() const { return open_ ? open_->step : unexamined_step_; }

 private:
  struct Nonfinite {
    std::int64_t step = -1;
    std::vector<int> ranks;  ///< whose own loss was not finite
  };

  void tell(const Nonfinite& loss, std::uint64_t check);

  Environment& environment_;
  FaultReporter& reporter_;
  std::optional<Nonfinite> open_;
  bool is_finite_ = true;
  bool diverges_ = false;  ///< since the last restart: nothing more is opened
  std::optional<std::int64_t> diverged_step_, unexamined_step_;
  std::optional<LossApart> diverged_first_;
};

}  // namespace egt
