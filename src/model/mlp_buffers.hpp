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

/// Private to the trainer: the memory that it works in.
namespace egt::mlp {

using EventHandle = std::unique_ptr<Event>;

constexpr float output_gain = 0.1f;  ///< the last layer starts small: see default_learning_rate

/// fp32 master weights of a whole network, and their copy in the type that products read.
class ParameterSet {
 public:
  static Result<ParameterSet> allocate(Device& device, const std::vector<Precision>& precisions,
                                       std::int64_t parameters);
  /// He's initialization (2015), uniform; biases of 0. The copy is not made. `part`: what of a network the
  /// layout is, whose weights are those of the whole there; null: all of it.
  Status initialize(Device& device, const ParameterLayout& layout, const NetworkPart* part,
                    std::uint64_t seed, Stream& stream) const;

  /// As those of a trained network, so that a device that leaves them out computes something else.
  Status randomize_biases(Device& device, const ParameterLayout& layout, std::uint64_t seed,
                          Stream& stream) const;

  /// W of a layer as the products of other precisions than fp8 read it: the master weights, or their copy.
  MatrixView compute_weights(const LinearLayer& layer, Precision precision) const;
  MatrixView master_weights(const LinearLayer& layer) const {
    return {weights.as<float>() + layer.weights, ElementType::f32, layer.outputs, layer.inputs};
  }
  const float* bias(const LinearLayer& layer) const { return weights.as<float>() + layer.bias; }
  /// The biases in the type of the layer's products: master, or copy. Not of fp8.
  VectorView compute_bias(const LinearLayer& layer, Precision precision) const;
  VectorView master() const { return {weights.data(), ElementType::f32, parameters_}; }
  /// The whole copy, or none where products read the master weights.
  VectorView compute_copy(Precision precision) const { return compute_copy_range(precision, 0, parameters_); }
  VectorView compute_copy_range(Precision precision, std::int64_t offset, std::int64_t count) const;

  std::size_t bytes() const { return weights.bytes() + copy_.bytes(); }

  Buffer weights;  ///< fp32, flat

 private:
  Buffer copy_;
  std::int64_t parameters_ = 0;
};

/// What a pass makes on its way: activations, their gradients, and the flat gradient of the weights.
class Workspace {
 public:
  static Result<Workspace> allocate(Device& device, const MlpConfig& config, const ParameterLayout& layout);

  /// The first `rows` samples of the activations of layer l (0: the input), rows x neurons. `pass`: of
  /// NetworkPart::passes.
  MatrixView activation(std::size_t l, Precision precision, std::int64_t rows, std::size_t pass = 0) const;
  /// The whole network's input, which the loss's targets are made of: activation 0, or memory of its own
  /// where a part of a network has the loss and another one the input.
  MatrixView network_input(Precision precision, std::int64_t rows, std::size_t pass) const;
  /// Gradient of activation l; l and l + 1 lie in different memory. Of 0: only in a part without the input.
  MatrixView activation_gradient(std::size_t l, Precision precision, std::int64_t rows) const;
  /// `other`: memory as large as `gradient`, in its place; null: not wanted.
  VectorView gradient_range(std::int64_t offset, std::int64_t count, const Buffer* other = nullptr) const;

  Buffer gradient;   ///< flat, of gradient_type
  Buffer bias_sums;  ///< of one layer, before they are added to the gradient; fp32, of a network's part
  Buffer product;    ///< where a product cannot write gradient_type itself: one piece, wider
  ElementType gradient_type = ElementType::f32;

 private:
  std::vector<Buffer> activations_;
  std::array<Buffer, 2> gradients_;
  Buffer input_gradient_, network_input_;
  std::int64_t network_inputs_ = 0;
  std::vector<std::int64_t> neurons_;
};

/// What a weight-gradient product is written as, before it becomes `gradient_type`.
ElementType product_type(Precision precision, ElementType gradient_type);

}  // namespace egt::mlp
