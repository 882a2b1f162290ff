#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "egt/core/types.hpp"
#include "egt/device/device.hpp"
#include "model/parallel/network_part.hpp"

/// What is trained, and how.
namespace egt {

enum class Optimizer { sgd, adam };

/// Which samples of each global batch are this rank's: [first, first + local).
struct BatchShare {
  std::int64_t global = 0;
  std::int64_t first = 0;
  std::int64_t local = 0;
};

struct MlpConfig {
  std::vector<std::int64_t> neurons;  ///< input first
  BatchShare batch;                   ///< until `set_share` says otherwise
  std::int64_t most_samples = 0;      ///< of this rank in a step; 0: those of `batch`
  std::vector<Precision>
      precisions;  ///< all that `set_precision` may be given; buffers are made for the widest
  Optimizer optimizer = Optimizer::sgd;
  double learning_rate = 0;
  float momentum = 0.9f;                         ///< of SGD; 0: no velocity is kept
  ElementType gradient_type = ElementType::f32;  ///< of the sums over ranks
  /// Of each bucket's elements of a gradient, those of the largest magnitude, which are all that a rank
  /// sends; the rest is added to its next gradient. 0: the whole is summed. Only with fp32 gradients.
  double top_k_share = 0;
  int extreme_iterations = 0;
  std::uint64_t seed = 0;
  bool keeps_states = false;             ///< memory for `keep_state` is taken
  bool has_second_pass = false;          ///< memory for a second pass of each step is taken
  std::optional<NetworkPart> part = {};  ///< that `neurons` are; none: a whole network
};

/// Can the device train in this precision?
Support supports_training(const Device& device, Precision precision);

/// What a rank's samples, and all layers' neurons, are multiples of in these precisions.
std::int64_t samples_unit(const std::vector<Precision>& precisions);

/// A learning rate at which this network, with its initialization and loss, does not diverge (see
/// mlp_config.cpp for the estimate). `global_batch`: samples a step, of all ranks; above 0.
double default_learning_rate(const std::vector<std::int64_t>& neurons, Optimizer optimizer,
                             std::int64_t global_batch);

/// Floating-point operations of the matrix products of one step and sample: forward, weight gradients, and
/// input gradients of all layers but the first.
double flops_per_sample(const std::vector<std::int64_t>& neurons);

/// Bytes of device memory that a pass takes for a sample: activations, the gradients of two layers, and in
/// fp8 the quantized copies of both.
std::size_t bytes_per_sample(const std::vector<std::int64_t>& neurons,
                             const std::vector<Precision>& precisions);

}  // namespace egt
