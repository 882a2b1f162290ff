#include "mlp_buffers.hpp"

#include <algorithm>

namespace egt::mlp {

namespace {

std::size_t widest(const std::vector<Precision>& precisions) {
  std::size_t bytes = 0;
  for (const Precision precision : precisions) bytes = std::max(bytes, size_of(storage_type(precision)));
  return bytes;
}

/// Bytes an element of the weights' copy: the widest of the precisions that need one.
std::size_t copy_width(const std::vector<Precision>& precisions) {
  std::size_t bytes = 0;
  for (const Precision precision : precisions)
    if (storage_type(precision) != ElementType::f32)
      bytes = std::max(bytes, size_of(storage_type(precision)));
  return bytes;
}

std::size_t product_bytes(const MlpConfig& config, const ParameterLayout& layout) {
  std::size_t bytes = 0;
  for (const Precision precision : config.precisions) {
    const ElementType type = product_type(precision, config.gradient_type);
    if (type == config.gradient_type) continue;
    for (const GradientBucket& bucket : layout.buckets())
      for (const GradientPiece& piece : bucket.pieces)
        bytes =
            std::max(bytes, static_cast<std::size_t>(
                                piece.rows * layout.layers()[static_cast<std::size_t>(piece.layer)].inputs) *
                                size_of(type));
  }
  return bytes;
}

}  // namespace

ElementType product_type(Precision precision, ElementType gradient_type) {
  if (precision == Precision::fp64) return ElementType::f64;
  if (gradient_type == ElementType::bf16 && precision == Precision::bf16) return ElementType::bf16;
  return ElementType::f32;
}

Result<Buffers> Buffers::allocate(Device& device, const MlpConfig& config, const ParameterLayout& layout) {
  Buffers buffers;
  buffers.gradient_type = config.gradient_type;
  buffers.neurons_ = config.neurons;
  buffers.batch_ = config.batch.local;
  buffers.parameters_ = layout.size();
  const auto parameters = static_cast<std::size_t>(layout.size());
  const std::size_t width = widest(config.precisions);
  EGT_TRY_ASSIGN(buffers.weights, device.allocate(parameters * sizeof(float)));
  if (config.optimizer == Optimizer::adam || config.momentum != 0.0f) {
    EGT_TRY_ASSIGN(buffers.first_moment, device.allocate(parameters * sizeof(float)));
  }
  if (config.optimizer == Optimizer::adam) {
    EGT_TRY_ASSIGN(buffers.second_moment, device.allocate(parameters * sizeof(float)));
  }
  EGT_TRY_ASSIGN(buffers.gradient, device.allocate(parameters * size_of(config.gradient_type)));
  EGT_TRY_ASSIGN(buffers.copy_, device.allocate(parameters * copy_width(config.precisions)));
  EGT_TRY_ASSIGN(buffers.product, device.allocate(product_bytes(config, layout)));
  for (const std::int64_t n : config.neurons) {
    EGT_TRY_ASSIGN(Buffer activation,
                   device.allocate(static_cast<std::size_t>(n * config.batch.local) * width));
    buffers.activations_.push_back(std::move(activation));
  }
  const std::int64_t largest = *std::max_element(config.neurons.begin(), config.neurons.end());
  for (Buffer& gradient : buffers.gradients_) {
    EGT_TRY_ASSIGN(gradient, device.allocate(static_cast<std::size_t>(largest * config.batch.local) * width));
  }
  return buffers;
}

MatrixView Buffers::activation(std::size_t l, Precision precision) const {
  return {activations_[l].data(), storage_type(precision), batch_, neurons_[l]};
}

MatrixView Buffers::activation_gradient(std::size_t l, Precision precision) const {
  return {gradients_[l % 2].data(), storage_type(precision), batch_, neurons_[l]};
}

MatrixView Buffers::compute_weights(const LinearLayer& layer, Precision precision) const {
  const ElementType type = storage_type(precision);
  char* base = (type == ElementType::f32 ? weights : copy_).as<char>();
  return {base + static_cast<std::size_t>(layer.weights) * size_of(type), type, layer.outputs, layer.inputs};
}

VectorView Buffers::gradient_range(std::int64_t offset, std::int64_t count) const {
  return {gradient.as<char>() + static_cast<std::size_t>(offset) * size_of(gradient_type), gradient_type,
          count};
}

VectorView Buffers::compute_copy(Precision precision) const {
  return compute_copy_range(precision, 0, parameters_);
}

VectorView Buffers::compute_copy_range(Precision precision, std::int64_t offset, std::int64_t count) const {
  const ElementType type = storage_type(precision);
  if (type == ElementType::f32) return {};
  return {copy_.as<char>() + static_cast<std::size_t>(offset) * size_of(type), type, count};
}

}  // namespace egt::mlp
