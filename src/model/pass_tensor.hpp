#pragma once

#include <cstddef>
#include <string>

#include "egt/core/flip.hpp"

namespace egt {

/// What a pass over the network makes of one layer, in the order of its making: forward from the first layer
/// on, then backward from the last.
enum class TensorKind {
  product,          ///< z = h W^T of the layer, before its bias
  extreme,          ///< the bits of the extreme term's chains in a hidden layer's activation
  activation,       ///< what a hidden layer hands on
  output_gradient,  ///< of the loss, by the last layer's outputs
  input_product,    ///< gradient of the layer's inputs, before their mask
  weight_gradient,  ///< of the layer's weights and bias, this rank's own, before it is summed over ranks
  input_gradient,   ///< gradient of the layer's inputs
  // Of a bucket whose lowest layer it is, with MlpConfig::top_k_share; in replays, of twice the gradient
  sent_gradient,  ///< the largest elements and their indices
  kept_gradient,  ///< those and the rest, put together again
  // Of a bucket that the layer has a part of, for injections
  sent_terms,    ///< what this rank puts into the gradient's all-reduce
  received_sum,  ///< what it gets of it
};

struct PassTensor {
  TensorKind kind = TensorKind::product;
  int layer = 0;  ///< from 0

  friend bool operator==(const PassTensor&, const PassTensor&) = default;
};

/// "product of layer 3": layers count from 1 for people.
std::string to_string(const PassTensor& tensor);

/// The tensors that training keeps from step to step.
enum class StateKind { weights, first_moment, second_moment };

struct StateTensor {
  StateKind kind = StateKind::weights;
  int layer = 0;  ///< from 0

  friend bool operator==(const StateTensor&, const StateTensor&) = default;
};

/// "weights of layer 3", "momentum of layer 3".
std::string to_string(const StateTensor& tensor);

/// The passes of a step: the one that training uses, and the one whose digests are compared with it.
enum class StepPass { any, first, second };

/// A tensor's words that an injection changes, each time that such a pass makes it.
struct Tampering {
  PassTensor tensor;
  Flip flip;     ///< words of the tensor; of a weight gradient: of the piece of it that is made last
  int turn = 0;  ///< of the chains of an extreme term: the turn that gives other bits; only where they are
                 ///< digested
  StepPass of = StepPass::any;  ///< any: of replays, too
  std::size_t bucket = 0;       ///< of sent_terms and received_sum: which of the gradient's
};

}  // namespace egt
