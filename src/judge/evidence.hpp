#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "egt/core/record.hpp"

/// Sorts the records of a run as input for the verdict and the result. These pure functions keep pointers
/// into the records. The order of records from different ranks does not matter. The records of one rank must
/// be in order if the run has several parts.
namespace egt {

/// Whether all records of this record's kind are kept for the verdict. These are start, fault, finding, loss,
/// restart, injection and late-stop records, and notices with the counts of a reproducer. Otherwise only the
/// last progress record and the end record are kept.
bool is_lasting(const Record& record);

/// One rank's remaining records of one part of the run.
struct RankRecords {
  const Record* start = nullptr;
  const Record* progress = nullptr;  ///< the last one
  const Record* end = nullptr;
  const Record* late_stop = nullptr;

  /// The end record, else the last progress record; null if the rank left neither.
  const Record* last() const { return end ? end : progress; }
  const Json& start_body() const;  ///< null if there is no start record
  const Json& last_body() const;   ///< null if there is no such record
};
using ByRank = std::map<int, RankRecords>;
/// Body of the start record of the lowest rank that has one, to represent the run; null if no rank has one.
const Json& first_start(const ByRank& ranks);

/// A run has one part, and one more per resume. Returns the parts that left records, in order. Records before
/// a rank's start record belong to the previous part, if there is one.
std::vector<ByRank> parts_of(const std::vector<Record>& records);

/// Lines that state why the records are not the complete records of one run with `size` ranks; empty if they
/// are. Each part needs a start record of every rank, all with the same run id. If `is_over`, this includes
/// the last part. Otherwise a rank without records in the last part counts as lost, not as missing. Journals
/// of earlier versions have no run id, so only their other fields are compared.
std::vector<std::string> missing_evidence(const std::vector<ByRank>& parts, int size, bool is_over);

/// Records of one kind, sorted by time and then by emitting rank.
std::vector<const Record*> records_of(const std::vector<Record>& records, RecordKind kind);

/// The valid faults. Within an incident, a final fault replaces provisional ones, and one fault per rank is
/// kept. Faults without an incident are all kept.
std::vector<const Record*> faults_of(const std::vector<Record>& records);
/// The first record of each lost rank. Every surviving rank records all lost ranks.
std::vector<const Record*> losses_of(const std::vector<Record>& records);
/// The first record of each finding; kind, rank and `where` identify it.
std::vector<const Record*> findings_of(const std::vector<Record>& records);
/// One record per restart. Every rank records the same restart.
std::vector<const Record*> restarts_of(const std::vector<Record>& records);

/// Two sets of ranks that each reported the other as silent. Both continued, so the network between them
/// failed.
struct NetworkPartition {
  std::vector<const Record*> losses;  ///< the records that reported it
  std::string text;  ///< "ranks 0, 1 on node1 and rank 2 on node2 did not hear each other for 3.0 s: .."
};

/// `losses` has one loss record per lost rank, emitted by the rank that detected the loss.
std::optional<NetworkPartition> find_partition(const std::vector<const Record*>& losses);

}  // namespace egt
