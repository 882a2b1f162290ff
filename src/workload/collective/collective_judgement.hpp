#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "egt/core/pattern.hpp"
#include "egt/core/record.hpp"

/// Locates the fault behind a wrong known-answer collective: pure functions of what all ranks received.
///
/// The correct result is known, so a rank that received another one is wrong without a vote. The set of wrong
/// receivers locates the cause. For results that all ranks must receive identically (all-reduce, broadcast,
/// each rank's block of the all-gather), the result is wrong
/// - on one rank or a minority, with different errors: each of them, `majority`, as its peers hold the right
///   one;
/// - on all ranks identically, broadcast or block: the root or the block's rank, `certain`: its own copy is
///   wrong;
/// - on all ranks identically, all-reduce, only in the bits of one source: that source, `certain`. With one
///   wrong element only `majority`, because a bit flip in the sum looks the same;
/// - identically on all but the root or the block's rank: `ambiguous`. Either that rank sent wrong data, or
///   the first rank on the path of a tree or ring forwarded it wrong;
/// - otherwise: `ambiguous`, with all these ranks as suspects.
///
/// In a reduce-scatter each rank owns a slice that no other rank receives. So every rank also checks its send
/// buffer, which is still intact:
/// - wrong send buffer: that rank, `certain`. It explains wrong slices, except those that are wrong only in
///   the bits of another source;
/// - several slices wrong in the bits of one source: that source, `majority`. Its send buffer is right;
/// - one slice or a minority: each owner, `majority`, because all send buffers are right;
/// - otherwise: `ambiguous`, with the owners as suspects.
namespace egt {

/// In the order of an injection's `layer`.
enum class CollectiveKind { all_reduce, broadcast, reduce_scatter, all_gather, all_to_all };
constexpr int collective_kinds = 4;  ///< per round: all but the all-to-all
/// "all-reduce"
const char* to_string(CollectiveKind kind);
/// Ratio of bus to algorithm bandwidth, as defined by nccl-tests (its doc/PERFORMANCE.md).
double bus_factor(CollectiveKind kind, int ranks);

/// Roles of the ranks in a round, a pure function of its number, so equal on all ranks. Up to four ranks
/// contribute to the reductions, each in its own bit field (pattern.hpp). With more ranks the contributors
/// rotate from round to round; the other ranks contribute 0.
struct CollectiveRound {
  std::uint64_t number = 0;
  int size = 1;             ///< ranks
  std::uint64_t slice = 1;  ///< elements of a rank's reduce-scatter slice and all-gather block

  int fields() const { return std::min(size, static_cast<int>(contribution_fields)); }
  int root() const { return static_cast<int>(number % ranks()); }
  /// From 0; if not below `fields()`, the rank contributes 0.
  int field_of(int rank) const { return (rank - first() + size) % size; }
  int source_of(int field) const { return (first() + field) % size; }
  bool contributes(int rank) const { return field_of(rank) < fields(); }

 private:
  std::uint64_t ranks() const { return static_cast<std::uint64_t>(size); }
  int first() const { return static_cast<int>(number % ranks() * contribution_fields % ranks()); }
};

/// Mismatches that one rank found in a round.
struct RankReports {
  explicit RankReports(int size) : blocks(static_cast<std::size_t>(size), Mismatches::none()) {}

  Mismatches all_reduce = Mismatches::none();
  Mismatches broadcast = Mismatches::none();
  Mismatches reduce_scatter = Mismatches::none();  ///< of its slice
  Mismatches put_in = Mismatches::none();          ///< of its reduce-scatter send buffer
  std::vector<Mismatches> blocks;                  ///< of the all-gather, in rank order
};

/// One wrong collective and the blamed rank or suspects.
struct CollectiveFinding {
  enum class Role { receiver, source, unknown };

  CollectiveKind kind = CollectiveKind::all_reduce;
  Role role = Role::unknown;
  int rank = -1;  ///< in that role; blamed unless `blame` is ambiguous
  Blame blame = Blame::ambiguous;
  std::vector<int> suspects = {};  ///< if ambiguous
  std::string where = {};          ///< "element 77 of the all-reduce, as received by rank 1"
  Mismatches::Sample sample{};     ///< lowest sample; index from the start of the receive buffer
  std::uint64_t count = 0;         ///< number of wrong elements
  bool in_own_copy = false;        ///< in this rank's copy of the reports; the other ranks' may be right
};

/// `reports`: of all ranks, in rank order. At most one finding per collective and rank; empty: no error.
std::vector<CollectiveFinding> judge_round(const CollectiveRound& round, std::vector<RankReports> reports);

/// Fills a fault from a finding; rank is -1 if ambiguous. The caller adds the rank's hostname and device.
void show_finding(Fault& fault, const CollectiveFinding& finding);

/// Filters for new incidents. A persistent fault is one incident. It lasts until the same rank had the same
/// role again (with many ranks, not every round has the same root or sources) and everything was right.
class CollectiveIncidents {
 public:
  /// Findings of this round that begin an incident.
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
