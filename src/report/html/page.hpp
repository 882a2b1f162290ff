#pragma once

#include <string>

#include "egt/core/record.hpp"
#include "report/html/time_lines.hpp"

namespace egt {

/// A run's result as one HTML file for people, which needs nothing else: a pure function. The result may be
/// of another version, or cut.
std::string page_text(const Json& result, const TimeLines& lines);

/// The same of a run that goes on, whose `result` has "running": true: its script asks the server that it
/// came from for what is new (`live_parts_text`, and time_lines_json of page::), without one it reloads.
std::string live_page_text(const Json& result, const TimeLines& lines);
/// That page without its styles, its scripts and what the charts show.
std::string live_parts_text(const Json& result, const TimeLines& lines);

}  // namespace egt
