#include "judge/evidence.hpp"

#include <algorithm>
#include <functional>
#include <set>
#include <string>
#include <tuple>

#include "egt/core/json_access.hpp"

namespace egt {
namespace {

const Json& body_of(const Record* record) {
  static const Json none;
  return record ? record->body : none;
}

int part_of_start(const Record& start) {
  return std::max(0, value_at<int>(start.body, "part").value_or(0));
}

/// The first of all that are alike.
template <typename Key>
std::vector<const Record*> distinct(std::vector<const Record*> records, const Key& key_of) {
  std::set<decltype(key_of(*records.front()))> seen;
  std::erase_if(records, [&](const Record* record) { return !seen.insert(key_of(*record)).second; });
  return records;
}

int rank_in(const Record& record) {
  return value_at<int>(record.body, "rank").value_or(-1);
}

/// The part of the run that each record of this kind belongs to: numbers (of checks, of restarts) begin anew
/// in each part, but its ranks start before all else.
std::map<const Record*, int> part_of_each(const std::vector<Record>& records, RecordKind kind) {
  std::map<const Record*, int> parts;
  std::map<int, int> current;
  for (const Record& record : records) {
    if (record.kind == RecordKind::start) current[record.rank] = part_of_start(record);
    if (record.kind == kind) parts[&record] = current[record.rank];
  }
  return parts;
}

}  // namespace

bool is_lasting(RecordKind kind) {
  return kind == RecordKind::start || kind == RecordKind::fault || kind == RecordKind::finding ||
         kind == RecordKind::loss || kind == RecordKind::restart || kind == RecordKind::injection;
}

const Json& first_start(const ByRank& ranks) {
  for (const auto& [number, rank] : ranks)
    if (rank.start) return rank.start_body();
  return RankRecords().start_body();
}

const Json& RankRecords::start_body() const {
  return body_of(start);
}
const Json& RankRecords::last_body() const {
  return body_of(last());
}

std::vector<ByRank> parts_of(const std::vector<Record>& records) {
  std::map<int, ByRank> parts;
  std::map<int, int> current;  // by rank: the part that its records belong to
  for (const Record& record : records)
    if (record.kind == RecordKind::start && !current.contains(record.rank))
      current[record.rank] = part_of_start(record);
  for (const Record& record : records) {
    if (record.kind == RecordKind::start) current[record.rank] = part_of_start(record);
    RankRecords& rank = parts[current[record.rank]][record.rank];
    if (record.kind == RecordKind::start) rank.start = &record;
    if (record.kind == RecordKind::end) rank.end = &record;
    const bool newer = !rank.progress || record.time >= rank.progress->time;
    if (record.kind == RecordKind::progress && newer) rank.progress = &record;
  }
  std::vector<ByRank> in_order;
  for (auto& [number, part] : parts) in_order.push_back(std::move(part));
  return in_order;
}

std::vector<const Record*> records_of(const std::vector<Record>& records, RecordKind kind) {
  std::vector<const Record*> found;
  for (const Record& record : records)
    if (record.kind == kind) found.push_back(&record);
  std::stable_sort(found.begin(), found.end(), [](const Record* a, const Record* b) {
    return std::tie(a->time, a->rank) < std::tie(b->time, b->rank);
  });
  return found;
}

std::vector<const Record*> faults_of(const std::vector<Record>& records) {
  const auto incident = [](const Record& record) { return text_at(record.body, "incident"); };
  const auto provisional = [](const Record& record) {
    return value_at<bool>(record.body, "provisional").value_or(false);
  };
  std::vector<const Record*> all = records_of(records, RecordKind::fault);
  const auto parts = part_of_each(records, RecordKind::fault);
  std::set<std::pair<int, std::string>> settled;
  for (const Record* record : all)
    if (!provisional(*record)) settled.emplace(parts.at(record), incident(*record));
  std::set<std::tuple<int, std::string, int>> told;
  std::erase_if(all, [&](const Record* record) {
    const int part = parts.at(record);
    const std::string name = incident(*record);
    if (name.empty()) return false;
    if (provisional(*record) && settled.contains({part, name})) return true;
    return !told.emplace(part, name, rank_in(*record)).second;
  });
  return all;
}

std::vector<const Record*> losses_of(const std::vector<Record>& records) {
  return distinct(records_of(records, RecordKind::loss), rank_in);
}

std::vector<const Record*> findings_of(const std::vector<Record>& records) {
  return distinct(records_of(records, RecordKind::finding), [](const Record& record) {
    return std::tuple(text_at(record.body, "kind"), rank_in(record), text_at(record.body, "where"));
  });
}

std::vector<const Record*> restarts_of(const std::vector<Record>& records) {
  const auto parts = part_of_each(records, RecordKind::restart);
  return distinct(records_of(records, RecordKind::restart), [&](const Record& record) {
    return std::pair(parts.at(&record), value_at<int>(record.body, "number").value_or(0));
  });
}

}  // namespace egt
