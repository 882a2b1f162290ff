#include "session/selftest/selftest_report.hpp"

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "egt/core/exit_code.hpp"
#include "egt/core/json_access.hpp"
#include "judge/injection_match.hpp"
#include "judge/result.hpp"

namespace egt {
namespace {

constexpr std::size_t max_false_alarms_told = 5;

/// Executed injections.
using Strikes = std::set<std::pair<std::string, int>>;  // kind and rank

/// Returns whether the part fails if a fault of the kind is found. `is_own`: injected on the part's own rank.
bool explains(const std::string& kind, bool is_own, const std::string& part) {
  const InjectionRow* const row = find_injection_row(kind);
  if (!row || !row->detector || part != row_of(*row->detector).part) return false;
  return is_own || looks_every_period(*row->detector);
}

/// Returns whether injections explain all errors of the part.
bool is_explained(const Json& part, int rank, const Strikes& strikes) {
  return member(member(part, "figures"), "undone").is_null() &&
         std::any_of(strikes.begin(), strikes.end(), [&](const auto& strike) {
           return explains(strike.first, strike.second == rank, text_at(part, "name"));
         });
}

/// The records without injections, faults, and the part errors that injections explain.
std::vector<Record> without_injections(const std::vector<Record>& records) {
  Strikes strikes;
  for (const Record& record : records)
    if (record.kind == RecordKind::injection)
      strikes.emplace(text_at(record.body, "kind"), value_at<int>(record.body, "rank").value_or(record.rank));
  std::vector<Record> rest;
  for (const Record& record : records) {
    if (record.kind == RecordKind::fault || record.kind == RecordKind::injection) continue;
    rest.push_back(record);
    Json& body = rest.back().body;
    if (!body.is_object()) continue;
    if (record.kind == RecordKind::start) body["injected"] = false;
    if (!body.contains("parts")) continue;
    for (Json& part : body["parts"])
      if (is_explained(part, record.rank, strikes)) part["success"] = true;
  }
  return rest;
}

std::string never_injected(const SelftestRow& row) {
  return fmt::format("{}: {} of {} never injected", name_of(row), row.planned - row.injected, row.planned);
}

/// Errors of a row; empty: none. `is_stopped`: the run was stopped before the plan's end.
std::vector<std::string> failures(const SelftestRow& row, std::int64_t longest, bool is_stopped) {
  const std::string name = name_of(row);
  const int missed = row.injected - row.found - row.awaited;
  std::vector<std::string> texts;
  if (row.injected < row.planned && !is_stopped) texts.push_back(never_injected(row));
  if (missed > 0) texts.push_back(fmt::format("{}: {} of {} missed", name, missed, row.injected));
  if (row.blamed_rightly < row.found)
    texts.push_back(fmt::format("{}: {} of {} blamed on a wrong rank, or on none", name,
                                row.found - row.blamed_rightly, row.found));
  if (row.late > 0)
    texts.push_back(fmt::format("{}: {} of {} found later than the {} steps that a check may take", name,
                                row.late, row.found, longest));
  return texts;
}

std::vector<std::string> failures(const SelftestPlan& plan, const SelftestScore& score) {
  std::vector<std::string> all;
  if (score.rows.empty() && !score.is_stopped) all.push_back("no fault was injected: nothing is proven");
  for (const SelftestRow& row : score.rows)
    for (std::string& text : failures(row, longest_latency(plan), score.is_stopped))
      all.push_back(std::move(text));
  for (std::size_t i = 0; i < std::min(score.false_alarms.size(), max_false_alarms_told); ++i)
    all.push_back(fmt::format("false alarm: {}", score.false_alarms[i]));
  if (score.false_alarms.size() > max_false_alarms_told)
    all.push_back(fmt::format("and {} more false alarms", score.false_alarms.size() - max_false_alarms_told));
  return all;
}

/// Work that a stopped run did not reach.
std::vector<std::string> left_undone(const SelftestRow& row) {
  std::vector<std::string> texts;
  if (row.injected < row.planned) texts.push_back(never_injected(row));
  if (row.awaited > 0)
    texts.push_back(fmt::format("{}: {} of {} not yet due", name_of(row), row.awaited, row.injected));
  return texts;
}

bool ended_by(const std::vector<Record>& records, std::string_view reason) {
  return std::any_of(records.begin(), records.end(), [&](const Record& record) {
    return record.kind == RecordKind::end && text_at(record.body, "reason") == reason;
  });
}

int sum(const std::vector<SelftestRow>& rows, int SelftestRow::*count) {
  return std::accumulate(rows.begin(), rows.end(), 0,
                         [&](int so_far, const SelftestRow& row) { return so_far + row.*count; });
}

std::optional<std::int64_t> median(const std::vector<std::int64_t>& ascending) {
  if (ascending.empty()) return std::nullopt;
  return ascending[(ascending.size() - 1) / 2];
}

Json text_or_null(const std::vector<std::string>& texts) {
  return texts.empty() ? Json() : Json(fmt::format("{}", fmt::join(texts, "; ")));
}

/// A row of a stopped run may have neither passed nor failed.
const char* mark_of(const SelftestRow& row, std::int64_t longest, bool is_stopped) {
  if (row.passed()) return "";
  return failures(row, longest, is_stopped).empty() ? "  not done" : "  failed";
}

std::string row_text(const SelftestRow& row, const char* mark) {
  const bool any = !row.latencies.empty();
  const std::string latency =
      any ? fmt::format("{:>8} {:>6}", *median(row.latencies), row.latencies.back()) : "       -      -";
  return fmt::format("{:<21} {:>8} {:>6} {:>14} {}{}", name_of(row), row.injected, row.found,
                     row.blamed_rightly, latency, mark);
}

bool is_above_zero(const Json& fill) {
  if (fill.is_string()) return std::strtod(fill.get<std::string>().c_str(), nullptr) > 0;
  return fill.is_number() && fill.get<double>() > 0;
}

/// The result with one entry per row instead of per part, since injected faults make the parts fail.
Json result_of(const SelftestPlan& plan, const SelftestScore& score, const std::vector<Record>& records,
               const Verdict& verdict) {
  Json result = build_result(records, verdict);
  const Json& results = result["results"] = to_results(plan, score);
  const auto count = [&](const auto& is_counted) {
    return std::count_if(results.begin(), results.end(), is_counted);
  };
  result["test_summary"]["total_tests"] = score.rows.size();
  result["test_summary"]["successful_tests"] =
      count([](const Json& row) { return row["success"].get<bool>(); });
  result["test_summary"]["failed_tests"] =
      count([](const Json& row) { return !row["success"].get<bool>() && row["failure"] != row["undone"]; });
  return result;
}

}  // namespace

SelftestPlan plan_of(const Json& start) {
  const Json& options = member(start, "options");
  const auto layers = static_cast<int>(member(options, "layers").size()) - 1;
  return plan_selftest({.ranks = std::max(1, value_at<int>(start, "size").value_or(1)),
                        .layers = std::max(1, layers),
                        .extreme = value_at<int>(options, "extreme-iterations").value_or(0) > 0 && layers > 1,
                        .covers_all = text_at(options, "coverage") != "sampled",
                        .memory = is_above_zero(member(options, "memory")),
                        .files = !value_at<bool>(options, "no-io").value_or(false)});
}

SelftestOutcome conclude_selftest(const SelftestPlan& plan, const std::vector<Record>& records) {
  const SelftestScore score = score_selftest(plan, records);
  Verdict verdict = judge_selftest(plan, score, records);
  verdict.injections = injection_outcomes(records);
  Json result = result_of(plan, score, records, verdict);
  return {.verdict = std::move(verdict), .result = std::move(result), .table = table_text(plan, score)};
}

Verdict judge_selftest(const SelftestPlan& plan, const SelftestScore& score,
                       const std::vector<Record>& records) {
  Verdict verdict = judge(without_injections(records));
  std::vector<std::string> found = failures(plan, score);
  // An incomplete run may have lost the records that are missing here, so it stays incomplete.
  const bool is_lighter =
      verdict.exit_code == exit_code::interrupted || verdict.exit_code == exit_code::degraded;
  if (is_lighter && !found.empty()) {
    verdict.name = "fault";
    verdict.exit_code = exit_code::fault;
    verdict.reasons.insert(verdict.reasons.begin(), found.begin(), found.end());
    found.clear();
  }
  if (score.is_stopped)
    for (const SelftestRow& row : score.rows)
      for (std::string& text : left_undone(row)) found.push_back(std::move(text));
  if (!score.settled() && ended_by(records, "duration"))
    found.push_back("the deadline came first: use less --memory, or a faster --io-dir");
  if (verdict.exit_code != exit_code::pass) {
    verdict.reasons.insert(verdict.reasons.end(), found.begin(), found.end());
    return verdict;
  }
  if (!score.passed()) return {.name = "fault", .exit_code = exit_code::fault, .reasons = found};
  verdict.reasons = {fmt::format("all {} injected faults were found in time and blamed on the right rank",
                                 sum(score.rows, &SelftestRow::injected))};
  return verdict;
}

std::string table_text(const SelftestPlan& plan, const SelftestScore& score) {
  std::string text =
      "fault                 injected  found  blamed rightly  latency in steps\n"
      "                                                         median    max";
  for (const SelftestRow& row : score.rows)
    text += fmt::format("\n{}", row_text(row, mark_of(row, longest_latency(plan), score.is_stopped)));
  text += fmt::format("\n{:<21} {:>8} {:>6} {:>14}", "all", sum(score.rows, &SelftestRow::injected),
                      sum(score.rows, &SelftestRow::found), sum(score.rows, &SelftestRow::blamed_rightly));
  for (const LeftOut& one : plan.left_out)
    text += fmt::format("\n{:<21} left out: {}", to_string(one.kind), one.why);
  return text;
}

Json to_results(const SelftestPlan& plan, const SelftestScore& score) {
  Json results = Json::array();
  for (const SelftestRow& row : score.rows) {
    const Json undone = score.is_stopped ? text_or_null(left_undone(row)) : Json();
    const Json failure = text_or_null(failures(row, longest_latency(plan), score.is_stopped));
    Json latency;
    if (const auto middle = median(row.latencies))
      latency = {{"p50", *middle}, {"max", row.latencies.back()}};
    results.push_back(
        {{"test_name", fmt::format("selftest.{}", name_of(row))},
         {"test_type", "selftest"},
         {"description",
          fmt::format("faults of the kind {}, injected on every rank in turn{}", to_string(row.kind),
                      row.is_persistent ? ", in every step up to the next check" : "")},
         {"rank", nullptr},
         {"success", row.passed()},
         {"failure", failure.is_null() ? undone : failure},
         {"undone", undone},
         {"planned", row.planned},
         {"injected", row.injected},
         {"found", row.found},
         {"blamed_rightly", row.blamed_rightly},
         {"late", row.late},
         {"not_due", row.awaited},
         {"latency_steps", latency}});
  }
  return results;
}

}  // namespace egt
