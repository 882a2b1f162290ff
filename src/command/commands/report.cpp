#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cstdio>

#include "command/commands.hpp"
#include "egt/core/json_access.hpp"
#include "egt/core/units.hpp"
#include "report/console/console.hpp"
#include "report/export/result_files.hpp"
#include "session/run_report.hpp"
#include "workload/file/file_claim.hpp"

namespace egt {
namespace {

/// Removes test files of killed ranks of this node, since perhaps no later run cleans up their folder.
void remove_test_files(const Json& result) {
  const std::string folder = text_at(member(result, "options"), "io-dir");
  std::array<char, 256> hostname{};
  if (folder.empty() || ::gethostname(hostname.data(), hostname.size() - 1) != 0) return;
  if (const Leftovers removed = remove_leftover_files(folder, hostname.data()); removed.files > 0)
    fmt::print(stderr, "extreme_gpu_trainer: {} of ranks that were killed removed from {}\n",
               counted(static_cast<std::uint64_t>(removed.files), "test file"), folder);
}

}  // namespace

Result<int> run_report(const Options& options) {
  EGT_TRY_ASSIGN(const RunReport report, report_directory(options.path));
  const auto console = open_console(detect_console_style(ProgressStyle::automatic));
  for (const std::string& warning : report.warnings) console->on_warning(warning);
  for (const std::string& problem : write_requested_files(options.common.requested_files, report.result))
    console->on_warning(problem);
  if (!report.summary.empty()) console->on_summary(report.summary);
  console->on_verdict(report.verdict, report.result, options.path);
  remove_test_files(report.result);
  return report.verdict.exit_code;
}

}  // namespace egt
