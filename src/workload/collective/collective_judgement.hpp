#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "egt/core/pattern.hpp"
#include "egt/core/record.hpp"

/// Who is to blame for a wrong known-answer collective: pure functions of what all ranks received.
///
/// The right answer is known, so a rank that received something else is wrong by itself, without a vote. Who
/// made it wrong follows from who received it. For what all ranks must receive alike (the all-reduce, the
/// broadcast, each rank's block of the all-gather), wrong
/// - on one rank, or on a minority, each in its own way: each of them, `certain`: it holds what its peers do
///   not;
/// - on all ranks alike, broadcast or block: the root or the block's rank, `certain`: its own copy is wrong;
/// - on all ranks alike, all-reduce, in the bits of one source: that source, `certain`; with one wrong
/// element
///   only `majority`, as a bit that flipped in the sum itself looks the same;
/// - on all but the root or the block's rank, alike: `ambiguous`: it sent it wrong, or the first rank on the
///   way of a tree or a ring passed it on wrong;
/// - otherwise: `ambiguous`, naming the ranks.
///
/// In a reduce-scatter each rank owns a slice that nobody else receives. So every rank also looks at what it
/// put in, which is still there afterwards:
/// - what a rank put in is wrong: that rank, `certain`; wrong slices are explained by it, but for those that
///   are wrong in the bits of another source alone;
/// - several slices are wrong in the bits of one source: that source, `majority`: it is right at its place;
/// - one slice, or a minority: each owner, `certain`: what was put in is right;
/// - otherwise: `ambiguous`, naming the owners.
namespace egt {

/// The order is that of an injection's `layer`.
enum class CollectiveKind { all_reduce, broadcast, reduce_scatter, all_gather, all_to_all };
constexpr int collective_kinds = 4;  ///< of a round: all but the all-to-all
/// "all-reduce"
const char* to_string(CollectiveKind kind);
/// Bus bandwidth over algorithm bandwidth, as nccl-tests defines them (doc/PERFORMANCE.md there).
double bus_factor(CollectiveKind kind, int ranks);

/// Who does what in a round: a pure function of its number, so the same on all ranks. Up to four ranks put
/// something into the sums, each in a field of bits of its own (pattern.hpp); with more ranks these four move
/// on from round to round, so that all have their turn; the others add 0.
struct CollectiveRound {
  std::uint64_t number = 0;
  int size = 1;             ///< ranks
  std::uint64_t slice = 1;  ///< elements of a rank's slice of the reduce-scatter, and of its all-gather block

  int fields() const { return std::min(size, static_cast<int>(contribution_fields)); }
  int root() const { return static_cast<int>(number % ranks()); }
  /// From 0; `fields()` and above: this rank adds 0.
  int field_of(int rank) const { return (rank - first() + size) % size; }
  int source_of(int field) const { return (first() + field) % size; }
  bool contributes(int rank) const { return field_of(rank) < fields(); }

 private:
  std::uint64_t ranks() const { return static_cast<std::uint64_t>(size); }
  int first() const { return static_cast<int>(number % ranks() * contribution_fields % ranks()); }
};

/// What one rank found in a round.
struct RankReports {
  explicit RankReports(int size) : blocks(static_cast<std::size_t>(size), Mismatches::none()) {}

  Mismatches all_reduce = Mismatches::none();
  Mismatches broadcast = Mismatches::none();
  Mismatches reduce_scatter = Mismatches::none();  ///< of its slice
  Mismatches put_in = Mismatches::none();          ///< of what it had put into the reduce-scatter
  std::vector<Mismatches> blocks;                  ///< of the all-gather, in rank order
};

/// One wrong collective and who is to blame.
struct CollectiveFinding {
  enum class Role { receiver, source, unknown };

  CollectiveKind kind = CollectiveKind::all_reduce;
  Role role = Role::unknown;
  int rank = -1;  ///< in that role; to blame, unless `blame` is ambiguous
  Blame blame = Blame::ambiguous;
  std::vector<int> suspects = {};  ///< where ambiguous
  std::string where = {};          ///< "element 77 of the all-reduce, as received by rank 1"
  Mismatches::Sample sample{};     ///< the lowest; index from the start of what was received
  std::uint64_t count = 0;         ///< elements that differ
};

/// `reports`: of all ranks, in rank order. At most one finding a collective and rank; none: all is right.
std::vector<CollectiveFinding> judge_round(const CollectiveRound& round, std::vector<RankReports> reports);

/// Puts what was found and who is to blame into a fault: rank -1 where that is ambiguous. The host and device
/// of the rank are the caller's to add.
void show_finding(Fault& fault, const CollectiveFinding& finding);

/// Tells what is new: a fault that persists is one incident, which lasts until the same rank was in the same
/// role again (a root, a source: with many ranks not in every round) and all was right.
class CollectiveIncidents {
 public:
  /// Those of `found` in this round that begin an incident.
  std::vector<CollectiveFinding> begin(const CollectiveRound& round,
                                       const std::vector<CollectiveFinding>& found);

 private:
  struct Incident {
    CollectiveKind kind;
    CollectiveFinding::Role role;
    int rank;
    bool operator==(const Incident&) const = default;
  };
  static bool had_its_chance(const Incident& incident, const CollectiveRound& round);

  std::vector<Incident> open_;
};

}  // namespace egt
