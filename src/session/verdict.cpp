#include "egt/session/verdict.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include <fmt/format.h>

#include "egt/core/json_access.hpp"
#include "egt/core/status.hpp"
#include "egt/report/bodies.hpp"
#include "egt/session/injection_match.hpp"

namespace egt {
namespace {

constexpr std::size_t most_reasons = 20;

/// The records, sorted by what they tell.
struct Evidence {
  std::vector<const Record*> faults;
  std::map<int, const Record*> starts, last, ends;  // by rank; last: progress or end
  int size = 0;                                     // ranks that there should be
};

Evidence sort_evidence(const std::vector<Record>& records) {
  Evidence evidence;
  for (const Record& record : records) {
    if (record.kind == RecordKind::fault) evidence.faults.push_back(&record);
    if (record.kind == RecordKind::start) evidence.starts[record.rank] = &record;
    if (record.kind == RecordKind::end) evidence.ends[record.rank] = evidence.last[record.rank] = &record;
    if (record.kind == RecordKind::progress && !evidence.ends.contains(record.rank))
      evidence.last[record.rank] = &record;
    if (record.kind == RecordKind::start)
      evidence.size = std::max(evidence.size, value_at<int>(record.body, "size").value_or(0));
    evidence.size = std::max(evidence.size, record.rank + 1);
  }
  return evidence;
}

std::string step_text(std::int64_t step) {
  return step < 0 ? "" : fmt::format(", step {}", step);
}

std::string fault_reason(const Record& record) {
  const Json& fault = record.body;
  const std::optional<int> rank = value_at<int>(fault, "rank");
  const std::string who = rank ? fmt::format("rank {}", *rank) : "rank not known";
  const std::string host =
      text_at(fault, "hostname").empty() ? "" : fmt::format(" on {}", text_at(fault, "hostname"));
  std::string text =
      fmt::format("{}{}{}: {} fault", who, host, step_text(record.step), text_at(fault, "kind"));
  if (!text_at(fault, "where").empty()) text += fmt::format(" in {}", text_at(fault, "where"));
  const auto count = value_at<std::uint64_t>(fault, "count").value_or(1);
  if (count > 1) text += fmt::format(", {} elements", count);
  return text;
}

std::string repeat_reason(const Json& repeat) {
  const std::optional<int> rank = value_at<int>(repeat, "rank");
  return fmt::format("{}: {} more {} faults, seen by {}",
                     rank ? fmt::format("rank {}", *rank) : "rank not known",
                     value_at<std::uint64_t>(repeat, "count").value_or(0), text_at(repeat, "kind"),
                     text_at(repeat, "detector"));
}

std::vector<std::string> fault_reasons(const Evidence& evidence) {
  std::vector<std::string> reasons;
  for (const Record* fault : evidence.faults) reasons.push_back(fault_reason(*fault));
  for (const auto& [rank, last] : evidence.last)
    for (const Json& repeat : member(last->body, "fault_repeats")) reasons.push_back(repeat_reason(repeat));
  for (const auto& [rank, end] : evidence.ends)
    if (evidence.faults.empty() && text_at(end->body, "reason") == "fault")
      reasons.push_back(fmt::format("rank {} ended because of a fault", rank));
  return reasons;
}

bool was_interrupted(const Evidence& evidence) {
  return std::any_of(evidence.ends.begin(), evidence.ends.end(),
                     [](const auto& end) { return text_at(end.second->body, "reason") == "signal"; });
}

std::string error_reason(int rank, const Record& end) {
  const Json& error = member(end.body, "error");
  const std::string what = text_at(error, "what");
  return fmt::format("rank {}{}: {}: {}", rank, step_text(end.step),
                     text_at(error, "code").empty() ? "error" : text_at(error, "code"),
                     what.empty() ? "no details" : what);
}

/// Ranks that left no last word, and ranks that ended in an error.
std::vector<std::string> broken_ranks(const Evidence& evidence) {
  std::vector<std::string> reasons;
  for (const auto& [rank, end] : evidence.ends)
    if (text_at(end->body, "reason") == "error") reasons.push_back(error_reason(rank, *end));
  for (int rank = 0; rank < evidence.size; ++rank) {
    if (evidence.ends.contains(rank)) continue;
    const auto last = evidence.last.find(rank);
    const std::string when =
        last == evidence.last.end() ? "" : fmt::format("; last seen at step {}", last->second->step);
    reasons.push_back(fmt::format("rank {} was lost: it left no end record{}", rank, when));
  }
  return reasons;
}

/// Parts that did not do what was planned.
std::vector<std::string> unfinished_parts(const Evidence& evidence) {
  std::vector<std::string> reasons;
  for (const auto& [rank, end] : evidence.ends)
    for (const Json& part : member(end->body, "parts")) {
      if (value_at<bool>(part, "success").value_or(false)) continue;
      const std::string failure = text_at(part, "failure");
      reasons.push_back(fmt::format("rank {}, {}: {}", rank, text_at(part, "name"),
                                    failure.empty() ? "did not do what was planned" : failure));
    }
  return reasons;
}

VerifiedWork work_of(const Record& record) {
  VerifiedWork sum;
  for (const Json& part : member(record.body, "parts")) add(sum, work_from_json(member(part, "work")));
  return sum;
}

/// Ranks that verified nothing.
std::vector<std::string> idle_ranks(const Evidence& evidence) {
  std::vector<std::string> reasons;
  for (const auto& [rank, end] : evidence.ends)
    if (!any(work_of(*end))) reasons.push_back(fmt::format("rank {}: no work was verified", rank));
  return reasons;
}

/// Exit code 2 or 3 where a rank could not begin for a reason outside the program; nothing otherwise.
std::optional<int> environment_code(const Evidence& evidence) {
  std::optional<int> code;
  for (const auto& [rank, last] : evidence.last) {
    if (value_at<std::int64_t>(last->body, "steps").value_or(0) > 0) return std::nullopt;
    const std::string error = text_at(member(last->body, "error"), "code");
    for (const StatusCode status :
         {StatusCode::unavailable, StatusCode::unsupported, StatusCode::out_of_memory, StatusCode::no_space})
      if (error == to_string(status)) code = 3;
    if (error == to_string(StatusCode::invalid_argument) && !code) code = 2;
  }
  return code;
}

std::string signal_reason(const Evidence& evidence) {
  for (const auto& [rank, end] : evidence.ends)
    if (!text_at(end->body, "signal").empty())
      return fmt::format("stopped by {}{}", text_at(end->body, "signal"), step_text(end->step));
  return "stopped by a signal";
}

std::string pass_reason(const Evidence& evidence) {
  return fmt::format("all planned work was done and verified on {} rank{}", evidence.size,
                     evidence.size == 1 ? "" : "s");
}

void append(std::vector<std::string>& all, const std::vector<std::string>& more) {
  all.insert(all.end(), more.begin(), more.end());
}

Verdict verdict(const char* name, int exit_code, std::vector<std::string> reasons) {
  if (reasons.size() > most_reasons) {
    const std::size_t more = reasons.size() - most_reasons;
    reasons.resize(most_reasons);
    reasons.push_back(fmt::format("and {} more", more));
  }
  return {.name = name, .exit_code = exit_code, .reasons = std::move(reasons)};
}

Verdict judge_evidence(const std::vector<Record>& records, const Json& injections) {
  const Evidence evidence = sort_evidence(records);
  std::vector<std::string> reasons = fault_reasons(evidence);
  const bool fault = !reasons.empty(), interrupted = was_interrupted(evidence);
  if (fault && !injections.empty())
    reasons.insert(reasons.begin(),
                   "faults were injected with --inject: this verdict says nothing about the hardware");
  append(reasons, missed_injections(injections));
  append(reasons, broken_ranks(evidence));
  bool incomplete = !reasons.empty() || evidence.size == 0;
  if (evidence.size == 0) reasons.push_back("no rank left a record");

  // Who is told to stop leaves parts unfinished: that is no evidence against the hardware.
  std::vector<std::string> unfinished = unfinished_parts(evidence);
  append(unfinished, idle_ranks(evidence));
  if (!interrupted) incomplete = incomplete || !unfinished.empty();
  if (interrupted) reasons.push_back(signal_reason(evidence));
  append(reasons, unfinished);

  if (fault) return verdict("fault", 1, reasons);
  if (incomplete) return verdict("incomplete", environment_code(evidence).value_or(4), reasons);
  if (interrupted) return verdict("interrupted", 6, reasons);
  return verdict("pass", 0, {pass_reason(evidence)});
}

}  // namespace

Verdict judge(const std::vector<Record>& records) {
  Json injections = injection_outcomes(records);
  Verdict made = judge_evidence(records, injections);
  made.injections = std::move(injections);
  return made;
}

}  // namespace egt
