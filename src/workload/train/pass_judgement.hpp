#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "egt/core/pattern.hpp"
#include "model/pass_comparison.hpp"
#include "workload/common/digest_vote.hpp"

/// Judges a step by the digests of its two passes and of its all-reduces. `repeated`: those of the same step,
/// computed again from the same state; empty: not repeated.
namespace egt {

/// Rank `second` recomputed the batch of rank `first` with a different result. Equal ranks: its own batch.
struct PassDifference {
  int first = 0, second = 0;
  Mismatch digests;  ///< expected: of `first`; actual: of `second`
};

/// `second_of[r]`: rank whose batch rank r recomputed.
std::vector<PassDifference> pass_differences(const PassDigests& step, const std::vector<int>& second_of);

/// Finds the faulty ranks if passes differ: one Mismatch each, and one for suspects.
/// 1. A rank that computed its own batch twice, with different results, is wrong.
/// 2. A rank whose pass digests differ from those of its repetition is wrong: `certain`.
/// 3. If the repetitions are equal, or used other weights: a rank that differs from both neighbours in a ring
///    of three or more is wrong (`majority`).
/// 4. Otherwise both ranks are suspects.
std::vector<Mismatch> decide_passes(const PassDigests& step, const PassDigests& repeated,
                                    const std::vector<int>& second_of);

/// A wrong all-reduce of one gradient bucket in a step.
struct WrongSum {
  std::size_t bucket = 0;
  /// The rank with the wrong result, or all ranks as suspects.
  Mismatch dissent;
  int checked_by = -1;                            ///< the rank whose slice contains `sample`
  std::optional<Mismatches::Sample> sample = {};  ///< first wrong element of that slice; none: not located
  std::uint64_t count = 0;                        ///< wrong elements in all slices
};

/// Each rank verified one slice of its own result. In addition, all ranks' results must be bit-identical.
/// 1. Three or more ranks with a majority result: a rank with another result is wrong (`majority`).
/// 2. Two ranks with different results, or one common result with a wrong slice: all ranks are suspects,
///    because each contributed to it, and so did the links between them.
std::vector<WrongSum> wrong_sums(const PassDigests& step);
/// Repeating the step from the same state gives all ranks the correct result. If only some suspects had it
/// before, the rest are wrong (`majority`).
void decide_sums(std::vector<WrongSum>& wrong, const PassDigests& step, const PassDigests& repeated);

}  // namespace egt
