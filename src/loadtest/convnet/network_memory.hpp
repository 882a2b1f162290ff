#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "egt/device/device.hpp"
#include "loadtest/convnet/network_plan.hpp"

namespace egt {

/// Weights of a network: fp32 master weights, their copy in the compute type, and running statistics (all
/// means, then all variances).
struct NetworkParameters {
  Buffer weights, copy, statistics;
};

/// Device memory of a network's passes.
class NetworkMemory {
 public:
  /// `type`: of activations. `plan` must outlive it. All memory but the initial weights is zeroed.
  NetworkMemory(Device& device, const NetworkPlan& plan, ElementType type)
      : device_(device), plan_(plan), type_(type) {}
  /// `trains`: also allocates gradients and momentum.
  Status take(bool trains, Stream& stream);
  /// He initialization; waits for `stream`.
  Status initialize(const NetworkParameters& set, std::uint64_t seed, Stream& stream) const;

  /// The logits are fp32 in every precision.
  ElementType type_of(int tensor) const {
    return static_cast<std::size_t>(tensor) + 1 == plan_.tensors.size() ? ElementType::f32 : type_;
  }
  /// Views with one row per pixel (`pixels`) or per image (`rows`).
  MatrixView pixels(int tensor, void* data) const;
  MatrixView rows(int tensor, void* data) const;
  VectorView vector(int tensor, void* data) const;
  void* activation(int tensor) const { return activations_[static_cast<std::size_t>(tensor)].data(); }
  WordsView activation_words(int tensor) const;
  /// May share memory with another tensor's gradient that is no longer needed.
  void* gradient_of(int tensor) const { return gradients_[static_cast<std::size_t>(tensor)]; }
  /// True if the backward pass has already computed part of the gradient of layer `l`'s x when it reaches the
  /// layer. The layer's own contribution is then computed into `term` and added.
  bool adds(std::size_t l) const { return adds_[l]; }
  /// Weights of a layer in the compute type, row-major outputs x inputs.
  void* compute_weights(const NetworkParameters& set, const NetworkLayer& layer) const;
  BatchNormState batch_norm(const NetworkParameters& set, const NetworkLayer& layer) const;

  NetworkParameters trained, initial;
  Buffer velocity, gradient;              ///< fp32, in the flat layout of the weights
  Buffer images, labels, losses, larger;  ///< see ConvNet
  Buffer ones;                            ///< fp32, one per image
  Buffer zero;           ///< fp32, one per channel of the widest tensor: the bias of layers without one
  Buffer unused;         ///< as large as `zero`; receives column sums that are not used
  Buffer narrow_logits;  ///< gradients of the logits in the compute type; empty if that is fp32
  Buffer term;           ///< a contribution that is added to an existing gradient of the same tensor

 private:
  Status take_gradients(Stream& stream);

  Device& device_;
  const NetworkPlan& plan_;
  const ElementType type_;
  Buffer saved_statistics_;
  std::vector<Buffer> activations_, gradient_memory_;
  std::vector<void*> gradients_;
  std::vector<bool> adds_;
};

}  // namespace egt
