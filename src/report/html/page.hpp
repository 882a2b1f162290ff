#pragma once

#include <string>

#include "egt/core/record.hpp"
#include "report/html/time_lines.hpp"

namespace egt {

/// A run's result as one self-contained HTML file; a pure function. The result may be truncated or from
/// another version.
std::string page_text(const Json& result, const TimeLines& lines);

/// The page of a running run, whose `result` has "running": true. Its script polls the server for updates
/// (`live_parts_text`, and time_lines_json of page::). Without scripts the page reloads.
std::string live_page_text(const Json& result, const TimeLines& lines);
/// The live page without styles, scripts and chart data.
std::string live_parts_text(const Json& result, const TimeLines& lines);

}  // namespace egt
