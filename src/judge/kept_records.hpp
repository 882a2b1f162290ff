#pragma once

#include <cstddef>
#include <map>
#include <vector>

#include "judge/evidence.hpp"

namespace egt {

/// Of all ranks' records, as they come, those that the verdict and the result are made of: the lasting ones,
/// the end of each rank, and the last progress of a rank that sent no end. Used by one thread at a time.
class KeptRecords {
 public:
  void add(const Record& record) {
    if (record.kind == RecordKind::progress) progress_[record.rank] = record;
    if (record.kind == RecordKind::end) ends_[record.rank] = record;
    if (is_lasting(record.kind)) lasting_.push_back(record);
  }
  std::size_t ended_ranks() const { return ends_.size(); }

  /// Appends them to `records`.
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
