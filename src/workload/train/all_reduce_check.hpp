#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "egt/core/pattern.hpp"
#include "workload/train/second_pass.hpp"

namespace egt {

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
/// before, the rest are wrong (`majority`). `repeated` is empty if the step was not repeated.
void decide_sums(std::vector<WrongSum>& wrong, const PassDigests& step, const PassDigests& repeated);

}  // namespace egt
