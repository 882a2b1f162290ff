#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "workload/links/link_judgement.hpp"
#include "workload/links/link_results.hpp"

/// Before a pair is called slow it is measured again: what came in between once does not come each time. Pure
/// functions of what all ranks know, so that they choose alike.
namespace egt {

/// Measurements of a pair by one method, of which the median counts.
constexpr int most_looks = 3;

/// Every measured direction by the method that carried more; `source` is that one's place in `pairs`.
std::vector<LinkFigure> directions_of(const std::vector<PairResult>& pairs,
                                      const std::vector<LinkEndpoint>& ends);

/// Of the pairs that look slow and may be measured again the one that was measured least often, and of such
/// the slowest; none: all is well, or known.
std::optional<std::size_t> pair_to_measure_again(const std::vector<PairResult>& pairs,
                                                 const std::vector<LinkEndpoint>& ends, double warn_below);

/// Adds `look`, another measurement of the same pair: the one with the median rate of the slower direction
/// counts, of two the lower. So what disturbed one of three is no finding, and what slows two of three is.
/// The extremes of one way are those of all. One that did not come through settles the pair.
void add_look(PairResult& kept, const PairResult& look);

}  // namespace egt
