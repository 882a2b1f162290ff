#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "egt/core/types.hpp"
#include "egt/device/device.hpp"
#include "model/parallel/network_part.hpp"

/// Configuration of the multilayer perceptron and its training.
namespace egt {

enum class Optimizer { sgd, adam };

/// This rank's samples of each global batch: [first, first + local).
struct BatchShare {
  std::int64_t global = 0;
  std::int64_t first = 0;
  std::int64_t local = 0;
};

struct MlpConfig {
  std::vector<std::int64_t> neurons;  ///< neurons per layer, input first
  BatchShare batch;                   ///< in force until `set_shares` is called
  std::int64_t max_samples = 0;       ///< max samples of this rank per step; 0: those of `batch`
  std::vector<Precision>
      precisions;  ///< all precisions that `set_precision` may receive; buffers fit the widest
  Optimizer optimizer = Optimizer::sgd;
  double learning_rate = 0;
  float momentum = 0.9f;                         ///< for SGD; 0: no velocity is kept
  ElementType gradient_type = ElementType::f32;  ///< type of the gradient all-reduce
  /// Share of each bucket's gradient elements that a rank sends, selected by top-k magnitude. The unsent ones
  /// are added to its next gradient. 0: full all-reduce. Only with fp32 gradients.
  double top_k_share = 0;
  int extreme_iterations = 0;
  std::uint64_t seed = 0;
  bool keeps_states = false;             ///< allocates memory for `keep_state`
  bool has_second_pass = false;          ///< allocates memory for a second pass of each step
  std::optional<NetworkPart> part = {};  ///< the network part described by `neurons`; empty: a whole network
};

/// Whether the device can train in this precision.
Support supports_training(const Device& device, Precision precision);

/// Samples per rank and neurons of every layer must be a multiple of this in these precisions.
std::int64_t samples_unit(const std::vector<Precision>& precisions);

/// A learning rate at which this network does not diverge, given its initialization and loss (see
/// mlp_config.cpp for the estimate). `global_batch`: samples per step over all ranks, above 0.
double default_learning_rate(const std::vector<std::int64_t>& neurons, Optimizer optimizer,
                             std::int64_t global_batch);

/// Floating-point operations of the GEMMs per step and sample: forward, weight gradients, and input gradients
/// of all layers but the first.
double flops_per_sample(const std::vector<std::int64_t>& neurons);

/// Device memory in bytes that a pass needs per sample: activations, the gradients of two layers, and in fp8
/// the quantized copies of both.
std::size_t bytes_per_sample(const std::vector<std::int64_t>& neurons,
                             const std::vector<Precision>& precisions);

}  // namespace egt
