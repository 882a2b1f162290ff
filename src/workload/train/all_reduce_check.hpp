#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "egt/core/pattern.hpp"
#include "workload/train/second_pass.hpp"

namespace egt {

/// A wrong all-reduce of one bucket of a step's gradient.
struct WrongSum {
  std::size_t bucket = 0;
  /// Which rank got a wrong result, or all ranks as suspects.
  Dissent dissent;
  int checked_by = -1;  ///< the rank whose slice has `sample`
  std::optional<Mismatches::Sample> sample =
      {};                   ///< the first wrong element of that slice; none: not located
  std::uint64_t count = 0;  ///< wrong elements of all slices
};

/// Each rank checked one slice of its own result, and all ranks' results must be the same bits.
/// 1. Three or more ranks, and most have one result: a rank with another got it wrong (`majority`).
/// 2. Two ranks with two results, or one result with a wrong slice: all ranks are suspects, since each had a
///    part in it, and so had the links between them.
std::vector<WrongSum> wrong_sums(const PassDigests& step);
/// The same step, repeated from the same state, gives all ranks one right result. Where only some of the
/// suspects had it the first time, the others are wrong (`majority`). `repeated`: empty: it was not.
void decide_sums(std::vector<WrongSum>& wrong, const PassDigests& step, const PassDigests& repeated);

}  // namespace egt
