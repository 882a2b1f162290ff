#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "egt/device/device.hpp"
#include "model/convnet/network_plan.hpp"

namespace egt {

/// Weights of a network: fp32 master weights, their copy in the type that products read, running statistics
/// (all means, then all variances).
struct NetworkParameters {
  Buffer weights, copy, statistics;
};

/// Device memory of a network's passes.
class NetworkMemory {
 public:
  /// `type`: of activations. `plan` outlives the memory. All but the initial weights is set to 0 on `stream`.
  NetworkMemory(Device& device, const NetworkPlan& plan, ElementType type)
      : device_(device), plan_(plan), type_(type) {}
  /// `trains`: with gradients and momentum.
  Status take(bool trains, Stream& stream);
  /// He's initialization; waits for `stream`.
  Status initialize(const NetworkParameters& set, std::uint64_t seed, Stream& stream) const;

  /// The logits are fp32 in every precision.
  ElementType type_of(int tensor) const {
    return static_cast<std::size_t>(tensor) + 1 == plan_.tensors.size() ? ElementType::f32 : type_;
  }
  /// With a row a pixel, or a row an image.
  MatrixView pixels(int tensor, void* data) const;
  MatrixView rows(int tensor, void* data) const;
  VectorView vector(int tensor, void* data) const;
  void* activation(int tensor) const { return activations_[static_cast<std::size_t>(tensor)].data(); }
  WordsView activation_words(int tensor) const;
  /// May be the memory of another tensor's gradient that is done with it.
  void* gradient_of(int tensor) const { return gradients_[static_cast<std::size_t>(tensor)]; }
  /// Is the gradient of layer `l`'s x made in part already when backward comes to it? Then its own part goes
  /// to `term` first.
  bool adds(std::size_t l) const { return adds_[l]; }
  /// Weights of a layer, W with a row an output, as products read them.
  void* compute_weights(const NetworkParameters& set, const NetworkLayer& layer) const;
  BatchNormState batch_norm(const NetworkParameters& set, const NetworkLayer& layer) const;

  NetworkParameters trained, initial;
  Buffer velocity, gradient;              ///< flat as the weights, fp32
  Buffer images, labels, losses, larger;  ///< as ConvNet tells them
  Buffer ones;                            ///< fp32, one an image
  Buffer zero;           ///< fp32, one a channel of the widest tensor: the bias of what has none
  Buffer unused;         ///< likewise: column sums that nobody wants
  Buffer narrow_logits;  ///< gradients of the logits as products read them; none where that is fp32
  Buffer term;           ///< a gradient that is added to another one of the same tensor

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
