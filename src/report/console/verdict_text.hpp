#pragma once

#include <string>

#include "egt/core/record.hpp"
#include "judge/verdict.hpp"
#include "report/console/console_style.hpp"

namespace egt {

/// The last words of a run, several lines without a newline behind them: the verdict with its reasons, what
/// was verified, and what its load and its training steps came to; with where the files are, also report.html
/// if it is there. `has_result`: is result.json one of them?
std::string verdict_text(const ConsoleStyle& style, const Verdict& verdict, const Json& result,
                         const std::string& directory, bool has_result);

}  // namespace egt
