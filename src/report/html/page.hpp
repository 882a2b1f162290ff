#pragma once

#include <string>

#include "egt/core/file_io.hpp"
#include "egt/core/record.hpp"
#include "egt/core/status.hpp"
#include "report/html/time_lines.hpp"

namespace egt {

/// A run's result as one HTML file for people, which needs nothing else: a pure function. The result may be
/// of another version, or cut. `summary`: what the terminal shows above the verdict.
std::string page_text(const Json& result, const std::string& summary, const TimeLines& lines);

/// Writes report.html there. Beside result.json it is no evidence: a failure is a warning.
Status write_page(const std::string& directory, const std::string& text,
                  Durability durability = Durability::system);

}  // namespace egt
