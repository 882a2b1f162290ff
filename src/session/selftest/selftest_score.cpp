#include "session/selftest/selftest_score.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "egt/core/json_access.hpp"
#include "judge/evidence.hpp"
#include "judge/injection_match.hpp"
#include "model/mlp_trainer.hpp"

namespace egt {
namespace {

/// An executed injection, and the checks that reported it.
struct Struck {
  const Record* record = nullptr;
  InjectionKind kind = InjectionKind::weight;
  bool is_persistent = false;
  std::set<std::string> told_by;  ///< names of the checks that reported it
};

/// Scope of a detector's reports: the whole job if it checks every period, else one rank.
struct Track {
  Detector detector = Detector::replica;
  int rank = -1;
  auto operator<=>(const Track&) const = default;
};

Track track_of(const Record& injection, InjectionKind kind) {
  const Detector detector = detector_of(kind);
  return {detector, looks_every_period(detector) ? -1 : injection.rank};
}

std::optional<InjectionKind> kind_of(const Record& injection) {
  const InjectionRow* const row = find_injection_row(text_at(injection.body, "kind"));
  return row && row->changes_data() ? std::optional(row->kind) : std::nullopt;
}

/// Orders the records. A rank's memory, host copy and file records keep their order. The other records come
/// from all ranks, whose clocks and arrival times differ, so they are sorted by step. Within a step, an
/// injection comes before its fault.
std::vector<const Record*> in_order(const std::vector<Record>& records) {
  const std::vector<const Record*> faults = faults_of(records);
  const std::set<const Record*> holding(faults.begin(), faults.end());
  std::vector<const Record*> local, common;
  for (const Record& record : records)
    if (record.kind == RecordKind::injection || holding.contains(&record))
      (slow_detector(record) ? local : common).push_back(&record);
  std::stable_sort(common.begin(), common.end(), [](const Record* a, const Record* b) {
    const auto place = [](const Record& record) {
      return std::pair(record.step, record.kind == RecordKind::fault);
    };
    return place(*a) < place(*b);
  });
  local.insert(local.end(), common.begin(), common.end());
  return local;
}

/// Steps completed by all ranks; 0 if the records do not show it.
std::int64_t steps_done(const std::vector<Record>& records) {
  const std::vector<ByRank> parts = parts_of(records);
  std::optional<std::int64_t> done;
  if (!parts.empty())
    for (const auto& [number, rank] : parts.back()) {
      const auto steps = value_at<std::int64_t>(rank.last_body(), "steps").value_or(0);
      done = std::min(done.value_or(steps), steps);
    }
  return done.value_or(0);
}

class Scorer {
 public:
  explicit Scorer(const SelftestPlan& plan) : longest_latency_(longest_latency(plan)), period_(plan.period) {
    for (const Injection& injection : plan.injections)
      ++row_of(injection.kind, is_persistent(injection)).planned;
  }

  void strike(const Record& record) {
    const auto kind = kind_of(record);
    if (!kind) return;
    const std::string lasting = text_at(record.body, "lasting");
    const bool is_persistent = !lasting.empty() && lasting != to_string(Lasting::once);
    ++row_of(*kind, is_persistent).injected;
    last_[track_of(record, *kind)] = {
        .record = &record, .kind = *kind, .is_persistent = is_persistent, .told_by = {}};
  }

  void report(const Record& fault) {
    Struck* newest = nullptr;
    for (auto& [track, struck] : last_)
      if ((track.rank < 0 || track.rank == fault.rank) && kinds_fit(struck.record->body, fault.body) &&
          (!newest || struck.record->step > newest->record->step))
        newest = &struck;
    if (newest && newest->told_by.insert(text_at(fault.body, "detector")).second) {
      if (newest->told_by.size() == 1) find(*newest, fault);
      return;
    }
    false_alarms_.push_back(fmt::format("a {} fault in {} at step {}", text_at(fault.body, "kind"),
                                        text_at(fault.body, "where"), fault.step));
  }

  /// `steps`: number of steps completed by all ranks.
  SelftestScore score(std::int64_t steps, bool is_stopped) && {
    SelftestScore score{.rows = {}, .false_alarms = std::move(false_alarms_), .is_stopped = is_stopped};
    for (const auto& [track, struck] : last_) {
      const bool is_due =
          looks_every_period(track.detector) && struck.record->step + longest_latency_ + period_ < steps;
      if (is_stopped && struck.told_by.empty() && !is_due)
        ++row_of(struck.kind, struck.is_persistent).awaited;
    }
    for (auto& [key, row] : rows_) {
      std::sort(row.latencies.begin(), row.latencies.end());
      score.rows.push_back(std::move(row));
    }
    return score;
  }

 private:
  SelftestRow& row_of(InjectionKind kind, bool is_persistent) {
    SelftestRow& row = rows_[{kind, is_persistent}];
    row.kind = kind;
    row.is_persistent = is_persistent;
    return row;
  }

  void find(const Struck& struck, const Record& fault) {
    SelftestRow& row = row_of(struck.kind, struck.is_persistent);
    ++row.found;
    const auto rank = value_at<int>(fault.body, "rank");
    if (rank == value_at<int>(struck.record->body, "rank") &&
        text_at(fault.body, "blame") != to_string(Blame::ambiguous))
      ++row.blamed_rightly;
    const std::int64_t latency = fault.step - struck.record->step;
    row.latencies.push_back(latency);
    if (looks_every_period(detector_of(struck.kind)) && latency > longest_latency_) ++row.late;
  }

  const std::int64_t longest_latency_, period_;
  std::map<std::pair<InjectionKind, bool>, SelftestRow> rows_;  ///< by kind, and whether persistent
  std::map<Track, Struck> last_;
  std::vector<std::string> false_alarms_;
};

}  // namespace

bool SelftestScore::settled() const {
  return std::all_of(rows.begin(), rows.end(), [](const SelftestRow& row) {
    return row.injected == row.planned && row.found == row.planned;
  });
}

bool SelftestScore::passed() const {
  return !rows.empty() && false_alarms.empty() &&
         std::all_of(rows.begin(), rows.end(), [](const SelftestRow& row) { return row.passed(); });
}

std::string name_of(const SelftestRow& row) {
  return std::string(to_string(row.kind)) + (row.is_persistent ? "-persistent" : "");
}

std::int64_t longest_latency(const SelftestPlan& plan) {
  return plan.period + MlpTrainer::depth;
}

SelftestScore score_selftest(const SelftestPlan& plan, const std::vector<Record>& records) {
  Scorer scorer(plan);
  for (const Record* record : in_order(records)) {
    if (record->kind == RecordKind::injection)
      scorer.strike(*record);
    else
      scorer.report(*record);
  }
  const bool is_stopped = std::any_of(records.begin(), records.end(), [](const Record& record) {
    return record.kind == RecordKind::end && text_at(record.body, "reason") == "signal";
  });
  return std::move(scorer).score(steps_done(records), is_stopped);
}

}  // namespace egt
