#pragma once

#include <cstdint>
#include <vector>

#include "model/mlp_trainer.hpp"
#include "workload/common/digest_vote.hpp"

namespace egt {

/// Digests of one step, per rank.
using PassDigests = std::vector<MlpTrainer::PassDigests>;

/// Rank `second` recomputed the batch of rank `first` with a different result. Equal ranks: its own batch.
struct PassDifference {
  int first = 0, second = 0;
  std::size_t question = 0;  ///< first differing digest
  std::uint64_t count = 1;   ///< number of differing digests
};

/// `second_of[r]`: rank whose batch rank r recomputed.
std::vector<PassDifference> pass_differences(const PassDigests& step, const std::vector<int>& second_of);

/// True if `repeated` used the same weights as the step's first execution. Otherwise every rank's pass
/// differs. Empty `repeated`: the step was not repeated.
bool is_repetition(const PassDigests& step, const PassDigests& repeated);

/// Finds the faulty ranks if passes differ: one Mismatch each, and one for suspects. `repeated`: the same
/// step from the same state, computed again; empty: not repeated.
/// 1. A rank that computed its own batch twice, with different results, is wrong.
/// 2. A rank whose pass digests differ from those of its repetition is wrong: `certain`.
/// 3. If the repetitions are equal, or used other weights: a rank that differs from both neighbours in a ring
///    of three or more is wrong (`majority`).
/// 4. Otherwise both ranks are suspects.
std::vector<Mismatch> decide_passes(const PassDigests& step, const PassDigests& repeated,
                                    const std::vector<int>& second_of);

}  // namespace egt
