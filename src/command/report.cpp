#include <iostream>

#include "egt/command/commands.hpp"
#include "egt/report/console.hpp"
#include "egt/session/run_report.hpp"

namespace egt {

Result<int> run_report(const Options& options) {
  EGT_TRY_ASSIGN(const RunReport report, report_directory(options.directory));
  Console console(detect_console_style(options.common.progress), std::cout, std::cerr, [] { return 0.0; });
  if (!report.summary.empty()) console.on_summary(report.summary);
  console.on_verdict(report.verdict, report.result, options.directory);
  return report.verdict.exit_code;
}

}  // namespace egt
