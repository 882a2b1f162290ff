#include "egt/command/commands.hpp"
#include "egt/report/console.hpp"
#include "egt/session/run_report.hpp"

namespace egt {

Result<int> run_report(const Options& options) {
  EGT_TRY_ASSIGN(const RunReport report, report_directory(options.directory));
  const auto console = open_console(detect_console_style(options.common.progress));
  if (!report.summary.empty()) console->on_summary(report.summary);
  console->on_verdict(report.verdict, report.result, options.directory);
  return report.verdict.exit_code;
}

}  // namespace egt
