#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "egt/core/record.hpp"
#include "egt/core/types.hpp"
#include "egt/ranks/control.hpp"
#include "model/mlp_config.hpp"

namespace egt {

/// The samples of this rank when `global` are shared as evenly as can be, the first ranks taking one more.
BatchShare share_batch(std::int64_t global, int rank, int size);

/// How many samples of a step each rank takes so that the slowest pass is as short as can be, where a sample
/// takes rank r `ms_per_sample[r]`, above 0; each at least one `grain` and at most `most[r]`, which together
/// are enough. In whole grains but for one of them. The same figures give the same samples on every rank.
std::vector<std::int64_t> balanced_samples(std::int64_t global, const std::vector<double>& ms_per_sample,
                                           std::int64_t grain, const std::vector<std::int64_t>& most);

/// Which samples of a step are this rank's: an even share or, where devices are unequal, one by what their
/// passes took in the epoch before, measured again in every epoch, in each precision by itself. All ranks
/// make the same calls with the same figures, so they cut the batch alike. Main thread only.
class BatchBalance {
 public:
  /// `even`: this rank's share at first. `most`: the samples that each rank has memory for; empty: shares
  /// stay even. `unit`: what shares are multiples of, as all even ones then are.
  BatchBalance(const BatchShare& even, const RankPlace& place, std::vector<std::int64_t> most,
               std::int64_t unit = 1);

  /// Of any step up to MlpTrainer::depth behind the last one retired, and any rank.
  BatchShare share_of(std::int64_t step, int rank) const;
  /// The samples that a rank has memory for.
  std::int64_t most_samples(int rank) const;
  /// The figures of a step that was retired: StepResult::all_compute_ms.
  void add(std::int64_t step, Precision precision, const std::vector<double>& all_compute_ms);
  /// `step`, the last one of an epoch, was retired; the next one is in `next`.
  void end_epoch(std::int64_t step, Precision next);
  /// After a restart that goes on with `next_step`: shares are even again from there on, since not every rank
  /// had come as far as the last decision.
  void restart(std::int64_t next_step);
  /// {batch: this rank's samples a step by now, batch_changes, balance_gain: what the slowest passes would
  /// have taken of even shares, over what they took, a pass's time being in proportion to its samples; null:
  /// shares stay even, or nothing was measured}.
  Json figures() const;

 private:
  struct Change {
    std::int64_t from = 0;              ///< step
    std::vector<std::int64_t> samples;  ///< of each rank
  };

  /// What passes of one precision take.
  struct Times {
    std::vector<double> sums_ms;  ///< of each rank, as of even shares, over `steps` since the last mean
    std::int64_t steps = 0;
    std::vector<double> ms_per_sample;  ///< the last mean of each rank; empty: none yet
  };

  void change(std::int64_t from, std::vector<std::int64_t> samples);

  const RankPlace place_;
  const std::int64_t global_;
  std::vector<std::int64_t> most_;
  const std::int64_t unit_;
  std::vector<std::int64_t> even_, samples_;  ///< of each rank: at first, and by the last change
  std::vector<Change> changes_;               ///< by step, the even share first
  std::int64_t epoch_ = 0;                    ///< its first step
  std::map<Precision, Times> times_;
  double even_ms_ = 0, balanced_ms_ = 0;  ///< of all steps, the slowest passes
};

}  // namespace egt
