#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "workload/links/collective_sweep.hpp"
#include "workload/links/link_host_copies.hpp"
#include "workload/links/link_pair.hpp"
#include "workload/links/link_plan.hpp"
#include "workload/links/link_type.hpp"

/// Outcomes of the trials, and their entries in the result.
namespace egt {

/// Result of a pair by one method; the same on all ranks.
struct PairResult {
  enum class State { not_made, done, impossible, lost };
  State state = State::not_made;
  int a = 0, b = 0;  ///< the lower rank first
  LinkMethod method = LinkMethod::exchange;
  PairSide side_a, side_b;  ///< if done; of several measurements, the median one
  std::string why;          ///< if impossible (then known to the pair only) or lost
  /// One measurement of the pair.
  struct Look {
    PairSide side_a, side_b;
  };
  std::vector<Look> others;  ///< further successful measurements
  int looks() const { return 1 + static_cast<int>(others.size()); }
  bool is_settled = false;  ///< a repeated measurement failed: no more follow

  /// The side that timed the direction a to b, or b to a.
  const PairSide& side_of(bool from_a) const {
    return (method == LinkMethod::exchange) == from_a ? side_b : side_a;
  }
  LinkTiming both_ways() const { return longer_of(side_a.both_largest, side_b.both_largest); }
};

/// One round of disjoint pairs, all concurrent and both ways.
struct RoundResult {
  struct PairFigures {
    int a = 0, b = 0;
    std::uint64_t bytes = 0;  ///< 0: the pair was skipped
    LinkTiming both_ways;
  };
  bool is_made = false;
  std::string lost;  ///< why it failed; else empty
  int repeats = 0;
  std::vector<PairFigures> pairs;
};

struct HostResult {
  bool is_made = false;
  std::string lost;
  HostCopyOutcome outcome;
};

struct CollectiveResult {
  CollectiveKind collective = CollectiveKind::all_reduce;
  bool is_made = false;
  std::string lost;
  LinkCollectiveOutcome outcome;
};

/// "NCCL", "MPI" or "peer copies".
std::string method_name(LinkMethod method, bool is_gpu);

/// `slow`: the directions (from, to) of the pair that are below their limit by this method.
PartReport pair_report(const PairResult& result, const std::vector<LinkEndpoint>& ends,
                       const std::set<std::pair<int, int>>& slow = {});
/// `number` counts from 1.
PartReport round_report(const RoundResult& result, int number, bool is_gpu);
PartReport host_report(const HostResult& result, const LinkEndpoint& end);
PartReport collective_report(const CollectiveResult& result, int ranks);

}  // namespace egt
