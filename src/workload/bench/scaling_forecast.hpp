#pragma once

#include <cstdint>
#include <vector>

#include "egt/workload/workload.hpp"
#include "workload/bench/scaling_entry.hpp"

namespace egt {

constexpr int first_forecast_ranks = 4, most_forecast_ranks = 4096;

/// Of how many all-reduces a step of this network is on several devices, the one that tells of the step
/// counted.
double sums_per_step(const std::vector<std::int64_t>& layers);

/// The share of a step's floating-point operations that follows the first bucket of gradients.
double overlap_share(const std::vector<std::int64_t>& layers);

/// For each test of `mlp` a ScalingModel, fitted on ranks 0 and 1: one report each, with its parameters and
/// the rows of the forecast, from the first power of two beyond what was measured; or with the reason why
/// there is none. Of the entries that it has not seen it puts in what it expects. `layers`: neurons, input
/// first.
std::vector<PartReport> forecast(std::vector<BenchEntry>& entries, const std::vector<std::int64_t>& layers);

}  // namespace egt
