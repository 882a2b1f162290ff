#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "egt/core/record.hpp"

/// The records of a run, sorted by what they tell: what the verdict and the result are made of. Pure
/// functions; they keep pointers into the records. Nothing depends on the order in which records of different
/// ranks come; those of one rank of a run of several parts are in their order.
namespace egt {

/// Does the record count for good? Of the others only the last progress does, and the end.
bool is_lasting(RecordKind kind);

/// What is left of a rank's records of one part of the run.
struct RankRecords {
  const Record* start = nullptr;
  const Record* progress = nullptr;  ///< the last
  const Record* end = nullptr;
  const Record* late_stop = nullptr;

  /// Its end, else its last progress; null: it left neither.
  const Record* last() const { return end ? end : progress; }
  const Json& start_body() const;  ///< null where there is none
  const Json& last_body() const;   ///< likewise
};
using ByRank = std::map<int, RankRecords>;
/// The start body that speaks for the run: the lowest rank's that has one; else null.
const Json& first_start(const ByRank& ranks);

/// A run is one part, and one more each time that it was resumed: the parts that left records, in order.
/// Records before a rank's start belong to the part before, if there is one.
std::vector<ByRank> parts_of(const std::vector<Record>& records);

/// Why the records are not all records of one run of `size` ranks, one line each: each part needs a start
/// record of every rank, and all of them the same run id. `is_over`: also the last part; else a rank that
/// left nothing of it is a lost rank. Journals of earlier versions, without run ids, are compared by the
/// rest.
std::vector<std::string> missing_evidence(const std::vector<ByRank>& parts, int size, bool is_over);

/// Those of that kind, by time and then by the rank that emitted them.
std::vector<const Record*> records_of(const std::vector<Record>& records, RecordKind kind);

/// The faults that hold: of one incident none that is provisional where another is not, and one a rank; those
/// of no incident are all there.
std::vector<const Record*> faults_of(const std::vector<Record>& records);
/// One record a lost rank, the first that tells of it: every survivor tells of all that were lost.
std::vector<const Record*> losses_of(const std::vector<Record>& records);
/// One a finding: the first of its kind, rank and `where`.
std::vector<const Record*> findings_of(const std::vector<Record>& records);
/// One a restart, of all that its ranks tell.
std::vector<const Record*> restarts_of(const std::vector<Record>& records);

/// Two sets of ranks that each called the other one silent: both ran on, so it was the network between them
/// that failed.
struct NetworkPartition {
  std::vector<const Record*> losses;  ///< that told it
  std::string text;  ///< "ranks 0, 1 on node1 and rank 2 on node2 did not hear each other for 3.0 s: .."
};

/// `losses`: records of the kind loss, one for each lost rank, each of the rank that told it.
std::optional<NetworkPartition> find_partition(const std::vector<const Record*>& losses);

}  // namespace egt
