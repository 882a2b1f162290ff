#pragma once

#include <string>

#include "egt/core/record.hpp"

/// What a command tells above the verdict, in lines for people: pure functions of its result (see
/// build_result), so that `report DIR` tells the same. The result may be of another version, or cut.
namespace egt {

/// The command's own; empty: it has nothing to tell.
std::string summary_text(const Json& result);

/// The seeds' table of configurations, at one size of each workload, then all that was measured, workload by
/// workload.
std::string bench_text(const Json& result);
/// Of `bench --parallel`: all modes of a test side by side, how pipelines were cut, and the mode to use;
/// empty: nothing was divided but the batch.
std::string parallel_text(const Json& result, const std::string& title = "Parallel");
/// Of `bench --ceilings`: every part beside the machine's own limit, group by group, over all ranks; empty:
/// the result has none.
std::string ceilings_text(const Json& result);
/// The pairs, matrices of bandwidth, latency and link types (as `nvidia-smi topo -m` has them), devices and
/// their hosts, collectives, a summary and warnings.
std::string links_text(const Json& result);
/// The tests, then single device against all as in the seed's table; empty: the result has none.
std::string loadtest_text(const Json& result);
/// As the seeds' quick check does: the configuration, every device's use, the table of operations.
std::string verify_text(const Json& result);

}  // namespace egt
