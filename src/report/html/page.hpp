#pragma once

#include <string>
#include <vector>

#include "egt/core/record.hpp"
#include "report/html/time_lines.hpp"

namespace egt {

/// A run's result as one self-contained HTML file; a pure function. Its script shows the result, which it
/// holds as JSON; without scripts it shows the text report. The result may be truncated or from another
/// version.
std::string page_text(const Json& result, const TimeLines& lines);

/// What only the page of a running run shows.
struct LiveState {
  std::string report;  ///< path of the final report
  double now = 0;      ///< when this state was made, in seconds since 1970
  std::vector<Json> heard =
      {};           ///< by rank: when its last record arrived, in seconds since 1970; null: never
  double done = 0;  ///< completed fraction of the time or step limit, 0 to 1
  double elapsed_seconds = 0;
};
/// The page of a running run, whose `result` has "running": true. Its script polls the server for updates
/// (`live_data_text` and `time_lines_json`). Without scripts the page reloads.
std::string live_page_text(const Json& result, const TimeLines& lines, const LiveState& state);
/// The data of the live page without its time series: JSON.
std::string live_data_text(const Json& result, const LiveState& state);

/// `json` for a <script type="application/json">. No content can close the element or become code.
std::string script_json(Json json);

}  // namespace egt
