#include "session/run_report.hpp"

#include <algorithm>
#include <array>
#include <fstream>
#include <set>
#include <sstream>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "egt/core/exit_code.hpp"
#include "egt/core/file_io.hpp"
#include "egt/core/json_access.hpp"
#include "judge/record_schema.hpp"
#include "judge/result.hpp"
#include "report/export/result_files.hpp"
#include "report/journal/journal.hpp"
#include "report/tables/summary.hpp"
#include "session/selftest/selftest_report.hpp"

namespace egt {
namespace {

constexpr double writers_patience_s = 10;  // ranks may write for so long after their mpirun has ended

/// Null if no rank left a start record.
const Json& first_start(const std::vector<Record>& records) {
  static const Json none;
  for (const Record& record : records)
    if (record.kind == RecordKind::start) return record.body;
  return none;
}

/// Empty if the file does not exist.
std::string file_text(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

Status check_schema(const std::string& directory, const std::vector<Record>& records) {
  for (const Record& record : records) {
    const auto schema = value_at<int>(record.body, "journal_schema");
    if (record.kind != RecordKind::start || schema.value_or(journal_schema) <= journal_schema) continue;
    return {StatusCode::unsupported,
            fmt::format("{}: its journals are of version {} of the program; use that one to judge them",
                        directory, text_at(record.body, "program_version"))};
  }
  return {};
}

/// Ranks of the run without any record.
std::vector<int> ranks_without_records(const std::vector<Record>& records) {
  const int size = value_at<int>(first_start(records), "size").value_or(0);
  std::set<int> known;
  for (const Record& record : records) known.insert(record.rank);
  std::vector<int> missing;
  for (int rank = 0; rank < size; ++rank)
    if (!known.contains(rank)) missing.push_back(rank);
  return missing;
}

/// Severity of the verdict; higher is worse, 0 means no verdict.
int weight_of(const Json& result) {
  constexpr std::array<std::string_view, 5> by_weight = {"pass", "interrupted", "degraded", "incomplete",
                                                         "fault"};
  const auto found = std::find(by_weight.begin(), by_weight.end(), text_at(result, "verdict"));
  return found == by_weight.end() ? 0 : static_cast<int>(found - by_weight.begin()) + 1;
}

bool has_rank(const Json& result, int rank) {
  const Json& ranks = member(result, "ranks");
  return std::any_of(ranks.begin(), ranks.end(),
                     [&](const Json& one) { return value_at<int>(one, "rank") == rank; });
}

/// Number of ranks with an end record. A journal cut between two lines looks like that of a killed rank.
std::ptrdiff_t ends_in(const Json& result) {
  const Json& ranks = member(result, "ranks");
  return std::count_if(ranks.begin(), ranks.end(),
                       [](const Json& rank) { return !text_at(rank, "end_reason").empty(); });
}

/// Returns whether the earlier result of the same run has evidence that the journals of the new report lack.
bool holds_more(const Json& earlier, const RunReport& made, const std::vector<int>& missing) {
  const bool is_cut = ends_in(earlier) > ends_in(made.result);
  if (missing.empty() && !is_cut && made.verdict.has_all_evidence) return false;
  if (!earlier.is_object() || member(earlier, "run_id") != member(made.result, "run_id")) return false;
  if (value_at<int>(earlier, "schema") != result_schema || !value_at<int>(earlier, "exit_code")) return false;
  const int before = weight_of(earlier), now = weight_of(made.result);
  return before > now || (before == now && is_cut) ||
         (before == now &&
          std::any_of(missing.begin(), missing.end(), [&](int rank) { return has_rank(earlier, rank); }));
}

/// Converts the earlier result to a report.
RunReport kept_report(Json earlier, const std::vector<int>& missing) {
  RunReport report;
  report.verdict.name = text_at(earlier, "verdict");
  report.verdict.exit_code = value_at<int>(earlier, "exit_code").value_or(exit_code::incomplete);
  for (const Json& reason : member(earlier, "reasons"))
    if (reason.is_string()) report.verdict.reasons.push_back(reason.get<std::string>());
  report.verdict.has_all_evidence = false;
  const std::string what = missing.empty()
                               ? "records are missing"
                               : fmt::format("missing journals: rank{} {}", missing.size() > 1 ? "s" : "",
                                             fmt::join(missing, ", "));
  report.warnings = {fmt::format("{}; the earlier result ({}) is kept", what, report.verdict.name)};
  report.summary = summary_text(earlier);
  report.result = std::move(earlier);
  return report;
}

}  // namespace

RunReport report_of(const std::vector<Record>& records, const std::vector<std::string>& problems) {
  RunReport report;
  const Json& start = first_start(records);
  if (text_at(start, "command") == "selftest") {
    SelftestOutcome outcome = conclude_selftest(plan_of(start), records);
    report = {.verdict = std::move(outcome.verdict),
              .result = {},
              .summary = std::move(outcome.table),
              .warnings = {}};
    report.result = std::move(outcome.result);
  } else {
    report.verdict = judge(records);
    report.result = build_result(records, report.verdict);
    report.summary = summary_text(report.result);
  }
  lose_evidence(report.verdict, problems);
  set_verdict(report.result, report.verdict);
  return report;
}

Result<RunReport> report_directory(const std::string& directory) {
  EGT_TRY(await_writers(directory, writers_patience_s));
  TimeLines lines;
  EGT_TRY_ASSIGN(const Journals journals, read_journals(directory, JournalContent::evidence, &lines));
  EGT_TRY(check_schema(directory, journals.records));
  RunReport report = report_of(journals.records, journals.problems);
  const std::string path = directory + "/result.json", text = result_text(report.result);
  const std::string before = file_text(path);
  const std::vector<int> missing = ranks_without_records(journals.records);
  if (Json earlier = Json::parse(before, nullptr, false); holds_more(earlier, report, missing))
    return kept_report(std::move(earlier), missing);
  if (before != text) EGT_TRY(write_atomically(path, text));
  report.warnings = write_result_files(directory, report.result, lines);
  return report;
}

}  // namespace egt
