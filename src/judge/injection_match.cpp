#include "judge/injection_match.hpp"

#include <algorithm>
#include <functional>
#include <optional>

#include <fmt/format.h>

#include "egt/core/injection.hpp"
#include "egt/core/json_access.hpp"
#include "judge/evidence.hpp"

namespace egt {
namespace {

constexpr double clock_difference_s = 1.0;
constexpr double slow_report_seconds = 60;  // PeerComparison's windows, plus those before the rank was slow

/// True if `fault` is of a kind that detectors report for the row's injection.
bool claims(const InjectionRow& row, const Json& fault) {
  // A device that computes nothing cannot produce a correct result, so any fault matches.
  if (row.found_by == FoundBy::anything) return true;
  const std::string kind = text_at(fault, "kind"), part = text_at(fault, "part");
  return std::any_of(row.faults.begin(), row.faults.end(), [&](const FaultKind& one) {
    return one.kind && kind == one.kind && (!one.part || !fault.contains("part") || part == one.part);
  });
}

bool is_suspect(const Json& fault, int rank) {
  const Json& suspects = member(fault, "suspects");
  return std::find(suspects.begin(), suspects.end(), rank) != suspects.end();
}

/// A fault, or the latest of its suppressed repeats.
struct Sighting {
  const Json* fault;
  double time;
};

std::vector<Sighting> sightings(const std::vector<Record>& records) {
  std::vector<Sighting> all;
  for (const Record* fault : faults_of(records)) all.push_back({&fault->body, fault->time});
  for (const Record& record : records) {
    for (const Json& repeat : member(record.body, "fault_repeats"))
      all.push_back({&repeat, value_at<double>(repeat, "last_time").value_or(record.time)});
  }
  return all;
}

/// All records that may show that an injection was detected.
struct Traces {
  const std::vector<Record>& records;
  std::vector<Sighting> faults;
  std::vector<ByRank> parts;  ///< never empty

