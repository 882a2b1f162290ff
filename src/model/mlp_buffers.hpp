#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "egt/model/mlp_trainer.hpp"

/// Private to the trainer: the memory that it works in.
namespace egt::mlp {

using EventHandle = std::unique_ptr<Event>;

/// All device memory of the trainer, as views for the precision of the moment.
class Buffers {
 public:
  static Result<Buffers> allocate(Device& device, const MlpConfig& config, const ParameterLayout& layout);

  /// Activations of layer l (0: the input), batch x neurons.
  MatrixView activation(std::size_t l, Precision precision) const;
  /// Gradient of activation l; l and l + 1 lie in different memory.
  MatrixView activation_gradient(std::size_t l, Precision precision) const;
  /// W of a layer in the type that products read: the master weights, or their copy.
  MatrixView compute_weights(const LinearLayer& layer, Precision precision) const;
  const float* bias(const LinearLayer& layer) const { return weights.as<float>() + layer.bias; }
  VectorView gradient_range(std::int64_t offset, std::int64_t count) const;
  /// The whole copy, or none where products read the master weights.
  VectorView compute_copy(Precision precision) const;
  VectorView compute_copy_range(Precision precision, std::int64_t offset, std::int64_t count) const;

  Buffer weights, first_moment, second_moment;  ///< fp32, flat; moments where the optimizer has them
  Buffer gradient;                              ///< flat, of gradient_type
  Buffer product;  ///< where a product cannot write gradient_type itself: one piece, wider
  ElementType gradient_type = ElementType::f32;

 private:
  Buffer copy_;  // weights in the type of products
  std::vector<Buffer> activations_;
  std::array<Buffer, 2> gradients_;
  std::vector<std::int64_t> neurons_;
  std::int64_t batch_ = 0;
  std::int64_t parameters_ = 0;
};

/// What a weight-gradient product is written as, before it becomes `gradient_type`.
ElementType product_type(Precision precision, ElementType gradient_type);

}  // namespace egt::mlp
