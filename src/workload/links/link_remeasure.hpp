#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "workload/links/link_judgement.hpp"
#include "workload/links/link_results.hpp"

/// A pair is measured again before it is reported as slow, because a one-time disturbance does not recur.
/// Pure functions of data that all ranks have, so that all choose alike.
namespace egt {

/// Max measurements of a pair by one method; their median counts.
constexpr int max_looks = 3;

/// Every measured direction by the faster method. `source` is the index of that measurement in `pairs`.
std::vector<LinkFigure> directions_of(const std::vector<PairResult>& pairs,
                                      const std::vector<LinkEndpoint>& ends);

/// Chooses among the pairs that look slow and may be measured again: fewest measurements first, then the
/// slowest. Returns std::nullopt if no pair is left.
std::optional<std::size_t> pair_to_measure_again(const std::vector<PairResult>& pairs,
                                                 const std::vector<LinkEndpoint>& ends, double warn_below);

/// Adds `look`, another measurement of the same pair. The one with the median rate of the slower direction
/// counts; of two, the lower. A disturbance of one measurement in three is therefore no finding, but slowness
/// in two of three is. One-way min and max are over all measurements. A measurement that failed settles the
/// pair.
void add_look(PairResult& kept, const PairResult& look);

}  // namespace egt
