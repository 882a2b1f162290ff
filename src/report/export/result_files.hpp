#pragma once

#include <string>
#include <vector>

#include "egt/core/file_io.hpp"
#include "egt/core/record.hpp"
#include "report/html/time_lines.hpp"

namespace egt {

/// A result as JUnit XML, for CI systems: a suite of the run (the verdict, what all ranks did together) and
/// one a rank that has anything of its own. A testcase is the verdict, an entry of the result's `results[]`,
/// or a rank that was lost or could not go on. A `failure` is wrong or slow; an `error` was not done, or the
/// verdict says nothing; `skipped` was not done because the run was interrupted. Valid XML 1.0 whatever
/// the result holds, and made for the stricter of the known schemas.
std::string junit_xml(const Json& result);

/// A result in Prometheus' text exposition format, for the textfile collector of its node exporter: gauges in
/// base units (seconds, bytes, watts, degrees Celsius, ratios), those of a rank with the labels `rank`,
/// `hostname` and, where there is one, `device_uuid`. What was not measured is left out; nothing is NaN.
std::string prometheus_text(const Json& result);

/// A file of a run's directory that is made of its result and of its records over time: `report` can make it
/// at any time.
struct ResultFile {
  const char* name;
  std::string (*text)(const Json& result, const TimeLines& lines);
};
const std::vector<ResultFile>& result_files();

/// Writes them into `directory`, where they are not the same already; readers see an old file or a whole one.
/// They are no evidence, so what goes wrong here changes no verdict: the answer is a line for each that
/// cannot be written, which is then gone, as far as that can be done, rather than one of another result. Any
/// thread.
std::vector<std::string> write_result_files(const std::string& directory, const Json& result,
                                            const TimeLines& lines, Durability durability = Durability::disk);

/// The list of hosts that --nodes-file asks for; nothing where `path` is empty. Errors are one line.
Status write_node_list(const std::string& path, const Json& result);

}  // namespace egt
