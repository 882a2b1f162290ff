#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#include "egt/core/record.hpp"

/// Summary lines of each command, printed above the verdict. Pure functions of the result (see build_result),
/// so `report DIR` prints the same. The result may be truncated or from another version.
namespace egt {

/// The summary of the result's command; empty if it has none.
std::string summary_text(const Json& result);

/// Faults and their repeats by rank; -1: the rank is not known.
std::map<int, std::uint64_t> faults_by_rank(const Json& result);

/// A headline and one row per device, for every command: errors, power, temperatures, clock, throttled time,
/// deviation from the peers' median of training throughput, new corrected memory errors (ECC). Columns
/// without a value are left out. Of more than 16 devices, those with errors, findings or the largest
/// deviation are shown. `columns`: width of the terminal; 0: no limit. Empty without ranks.
std::string device_table(const Json& result, std::size_t columns);
/// The same for report.html: every device, with the cells to mark. Null without ranks.
Json device_cells(const Json& result);
/// The seeds' table of configurations at one size per workload, then all measurements by workload.
std::string bench_text(const Json& result);
/// For `bench --parallel`: all modes of each test, the pipeline stages, and the best mode. Empty if only data
/// parallelism was measured.
std::string parallel_text(const Json& result, const std::string& title = "Parallel");
/// For `bench --ceilings`: every part compared with its hardware limit, by group, over all ranks. Empty if
/// the result has none.
std::string ceilings_text(const Json& result);
/// For `links`: pairs of ranks, matrices of bandwidth, latency and link type (as in `nvidia-smi topo -m`),
/// copies between devices and their host memory, collectives, a summary and warnings.
std::string links_text(const Json& result);
/// The tests, then single device versus all as in the seed's table; empty if the result has none.
std::string loadtest_text(const Json& result);
/// As in the seeds' quick check: the configuration, every device's use, and the operations.
std::string verify_text(const Json& result);

}  // namespace egt
