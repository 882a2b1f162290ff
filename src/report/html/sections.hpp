#pragma once

#include <string>

#include "egt/core/record.hpp"
#include "report/html/time_lines.hpp"

/// The parts of a run's page, as HTML that needs no script; empty: the result has nothing of the kind. The
/// result may be of another version, or cut.
namespace egt {
struct Comparison;

namespace page {

/// Its faults are all put in, and say nothing about a device.
bool is_selftest(const Json& result);
/// The verdict and why: of a run or a comparison, `of` what and `when`.
std::string verdict_header(const Json& result, const std::string& of, const std::string& when);
/// The same, whom the faults name, and the figures that tell most.
std::string verdict_section(const Json& result);
/// Faults with their bits; losses, findings, restarts and faults that were put in.
std::string faults_section(const Json& result);
/// A row a rank.
std::string ranks_section(const Json& result);
/// A heat map of each way to measure pairs.
std::string links_section(const Json& result);
/// A chart a test of `bench`: its speed-up against the number of devices, beside that of an ideal machine.
/// Empty: nothing was measured on more than one number of devices.
std::string scaling_charts(const Comparison& comparison);
/// Those of a bench.
std::string scaling_section(const Json& result);
/// Every figure of every part, in tables by what was measured, below what the terminal shows.
std::string results_section(const Json& result);
std::string counters_section(const Json& result);
/// What a manufacturer asks for.
std::string system_section(const Json& result);

/// A table of the lines with a small drawing of each.
std::string time_lines_section(const TimeLines& lines);
/// What the page's script draws: the lines from point `from` on, their limits, and what happened when.
Json time_lines_json(const TimeLines& lines, const Json& result, std::size_t from = 0);

}  // namespace page
}  // namespace egt
