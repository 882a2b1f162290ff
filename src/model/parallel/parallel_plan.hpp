#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "egt/core/status.hpp"
#include "egt/core/types.hpp"
#include "model/mlp_config.hpp"
#include "model/parallel/network_part.hpp"

/// Partitioning of a network among ranks. Plain functions with the same result on all ranks.
namespace egt {

/// Number of parts per dimension; their product is the number of ranks. Ranks of a tensor group are adjacent
/// and pipeline stages are farthest apart. So the heaviest traffic stays within one node.
struct ParallelPlan {
  int data = 1;      ///< model copies, each with a share of the batch
  int tensor = 1;    ///< parts of each layer
  int pipeline = 1;  ///< stages: ranges of layers

  int ranks() const { return data * tensor * pipeline; }
  bool is_split() const { return tensor > 1 || pipeline > 1; }
  friend bool operator==(const ParallelPlan&, const ParallelPlan&) = default;
  friend auto operator<=>(const ParallelPlan&, const ParallelPlan&) = default;
};
/// Examples: "tensor", "pipeline 2 x data 2". Lists the dimensions above 1, with sizes if there are several;
/// "one device" if there are none.
std::string to_string(const ParallelPlan& plan);

/// A rank's coordinates in a plan, each from 0.
struct ParallelPlace {
  int data = 0, tensor = 0, stage = 0;
};
/// rank = (stage * plan.data + data) * plan.tensor + tensor, below plan.ranks().
ParallelPlace place_of(const ParallelPlan& plan, int rank);
int rank_of(const ParallelPlan& plan, const ParallelPlace& place);

/// Bytes of training state on a device: weights, their compute copy, the optimizer's moments and gradients.
/// Activations are not included. `neurons`: those that the device holds, input first.
std::uint64_t state_bytes(const std::vector<std::int64_t>& neurons, Precision precision, Optimizer optimizer,
                          ElementType gradient_type);

/// Why this network cannot be partitioned this way, in one line; empty if it can. `batch`: samples per step
/// of all data-parallel copies; `micro_batches`: per copy.
std::string why_not(const ParallelPlan& plan, const std::vector<std::int64_t>& neurons, std::int64_t batch,
                    int micro_batches);

/// Stages that minimize the max stage time, with no stage above `max_bytes`. `layer_ms`: forward and
/// backward time of each layer, above 0. `layer_bytes`: its state_bytes. With tensor parallelism, stages end
/// between pairs. invalid_argument: no such cut exists.
Result<std::vector<LayerRange>> cut_stages(const ParallelPlan& plan, const std::vector<double>& layer_ms,
                                           const std::vector<std::uint64_t>& layer_bytes,
                                           std::optional<std::uint64_t> max_bytes);

/// Idle share of a step for a device in a pipeline of equal stages: (p - 1) / (m + p - 1).
double bubble_share(int stages, int micro_batches);

}  // namespace egt
