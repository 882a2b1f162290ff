#pragma once

#include <string>
#include <vector>

#include "egt/core/file_io.hpp"
#include "egt/core/record.hpp"
#include "report/html/time_lines.hpp"

namespace egt {

/// The result as JUnit XML for CI systems. It has a suite for the run (verdict and work of all ranks) and one
/// per rank with own entries. A testcase is the verdict, an entry of `results[]`, or a rank that was lost or
/// could not continue. `failure`: wrong or slow. `error`: not done, or the verdict is inconclusive.
/// `skipped`: the run was interrupted first. Always valid XML 1.0 for the stricter of the known schemas.
std::string junit_xml(const Json& result);

/// The result in Prometheus' text format, for the node exporter's textfile collector. Gauges in base units
/// (seconds, bytes, watts, degrees Celsius, ratios). Gauges of a rank have the labels `rank`, `hostname` and,
/// if known, `device_uuid`. Unmeasured values are omitted; none is NaN.
std::string prometheus_text(const Json& result);

/// The result as JSON lines of OCP Test and Validation output 2.0: a test step per entry of `results[]` with
/// its values and a diagnosis, and a last step "verdict" with all faults and findings. `hardwareInfoId` is
/// the rank. Valid for its JSON Schema whatever `result` is.
std::string ocp_text(const Json& result);

/// A file in the run directory, built from the result and the time series. `report` can rebuild it at any
/// time.
struct ResultFile {
  const char* name;
  std::string (*text)(const Json& result, const TimeLines& lines);
};
const std::vector<ResultFile>& result_files();

/// Writes the files into `directory` if they changed. Readers see the old file or the complete new one. The
/// files are no evidence, so errors do not change the verdict. Returns one line per file that cannot be
/// written. Such a file is removed if possible, so that no outdated one remains. Callable from any thread.
std::vector<std::string> write_result_files(const std::string& directory, const Json& result,
                                            const TimeLines& lines, Durability durability = Durability::disk);

/// Files that are written on request, outside the run directory or in it. Empty paths: none.
struct RequestedFiles {
  std::string nodes;  ///< --nodes-file
  std::string ocp;    ///< --ocp
};
/// Returns one line per file that cannot be written. Callable from any thread.
std::vector<std::string> write_requested_files(const RequestedFiles& files, const Json& result);

}  // namespace egt
