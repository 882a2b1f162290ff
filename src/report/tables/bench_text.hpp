#pragma once

#include <string>

#include "egt/core/record.hpp"

namespace egt {

/// What `bench` tells above the verdict: the seeds' table of configurations, at one size of each workload,
/// then all that was measured, workload by workload. Pure; `result` may be of another version, or cut.
std::string bench_text(const Json& result);

}  // namespace egt
