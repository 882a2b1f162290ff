#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "egt/workload/workload.hpp"
#include "model/mlp_trainer.hpp"
#include "workload/options.hpp"
#include "workload/train/training_checks.hpp"

namespace egt {

/// What the parts of the main job are asked to do.
struct BurnParts {
  TrainOptions train;
  BatchShare batch;
  std::vector<std::int64_t> most_samples;  ///< of a step, that each rank has memory for; empty: even shares
  CollectiveOptions collective;
  MemoryOptions memory;
  FileOptions file;
  std::optional<ReadinessOptions> readiness;  ///< none: the main job alone
  GoldenBook golden;
};

/// The one table of the main job's workloads, in the order in which they take memory and are served each
/// step. `parts` outlives them; its golden book takes what they find.
std::vector<std::unique_ptr<Workload>> make_burn_workloads(Environment& environment, BurnParts& parts);

}  // namespace egt
