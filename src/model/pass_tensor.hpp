#pragma once

#include <cstddef>
#include <string>

#include "egt/core/flip.hpp"

namespace egt {

/// Results of a pass for one layer, in the order of computation: forward from the first layer, then backward
/// from the last.
enum class TensorKind {
  product,          ///< z = h W^T of the layer, before its bias
  extreme,          ///< bits of the transcendental chains in a hidden layer's activation
  activation,       ///< output of a hidden layer
  output_gradient,  ///< gradient of the loss with respect to the last layer's outputs
  input_product,    ///< gradient of the layer's inputs, before masking
  weight_gradient,  ///< gradient of the layer's weights and bias on this rank, before the all-reduce
  input_gradient,   ///< gradient of the layer's inputs
  // One per bucket, `layer` is its lowest, only with MlpConfig::top_k_share. Replays use twice the gradient
  sent_gradient,  ///< top-k elements by magnitude and their indices
  kept_gradient,  ///< those elements merged with the unsent ones
  // For a bucket that contains a part of the layer; for injections
  sent_terms,    ///< this rank's input of the gradient all-reduce
  received_sum,  ///< this rank's result of the gradient all-reduce
};

struct PassTensor {
  TensorKind kind = TensorKind::product;
  int layer = 0;  ///< from 0

  friend bool operator==(const PassTensor&, const PassTensor&) = default;
};

/// Example: "product of layer 3". Layers count from 1 in text.
std::string to_string(const PassTensor& tensor);

/// The tensors that training keeps across steps.
enum class StateKind { weights, first_moment, second_moment };

struct StateTensor {
  StateKind kind = StateKind::weights;
  int layer = 0;  ///< from 0

  friend bool operator==(const StateTensor&, const StateTensor&) = default;
};

/// Examples: "weights of layer 3", "momentum of layer 3".
std::string to_string(const StateTensor& tensor);

/// The passes of a step: `first` is used for training, and `second` provides digests for comparison.
enum class StepPass { any, first, second };

/// An injected fault in a tensor's words, applied each time such a pass computes the tensor.
struct TensorFault {
  PassTensor tensor;
  Flip flip;     ///< words of the tensor; for a weight gradient, of its last computed piece
  int turn = 0;  ///< iteration of the transcendental chains that gives wrong bits; only if they are digested
  StepPass of = StepPass::any;  ///< any: includes replays
  std::size_t bucket = 0;       ///< gradient bucket, for sent_terms and received_sum
};

}  // namespace egt
