#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "egt/core/record.hpp"
#include "egt/core/types.hpp"
#include "egt/ranks/control.hpp"
#include "model/mlp_config.hpp"

namespace egt {

/// This rank's samples if `global` are split evenly; the first ranks get one more.
BatchShare share_batch(std::int64_t global, int rank, int size);

/// Samples per step for each rank that minimize the slowest pass. A sample costs rank r `ms_per_sample[r]` >
/// 0. Each rank gets at least one `grain` and at most `most[r]`; the sum of `most` must suffice. All but one
/// share are multiples of the grain. Equal inputs give equal results on every rank.
std::vector<std::int64_t> balanced_samples(std::int64_t global, const std::vector<double>& ms_per_sample,
                                           std::int64_t grain, const std::vector<std::int64_t>& most);

/// Assigns the samples of a step to ranks: even, or speed-weighted if devices differ. Weights are the pass
/// times of the previous epoch, per precision. All ranks pass the same values, so they split the batch
/// identically. Main thread only.
class BatchBalance {
 public:
  /// `even`: this rank's initial share. `most`: samples that fit each rank's memory; empty: shares stay even.
  /// `unit`: granularity of shares, of which all even shares are multiples.
  BatchBalance(const BatchShare& even, const RankPlace& place, std::vector<std::int64_t> most,
               std::int64_t unit = 1);

  /// Share of any rank in any step up to MlpTrainer::depth after the last retired one.
  BatchShare share_of(std::int64_t step, int rank) const;
  /// Samples that fit a rank's memory.
  std::int64_t max_samples(int rank) const;
  /// Adds the times of a retired step: StepResult::all_compute_ms.
  void add(std::int64_t step, Precision precision, const std::vector<double>& all_compute_ms);
  /// The last step of an epoch, `step`, was retired; the next epoch has precision `next`.
  void end_epoch(std::int64_t step, Precision next);
  /// After a restart that continues with `next_step`: shares are even again from there on, because ranks may
  /// differ in the last decision that they reached.
  void restart(std::int64_t next_step);
  /// {batch: this rank's current samples per step, batch_changes, balance_gain: time of the slowest passes
  /// with even shares over their actual time, assuming pass time proportional to samples. Null: shares stay
  /// even, or nothing was measured}.
  Json figures() const;

 private:
  struct Change {
    std::int64_t from = 0;              ///< first step
    std::vector<std::int64_t> samples;  ///< per rank
  };

  /// Pass times of one precision.
  struct Times {
    std::vector<double> sums_ms;  ///< per rank, scaled to even shares, over `steps` since the last mean
    std::int64_t steps = 0;
    std::vector<double> ms_per_sample;  ///< last mean per rank; empty: none yet
  };

  /// Per rank, after the last change.
  const std::vector<std::int64_t>& samples() const { return changes_.back().samples; }

  const RankPlace place_;
  const std::int64_t global_;
  std::vector<std::int64_t> most_;
  const std::int64_t unit_;
  std::vector<std::int64_t> even_;  ///< per rank
  std::vector<Change> changes_;     ///< by step, starting with the even share
  std::int64_t epoch_ = 0;          ///< its first step
  std::map<Precision, Times> times_;
  double even_ms_ = 0, balanced_ms_ = 0;  ///< of the slowest passes, over all steps
};

}  // namespace egt
