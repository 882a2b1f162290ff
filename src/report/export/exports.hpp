#pragma once

#include <string>

#include "egt/core/record.hpp"

/// A result in the formats of other programs: pure functions of what result.json holds.
namespace egt {

/// A result as JUnit XML, for CI systems: a suite of the run (the verdict, what all ranks did together) and
/// one a rank that has anything of its own. A testcase is the verdict, an entry of the result's `results[]`,
/// or a rank that was lost or could not go on. A `failure` is wrong or slow; an `error` was not done, or the
/// verdict says nothing; `skipped` was not done because somebody ended the run. Valid XML 1.0 whatever
/// the result holds, and made for the stricter of the known schemas.
std::string junit_xml(const Json& result);

/// A result in Prometheus' text exposition format, for the textfile collector of its node exporter: gauges in
/// base units (seconds, bytes, watts, degrees Celsius, ratios), those of a rank with the labels `rank`,
/// `hostname` and, where there is one, `device_uuid`. What was not measured is left out; nothing is NaN.
std::string prometheus_text(const Json& result);

}  // namespace egt
