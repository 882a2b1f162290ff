#include "session/run_report.hpp"

#include <fstream>
#include <sstream>
#include <utility>

#include <fmt/format.h>

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

constexpr double writers_patience_s = 10;  // ranks whose mpirun has ended write their last words for so long

/// Null where no rank left one.
const Json& first_start(const std::vector<Record>& records) {
  static const Json none;
  for (const Record& record : records)
    if (record.kind == RecordKind::start) return record.body;
  return none;
}

/// Empty where there is no such file.
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
  if (file_text(path) != text) EGT_TRY(write_atomically(path, text));
  report.warnings = write_result_files(directory, report.result, lines);
  return report;
}

}  // namespace egt
