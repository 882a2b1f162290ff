#pragma once

#include <string>

#include "egt/core/record.hpp"
#include "report/html/time_lines.hpp"

namespace egt {

/// A run's result as one self-contained HTML file; a pure function. Its script shows the result, which it
/// holds as JSON; without scripts it shows the text report. The result may be truncated or from another
/// version.
std::string page_text(const Json& result, const TimeLines& lines);

/// The page of a running run, whose `result` has "running": true. Its script polls the server for updates
/// (`live_data_text` and `time_lines_json`). Without scripts the page reloads.
std::string live_page_text(const Json& result, const TimeLines& lines);
/// The data of the live page without its time series: JSON.
std::string live_data_text(const Json& result);

/// `json` for a <script type="application/json">. No content can close the element or become code.
std::string script_json(Json json);

}  // namespace egt
