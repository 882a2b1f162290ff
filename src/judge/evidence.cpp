#include "judge/evidence.hpp"

#include <algorithm>
#include <functional>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "egt/core/json_access.hpp"
#include "judge/record_schema.hpp"

namespace egt {
namespace {

const Json& body_of(const Record* record) {
  static const Json none;
  return record ? record->body : none;
}

int part_of_start(const Record& start) {
  return std::max(0, value_at<int>(start.body, "part").value_or(0));
}

/// Keeps the first record of each key.
template <typename Key>
std::vector<const Record*> distinct(std::vector<const Record*> records, const Key& key_of) {
  std::set<decltype(key_of(*records.front()))> seen;
  std::erase_if(records, [&](const Record* record) { return !seen.insert(key_of(*record)).second; });
  return records;
}

int rank_in(const Record& record) {
  return value_at<int>(record.body, "rank").value_or(-1);
}

/// Number of the run's part (one more per resume) that each record belongs to. Check and restart numbers
/// start again in each part.
std::map<const Record*, int> part_of_each(const std::vector<Record>& records) {
  std::map<int, int> current;  // by rank
  for (const Record& record : records)
    if (record.kind == RecordKind::start) current.try_emplace(record.rank, part_of_start(record));
  std::map<const Record*, int> parts;
  for (const Record& record : records) {
    if (record.kind == RecordKind::start) current[record.rank] = part_of_start(record);
    parts[&record] = current[record.rank];
  }
  return parts;
}

struct Sides {
  std::set<int> here, there;
};

/// Assigns ranks to the two sides of a network partition, starting from the first loss. A rank and the rank
/// it reports as lost are on opposite sides.
Sides sides_of(const std::vector<const Record*>& losses) {
  Sides sides{.here = {losses.front()->rank}, .there = {}};
  for (std::size_t known = 0; known != sides.here.size() + sides.there.size();) {
    known = sides.here.size() + sides.there.size();
    for (const Record* loss : losses) {
      const int lost = rank_in(*loss);
      const bool from_there = sides.there.contains(loss->rank) || sides.here.contains(lost);
      const bool from_here = sides.here.contains(loss->rank) || sides.there.contains(lost);
      if (from_here) sides.here.insert(loss->rank), sides.there.insert(lost);
      if (from_there) sides.there.insert(loss->rank), sides.here.insert(lost);
    }
  }
  return sides;
}

/// "ranks 0, 1 on node1", for the ranks that were reported lost.
std::string name_side(const std::set<int>& side, const std::vector<const Record*>& losses) {
  std::set<int> ranks;
  std::set<std::string> hosts;
  for (const Record* loss : losses)
    if (side.contains(rank_in(*loss))) {
      ranks.insert(rank_in(*loss));
      hosts.insert(text_at(loss->body, "hostname"));
    }
  return fmt::format("rank{} {} on {}", ranks.size() == 1 ? "" : "s", fmt::join(ranks, ", "),
                     fmt::join(hosts, ", "));
}

std::size_t number_of(const ByRank& part) {
  return value_at<std::size_t>(first_start(part), "part").value_or(0);
}

/// Reports ranks without a start record: their missing journal may have contained a fault.
void find_missing_starts(const std::vector<ByRank>& parts, int size, bool is_over,
                         std::vector<std::string>& problems) {
  for (const ByRank& part : parts)
    for (int number = 0; number < size; ++number) {
      const auto rank = part.find(number);
      const bool is_known = rank != part.end() && rank->second.last();
      if (rank != part.end() && rank->second.start) continue;
      if (&part == &parts.back() && !is_known && !is_over) continue;
      problems.push_back(fmt::format("rank {} left no {} of part {}", number,
                                     is_known ? "start record" : "record", number_of(part) + 1));
    }
  const std::size_t expected = parts.empty() ? 0 : number_of(parts.back()) + 1;
  if (parts.size() < expected)
    problems.push_back(
        fmt::format("{} of {} parts of the run left no record", expected - parts.size(), expected));
}

/// An orderly run ends on all ranks. If one rank has an end record and another has none, the other rank's
/// last records are missing. Ranks step in lockstep, so records that end seconds and steps before a peer's
/// are incomplete too.
void find_lost_ends(const ByRank& part, std::vector<std::string>& problems) {
  constexpr double max_seconds = 3;  // progress records follow each second, or each longer step
  constexpr std::int64_t max_steps = 8;
  const auto elapsed = [](const RankRecords& rank) {
    return value_at<double>(rank.last_body(), "elapsed_seconds").value_or(0);
  };
  const auto steps = [](const RankRecords& rank) {
    return value_at<std::int64_t>(rank.last_body(), "steps").value_or(0);
  };
  const auto last = std::max_element(part.begin(), part.end(), [&](const auto& a, const auto& b) {
    return elapsed(a.second) < elapsed(b.second);
  });
  const auto ended = std::find_if(part.begin(), part.end(), [](const auto& one) {
    const std::string reason = one.second.end ? text_at(one.second.end->body, "reason") : "error";
    return reason != "error" && reason != "peer lost";
  });
  for (const auto& [number, rank] : part)
    if (!rank.end && ended != part.end())
      problems.push_back(fmt::format("rank {} left no end record of part {}, but rank {} did", number,
                                     number_of(part) + 1, ended->first));
    else if (!rank.end && elapsed(last->second) - elapsed(rank) > max_seconds &&
             steps(last->second) - steps(rank) > max_steps)
      problems.push_back(
          fmt::format("rank {} left no record of part {} after step {}, but rank {} reached step {}", number,
                      number_of(part) + 1, steps(rank), last->first, steps(last->second)));
}

/// Reports start records of another run. One run has one run id, version, command and size. Its options may
/// change when it is resumed.
void find_foreign_starts(const std::vector<ByRank>& parts, std::vector<std::string>& problems) {
  const Record* first = nullptr;
  for (const ByRank& part : parts) {
    const Record* first_of_part = nullptr;
    for (const auto& [number, rank] : part) {
      if (!rank.start) continue;
      if (!first) first = rank.start;
      if (!first_of_part) first_of_part = rank.start;
      const auto is_same = [&, own = rank.start, rank = number](const Record* other, const char* field,
                                                                const char* what) {
        // Compared as text, since invalid UTF-8 in records from other ranks was replaced.
        if (one_line(member(own->body, field)) == one_line(member(other->body, field))) return true;
        problems.push_back(fmt::format("the journals of ranks {} and {} are of different runs: different {}",
                                       other->rank, rank, what));
        return false;
      };
      static_cast<void>(is_same(first, "run_id", "run ids") &&
                        is_same(first, "program_version", "program versions") &&
                        is_same(first, "command", "commands") && is_same(first, "size", "counts of ranks") &&
                        is_same(first_of_part, "options", "options"));
    }
  }
}

}  // namespace

std::vector<std::string> missing_evidence(const std::vector<ByRank>& parts, int size, bool is_over) {
  std::vector<std::string> problems;
  find_missing_starts(parts, size, is_over, problems);
  find_foreign_starts(parts, problems);
  for (const ByRank& part : parts)
    if (is_over || &part != &parts.back()) find_lost_ends(part, problems);
  return problems;
}

bool is_lasting(const Record& record) {
  const RecordKind kind = record.kind;
  if (kind == RecordKind::notice) return member(record.body, "reproducer").is_string();
  return kind == RecordKind::start || kind == RecordKind::fault || kind == RecordKind::finding ||
         kind == RecordKind::loss || kind == RecordKind::late_stop || kind == RecordKind::restart ||
         kind == RecordKind::injection;
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
  const auto part_of = part_of_each(records);
  for (const Record& record : records) {
    RankRecords& rank = parts[part_of.at(&record)][record.rank];
    if (record.kind == RecordKind::start) rank.start = &record;
    if (record.kind == RecordKind::end) rank.end = &record;
    if (record.kind == RecordKind::late_stop) rank.late_stop = &record;
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
  const auto parts = part_of_each(records);
  std::set<std::pair<int, std::string>> settled;
  for (const Record* record : all)
    if (!provisional(*record)) settled.emplace(parts.at(record), incident(*record));
  std::set<std::tuple<int, std::string, int>> reported;
  std::erase_if(all, [&](const Record* record) {
    const int part = parts.at(record);
    const std::string name = incident(*record);
    if (name.empty()) return false;
    if (provisional(*record) && settled.contains({part, name})) return true;
    return !reported.emplace(part, name, rank_in(*record)).second;
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
  const auto parts = part_of_each(records);
  return distinct(records_of(records, RecordKind::restart), [&](const Record& record) {
    return std::pair(parts.at(&record), value_at<int>(record.body, "number").value_or(0));
  });
}

std::optional<NetworkPartition> find_partition(const std::vector<const Record*>& losses) {
  NetworkPartition partition;
  double seconds = 0;
  for (const Record* loss : losses) {
    if (text_at(loss->body, "how") != to_string(Loss::How::silent)) continue;
    partition.losses.push_back(loss);
    seconds = std::max(seconds, value_at<double>(loss->body, "seconds").value_or(0));
  }
  if (partition.losses.empty()) return std::nullopt;
  const Sides sides = sides_of(partition.losses);
  const auto told_by = [&](const std::set<int>& side) {
    return std::any_of(partition.losses.begin(), partition.losses.end(),
                       [&](const Record* loss) { return side.contains(loss->rank); });
  };
  const bool clean = std::none_of(sides.here.begin(), sides.here.end(),
                                  [&](int rank) { return sides.there.contains(rank); });
  if (!clean || !told_by(sides.here) || !told_by(sides.there)) return std::nullopt;
  std::set<int> low = sides.here, high = sides.there;
  if (*high.begin() < *low.begin()) std::swap(low, high);
  partition.text = fmt::format("{} and {} did not hear each other for {:.1f} s: the network between them",
                               name_side(low, partition.losses), name_side(high, partition.losses), seconds);
  return partition;
}

}  // namespace egt
