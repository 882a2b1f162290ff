#pragma once

#include <cstddef>
#include <map>
#include <vector>

#include "judge/evidence.hpp"

namespace egt {

/// Filters the records of all ranks down to those that the verdict and the result need. It keeps the lasting
/// records, each rank's end record, and the last progress record of ranks without one. Used by one thread at
/// a time.
class KeptRecords {
 public:
  void add(const Record& record) {
    if (record.kind == RecordKind::progress) progress_[record.rank] = record;
    if (record.kind == RecordKind::end) ends_[record.rank] = record;
    if (is_lasting(record)) lasting_.push_back(record);
  }
  std::size_t ended_ranks() const { return ends_.size(); }

  void append_to(std::vector<Record>& records) const {
    records.insert(records.end(), lasting_.begin(), lasting_.end());
    for (const auto& [rank, record] : progress_)
      if (!ends_.contains(rank)) records.push_back(record);
    for (const auto& [rank, record] : ends_) records.push_back(record);
  }

 private:
  std::vector<Record> lasting_;
  std::map<int, Record> progress_, ends_;
};

}  // namespace egt
