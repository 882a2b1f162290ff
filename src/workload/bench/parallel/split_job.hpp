#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "model/parallel/split_mlp.hpp"
#include "workload/bench/bench_groups.hpp"
#include "workload/bench/bench_job.hpp"

namespace egt {

struct SplitJobConfig {
  SplitConfig split;
  std::int64_t trial = 0;  ///< trial at which injections are due
  bool fuses = false;      ///< steps use FusedInput instead of random numbers
  /// Limit of a device's state. A larger whole network is not built for the comparison.
  std::optional<std::uint64_t> max_state_bytes;
};

/// Trains a network in parts on all ranks of its plan, the first ones. The references outlive the job.
Result<std::unique_ptr<BenchJob>> make_split_job(Environment& environment, BenchGroups& groups,
                                                 const SplitJobConfig& config, FaultReporter& reporter);

}  // namespace egt