  const ByRank& ending() const { return parts.back(); }
};

Traces traces_of(const std::vector<Record>& records) {
  Traces traces{.records = records, .faults = sightings(records), .parts = parts_of(records)};
  if (traces.parts.empty()) traces.parts.emplace_back();
  return traces;
}

bool is_after(double time, const Record& injection) {
  return time + clock_difference_s >= injection.time;
}

/// Whether a record of `kind` about the injection's rank follows the injection. If `about` is set, the
/// finding must be of that kind.
bool is_told(const Record& injection, const Traces& traces, RecordKind kind, std::string_view about = {}) {
  const auto rank = value_at<int>(injection.body, "rank");
  return std::any_of(traces.records.begin(), traces.records.end(), [&](const Record& record) {
    return record.kind == kind && is_after(record.time, injection) &&
           value_at<int>(record.body, "rank") == rank &&
           (about.empty() || text_at(record.body, "kind") == about);
  });
}

/// A slow rank is an outlier among its peers. A slow pair in `links` has a finding about both ranks. Journals
/// of earlier versions do not list a finding's ranks, so any finding matches.
bool slowness_is_told(const Record& injection, const Traces& traces) {
  if (is_told(injection, traces, RecordKind::finding, "outlier")) return true;
  const Json &rank = member(injection.body, "rank"), &peer = member(injection.body, "peer");
  return std::any_of(traces.records.begin(), traces.records.end(), [&](const Record& record) {
    if (record.kind != RecordKind::finding || text_at(record.body, "kind") != "link" ||
        !is_after(record.time, injection))
      return false;
    const Json& ranks = member(record.body, "ranks");
    const auto names = [&](const Json& one) {
      return std::find(ranks.begin(), ranks.end(), one) != ranks.end();
    };
    return !record.body.contains("ranks") || (names(rank) && (peer.is_null() || names(peer)));
  });
}

/// Records of the injection's rank from the part of the run in which the injection occurred.
const RankRecords& ending_of(const Record& injection, const Traces& traces) {
  static const RankRecords none;
  const int rank = value_at<int>(injection.body, "rank").value_or(-1);
  const auto is_before = [&](const Record* start) {
    return start && start->rank == injection.rank ? std::less<>()(start, &injection)
                                                  : start && start->time <= injection.time;
  };
  for (auto part = traces.parts.rbegin(); part != traces.parts.rend(); ++part)
    if (const auto found = part->find(rank); found != part->end())
      if (is_before(found->second.start) || part + 1 == traces.parts.rend()) return found->second;
  return none;
}

/// Whether the limiter of the injection's rank reacted. `figure` is the counter in its summary.
bool was_guarded(const Record& injection, const Traces& traces, const char* figure) {
  const Json& telemetry = member(ending_of(injection, traces).last_body(), "telemetry");
  return value_at<double>(member(telemetry, "guard"), figure).value_or(0) > 0;
}

bool files_failed(const Record& injection, const Traces& traces) {
  for (const Json& part : member(ending_of(injection, traces).last_body(), "parts"))
    if (text_at(part, "name") == "io" && !value_at<bool>(part, "success").value_or(false)) return true;
  return false;
}

bool was_found_as_fault(const Record& injection, const Traces& traces) {
  return std::any_of(traces.faults.begin(), traces.faults.end(), [&](const Sighting& sighting) {
    return is_after(sighting.time, injection) && fits(injection.body, *sighting.fault);
  });
}

/// Any failure on a rank without work counts as detection.
bool idle_was_found(const Record& injection, const Traces& traces) {
  for (const RecordKind kind : {RecordKind::loss, RecordKind::restart, RecordKind::finding})
    if (is_told(injection, traces, kind)) return true;
  for (const Json& part : member(ending_of(injection, traces).last_body(), "parts"))
    if (!value_at<bool>(part, "success").value_or(true)) return true;
  return was_found_as_fault(injection, traces);
}

bool was_found(const Record& injection, const Traces& traces) {
  const InjectionRow* const row = find_injection_row(text_at(injection.body, "kind"));
  const auto is_held_up = [&] {
    return is_told(injection, traces, RecordKind::loss) || is_told(injection, traces, RecordKind::restart);
  };
  switch (row ? row->found_by : FoundBy::fault) {
    case FoundBy::fault:
      return was_found_as_fault(injection, traces);
    case FoundBy::stall:
      return is_held_up();
    case FoundBy::death:
      return is_held_up() || !ending_of(injection, traces).end;
    case FoundBy::slowness:
      return slowness_is_told(injection, traces);
    case FoundBy::heat:
      return is_told(injection, traces, RecordKind::finding, "temperature") ||
             was_guarded(injection, traces, "heat_seconds");
    case FoundBy::memory_guard:
      return was_guarded(injection, traces, "memory_steps");
    case FoundBy::file_part:
      return files_failed(injection, traces);
    case FoundBy::anything:
      return idle_was_found(injection, traces);
  }
  return false;
}

/// Whether the injection that occurred matches the request. Keys that the request leaves open match anything.
bool is_planned(const Json& asked, const Json& struck) {
  for (const auto& [name, value] : asked.items())
    if (!value.is_null() && member(struck, name) != value) return false;
  return true;
}

/// Why the comparison with peers did not detect a slow rank or pair, and how to change the run.
std::string why_not_slow(const Record& injection, const Traces& traces) {
  const Json& start = first_start(traces.ending());
  if (text_at(start, "command") == "links")
    return value_at<int>(start, "size") == 2
               ? "two ranks have one pair and no other to compare it with; use more ranks or a larger count"
               : "no pair was below --warn-below or far below the median pair; use a larger count";
  const Record* const last = ending_of(injection, traces).last();
  const double seconds = last ? last->time - injection.time : 0;
  if (seconds < slow_report_seconds)
    return fmt::format("a slow rank is reported after {:.0f} s; run longer", slow_report_seconds);
  return "its steps were not clearly slower than its peers'; use a larger count or ms";
}

/// Why the injection was not detected; empty if unknown.
std::string why_missed(const Json& asked, const Record* struck, const Traces& traces) {
  if (struck)
    return text_at(struck->body, "kind") == to_string(InjectionKind::slow) ? why_not_slow(*struck, traces)
                                                                           : "";
  const auto rank = traces.ending().find(value_at<int>(asked, "rank").value_or(-1));
  const auto steps = rank == traces.ending().end()
                         ? std::nullopt
                         : value_at<std::int64_t>(rank->second.last_body(), "steps");
  const bool came_to_it = steps && *steps > value_at<std::int64_t>(asked, "step").value_or(0);
  return came_to_it ? "the run ended before the next occasion; run longer" : "the run was too short";
}

/// The result's entry for one injection. `struck`: its injection record, or null if it did not occur.
Json outcome(const Json& planned, const Json& asked, const Record* struck, const Traces& traces) {
  const Json& body = struck ? struck->body : asked;
  Json entry = {{"planned", planned}, {"found", struck && was_found(*struck, traces)}};
  for (const char* name : {"kind", "rank", "step", "struck_step", "where", "mask", "first_word"})
    entry[name] = member(body, name);
  if (entry["found"] == false)
    if (const std::string why = why_missed(asked, struck, traces); !why.empty()) entry["why_missed"] = why;
  return entry;
}

/// Texts of the planned injections, from the first start record that has any. All ranks receive the same.
Json planned_texts(const std::vector<Record>& records) {
  for (const Record& record : records)
    if (const Json& texts = member(member(record.body, "options"), "inject");
        record.kind == RecordKind::start && texts.is_array())
      return texts;
  return Json::array();
}

}  // namespace

bool kinds_fit(const Json& injection, const Json& fault) {
  const InjectionRow* const row = find_injection_row(text_at(injection, "kind"));
  return row && claims(*row, fault);
}

bool fits(const Json& injection, const Json& fault) {
  const auto rank = value_at<int>(injection, "rank"), blamed = value_at<int>(fault, "rank");
  if (!rank || !kinds_fit(injection, fault)) return false;
  return blamed ? *blamed == *rank : is_suspect(fault, *rank);
}

std::optional<Detector> slow_detector(const Record& record) {
  const std::string kind = text_at(record.body, "kind");
  for (const InjectionRow& row : injection_rows)
    if (row.detector && !looks_every_period(*row.detector) &&
        ((record.kind == RecordKind::injection && kind == row.name) ||
         (record.kind == RecordKind::fault && claims(row, record.body))))
      return row.detector;
  return std::nullopt;
}

Json injection_outcomes(const std::vector<Record>& records) {
  std::vector<const Record*> struck = records_of(records, RecordKind::injection);
  const Traces seen = traces_of(records);
  Json outcomes = Json::array();
  for (const Json& text : planned_texts(records)) {
    const auto injection = parse_injection(text.is_string() ? text.get<std::string>() : "");
    const Json asked = injection.ok() ? to_json(injection.value()) : Json({{"kind", text}});
    const auto record = std::find_if(struck.begin(), struck.end(),
                                     [&](const Record* one) { return is_planned(asked, one->body); });
    outcomes.push_back(outcome(text, asked, record == struck.end() ? nullptr : *record, seen));
    if (record != struck.end()) struck.erase(record);
  }
  for (const Record* record : struck) outcomes.push_back(outcome(Json(), Json(), record, seen));
  return outcomes;
}

std::vector<std::string> missed_injections(const Json& outcomes) {
  std::vector<std::string> lines;
  for (const Json& one : outcomes) {
    if (value_at<bool>(one, "found").value_or(false)) continue;
    const std::string which =
        fmt::format("{} on rank {}, step {}", text_at(one, "kind"), value_at<int>(one, "rank").value_or(-1),
                    value_at<std::int64_t>(one, "step").value_or(-1));
    const std::string why = text_at(one, "why_missed");
    lines.push_back(fmt::format("injected fault {}: {}{}{}",
                                member(one, "struck_step").is_null() ? "never struck" : "not found", which,
                                why.empty() ? "" : ": ", why));
  }
  return lines;
}

}  // namespace egt
