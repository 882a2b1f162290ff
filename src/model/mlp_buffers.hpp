#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "egt/core/status.hpp"
#include "egt/core/types.hpp"
#include "egt/device/device.hpp"
#include "model/mlp_config.hpp"
#include "model/parameter_layout.hpp"

/// Private to the trainer: its device memory.
namespace egt::mlp {

using EventHandle = std::unique_ptr<Event>;

constexpr float output_gain = 0.1f;  ///< reduces the initial output; see default_learning_rate

/// fp32 master weights of a whole network or part, and their copy in the compute type.
class ParameterSet {
 public:
  static Result<ParameterSet> allocate(Device& device, const std::vector<Precision>& precisions,
                                       std::int64_t parameters);
  /// He initialization (2015), uniform; biases are 0. Does not write the compute copy. `part`: the network
  /// part that the layout describes, with the same weights as in the whole network; null: the whole network.
  Status initialize(Device& device, const ParameterLayout& layout, const NetworkPart* part,
                    std::uint64_t seed, Stream& stream) const;

  /// Sets nonzero biases as in a trained network, so that a device that skips them is detected.
  Status randomize_biases(Device& device, const ParameterLayout& layout, std::uint64_t seed,
                          Stream& stream) const;

  /// W of a layer as GEMMs read it in any precision but fp8: the master weights or their copy.
  MatrixView compute_weights(const LinearLayer& layer, Precision precision) const;
  MatrixView master_weights(const LinearLayer& layer) const {
    return {weights.as<float>() + layer.weights, ElementType::f32, layer.outputs, layer.inputs};
  }
  const float* bias(const LinearLayer& layer) const { return weights.as<float>() + layer.bias; }
  /// The biases in the type of the layer's GEMM: master or copy. Not for fp8.
  VectorView compute_bias(const LinearLayer& layer, Precision precision) const;
  VectorView master() const { return {weights.data(), ElementType::f32, parameters_}; }
  /// The whole copy, or an empty view if GEMMs read the master weights.
  VectorView compute_copy(Precision precision) const { return compute_copy_range(precision, 0, parameters_); }
  VectorView compute_copy_range(Precision precision, std::int64_t offset, std::int64_t count) const;

  std::size_t bytes() const { return weights.bytes() + copy_.bytes(); }

  Buffer weights;  ///< fp32, flat

 private:
  Buffer copy_;
  std::int64_t parameters_ = 0;
};

/// Intermediate results of a pass: activations, their gradients, and the flat gradient of the weights.
class Workspace {
 public:
  static Result<Workspace> allocate(Device& device, const MlpConfig& config, const ParameterLayout& layout);

  /// The first `rows` samples of the activations of layer l (0: the input), rows x neurons. `pass`: which
  /// kept activations, below NetworkPart::passes.
  MatrixView activation(std::size_t l, Precision precision, std::int64_t rows, std::size_t pass = 0) const;
  /// The whole network's input, from which the loss computes its targets. It is activation 0, or separate
  /// memory if this part has the loss but not the input.
  MatrixView network_input(Precision precision, std::int64_t rows, std::size_t pass) const;
  /// Gradient of activation l, in other memory than that of l + 1. l = 0 only in a part without the input.
  MatrixView activation_gradient(std::size_t l, Precision precision, std::int64_t rows) const;
  /// `other`: a buffer of the same size to use instead of `gradient`; null: uses `gradient`.
  VectorView gradient_range(std::int64_t offset, std::int64_t count, const Buffer* other = nullptr) const;

  Buffer gradient;   ///< flat, of gradient_type
  Buffer bias_sums;  ///< fp32, for one layer of a network part, before they are added to the gradient
  Buffer product;    ///< one gradient piece in a wider type, if a GEMM cannot write gradient_type
  ElementType gradient_type = ElementType::f32;

 private:
  std::vector<Buffer> activations_;
  std::array<Buffer, 2> gradients_;
  Buffer input_gradient_, network_input_;
  std::int64_t network_inputs_ = 0;
  std::vector<std::int64_t> neurons_;
};

/// The type in which a weight-gradient GEMM writes its result, before the cast to `gradient_type`.
ElementType product_type(Precision precision, ElementType gradient_type);

}  // namespace egt::mlp
