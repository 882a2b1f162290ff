#pragma once

#include <string>

#include "egt/core/record.hpp"
#include "report/html/time_lines.hpp"

/// Sections of a run's page, as HTML without scripts. Empty if the result has no such data. The result may be
/// truncated or from another version.
namespace egt {
struct Comparison;

namespace page {

/// All faults of selftest are injected, so they are no evidence against a device.
bool is_selftest(const Json& result);
/// The verdict and its reasons, for a run or a comparison. `of`: its subject; `when`: its time.
std::string verdict_header(const Json& result, const std::string& of, const std::string& when);
/// The verdict header, the blamed ranks, and the key metrics.
std::string verdict_section(const Json& result);
/// Faults with their bits; losses, findings, restarts and injected faults.
std::string faults_section(const Json& result);
/// One row per rank.
std::string ranks_section(const Json& result);
/// One heat map per method of measuring pairs.
std::string links_section(const Json& result);
/// One chart per `bench` test: its speed-up over the number of devices, next to the ideal speed-up. Empty if
/// only one number of devices was measured.
std::string scaling_charts(const Comparison& comparison);
/// The scaling charts of a `bench` result.
std::string scaling_section(const Json& result);
/// All metrics of all parts, in tables by subject, below the text that the terminal shows.
std::string results_section(const Json& result);
std::string counters_section(const Json& result);
/// System data that a vendor's support needs.
std::string system_section(const Json& result);

/// A table of the time series, with a small chart for each.
std::string time_lines_section(const TimeLines& lines);
/// Data for the page's script: the series from point `from` on, their limits, and events with their times.
Json time_lines_json(const TimeLines& lines, const Json& result, std::size_t from = 0);

}  // namespace page
}  // namespace egt
