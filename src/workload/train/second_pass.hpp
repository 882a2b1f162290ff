#pragma once

#include <cstdint>
#include <vector>

#include "model/mlp_trainer.hpp"
#include "workload/common/digest_vote.hpp"

namespace egt {

/// Of each rank, by one step.
using PassDigests = std::vector<MlpTrainer::PassDigests>;

/// Rank `second` computed the batch of rank `first` a second time, and it came out otherwise. Equal ranks:
/// its own.
struct PassDifference {
  int first = 0, second = 0;
  std::size_t question = 0;  ///< the first digest that differs
  std::uint64_t count = 1;   ///< that differ
};

/// `second_of[r]`: whose batch rank r computed a second time.
std::vector<PassDifference> pass_differences(const PassDigests& step, const std::vector<int>& second_of);

/// Are the weights of `repeated` those of the step's first time? Else every rank's pass is another one.
/// Empty: it was not repeated.
bool is_repetition(const PassDigests& step, const PassDigests& repeated);

/// Who is wrong where passes differ, one Dissent each, and suspects in one of their own. `repeated`: the same
/// step from the same state, computed once more; empty: it was not.
/// 1. A rank that computed its own batch twice, with two results, is wrong.
/// 2. A rank whose digests of a pass are not those of its repetition is wrong: `certain`.
/// 3. Where repetitions are alike, or of other weights: a rank that differs from both of its neighbours in a
///    ring of three or more is wrong (`majority`).
/// 4. Else both ranks are suspects.
std::vector<Dissent> decide_passes(const PassDigests& step, const PassDigests& repeated,
                                   const std::vector<int>& second_of);

}  // namespace egt
