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
  std::int64_t trial = 0;  ///< that injections are due at
  bool fuses = false;      ///< its steps get FusedInput, not random numbers
  /// Of a device's state: a whole network of more is not made for the comparison.
  std::optional<std::uint64_t> most_state_bytes;
};

/// Trains a network in parts, on all ranks of its plan, which are the first ones. All outlive it.
Result<std::unique_ptr<BenchJob>> make_split_job(Environment& environment, BenchGroups& groups,
                                                 const SplitJobConfig& config, FaultReporter& reporter);

}  // namespace egt
