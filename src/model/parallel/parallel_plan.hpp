#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "egt/core/status.hpp"
#include "egt/core/types.hpp"
#include "model/mlp_config.hpp"
#include "model/parallel/network_part.hpp"

/// How a network is divided among ranks: plain functions, the same on all ranks.
namespace egt {

/// How many parts each dimension has; their product is the number of ranks. Ranks of one tensor group are
/// neighbours, stages of a pipeline are farthest apart: so what is exchanged most stays on one host.
struct ParallelPlan {
  int data = 1;      ///< replicas, each with a share of the batch
  int tensor = 1;    ///< parts of each layer
  int pipeline = 1;  ///< stages: runs of layers

  int ranks() const { return data * tensor * pipeline; }
  bool is_split() const { return tensor > 1 || pipeline > 1; }
  friend bool operator==(const ParallelPlan&, const ParallelPlan&) = default;
  friend auto operator<=>(const ParallelPlan&, const ParallelPlan&) = default;
};
/// "tensor", "pipeline 2 x data 2": the dimensions above 1, with their sizes where there are several; "one
/// device" where there are none.
std::string to_string(const ParallelPlan& plan);

/// Where a rank stands in a plan, each from 0.
struct ParallelPlace {
  int data = 0, tensor = 0, stage = 0;
};
/// rank = (stage * plan.data + data) * plan.tensor + tensor, below plan.ranks().
ParallelPlace place_of(const ParallelPlan& plan, int rank);
int rank_of(const ParallelPlan& plan, const ParallelPlace& place);

/// Bytes that training keeps on a device from step to step: weights, their copy for products, the optimizer's
/// moments and gradients; activations come on top. `neurons`: what the device holds, input first.
std::uint64_t state_bytes(const std::vector<std::int64_t>& neurons, Precision precision, Optimizer optimizer,
                          ElementType gradient_type);

/// Why this network cannot be divided so, in one line; empty: it can. `batch`: samples of a step of all
/// replicas; `micro_batches`: of a replica.
std::string why_not(const ParallelPlan& plan, const std::vector<std::int64_t>& neurons, std::int64_t batch,
                    int micro_batches);

/// Stages such that the one that takes longest takes as short as can be, and none holds more than
/// `most_bytes`: `layer_ms`: forward and backward of each layer, above 0; `layer_bytes`: its state_bytes.
/// With a tensor dimension stages end between pairs. invalid_argument: there is no such cut.
Result<std::vector<LayerRange>> cut_stages(const ParallelPlan& plan, const std::vector<double>& layer_ms,
                                           const std::vector<std::uint64_t>& layer_bytes,
                                           std::optional<std::uint64_t> most_bytes);

/// The share of a step in which a device of a pipeline of equal stages waits: (p - 1) / (m + p - 1).
double bubble_share(int stages, int micro_batches);

}  // namespace egt
