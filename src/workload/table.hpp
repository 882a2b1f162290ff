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

/// Options and inputs of the main job's parts.
struct BurnParts {
  TrainOptions train;
  BatchShare batch;
  std::vector<std::int64_t> max_samples;  ///< max samples per step by rank memory; empty: even shares
  CollectiveOptions collective;
  MemoryOptions memory;
  FileOptions file;
  std::optional<ReadinessOptions> readiness;  ///< unset: main job only
  GoldenBook golden;
};

/// Creates the main job's workloads, in the order in which they allocate memory and are served each step.
/// `parts` must outlive them; they add new known answers to its golden book.
std::vector<std::unique_ptr<Workload>> make_burn_workloads(Environment& environment, BurnParts& parts);

}  // namespace egt
