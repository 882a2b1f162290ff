#include "model/mlp_buffers.hpp"

#include <algorithm>
#include <cmath>

namespace egt::mlp {

namespace {

// First random sequence of the weights. A step's sequence is its step number, so the two never collide.
constexpr std::uint64_t weight_sequences = std::uint64_t{1} << 63;

/// Scale of a uniform distribution with variance 2 / inputs.
float initial_scale(std::int64_t inputs, bool last) {
  return (last ? output_gain : 1.0f) * std::sqrt(6.0f / static_cast<float>(inputs));
}

constexpr std::size_t word_bytes = 4;  // tensors are padded to whole words, because digests read whole words

std::size_t widest(const std::vector<Precision>& precisions) {
  std::size_t bytes = 0;
  for (const Precision precision : precisions) bytes = std::max(bytes, size_of(activation_type(precision)));
  return bytes;
}

/// True if a copy of the weights in storage_type persists across steps. fp8 operands are not kept.
bool keeps_copy(Precision precision) {
  return storage_type(precision) != ElementType::f32 && precision != Precision::fp8;
}

/// Bytes per element of the weights' copy: the widest of the precisions that need one.
std::size_t copy_width(const std::vector<Precision>& precisions) {
  std::size_t bytes = 0;
  for (const Precision precision : precisions)
    if (keeps_copy(precision)) bytes = std::max(bytes, size_of(storage_type(precision)));
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
  if (gradient_type == ElementType::bf16 && activation_type(precision) == ElementType::bf16)
    return ElementType::bf16;
  return ElementType::f32;
}

Result<ParameterSet> ParameterSet::allocate(Device& device, const std::vector<Precision>& precisions,
                                            std::int64_t parameters) {
  ParameterSet set;
  set.parameters_ = parameters;
  const auto count = static_cast<std::size_t>(parameters);
  EGT_TRY_ASSIGN(set.weights, device.allocate(count * sizeof(float)));
  EGT_TRY_ASSIGN(set.copy_, device.allocate(count * copy_width(precisions)));
  return set;
}

Status ParameterSet::initialize(Device& device, const ParameterLayout& layout, const NetworkPart* part,
                                std::uint64_t seed, Stream& stream) const {
  EGT_TRY(device.set_zero(weights.data(), weights.bytes(), stream));
  for (std::size_t l = 0; l < layout.layers().size(); ++l) {
    const LinearLayer& layer = layout.layers()[l];
    const std::size_t number = l + (part ? static_cast<std::size_t>(part->layers.first) : 0);
    const std::int64_t inputs = part ? part->neurons[number] : layer.inputs;
    const bool last = l + 1 == layout.layers().size() && (!part || part->has_loss());
    // Complete rows are contiguous in the random sequence, so they are drawn in one call.
    const std::int64_t rows = layer.inputs == inputs ? 1 : layer.outputs;
    const std::int64_t count = layer.outputs * layer.inputs / rows;
    const std::int64_t first = part ? part->outputs(l).first * inputs + part->inputs(l).first : 0;
    for (std::int64_t row = 0; row < rows; ++row)
      EGT_TRY(device.randomize({weights.as<float>() + layer.weights + row * count, ElementType::f32, count},
                               {.seed = seed,
                                .sequence = weight_sequences + number,
                                .first = static_cast<std::uint64_t>(first + row * inputs),
                                .scale = initial_scale(inputs, last)},
                               stream));
  }
  return {};
}

/// The biases continue the layer's random sequence after its weights.
Status ParameterSet::randomize_biases(Device& device, const ParameterLayout& layout, std::uint64_t seed,
                                      Stream& stream) const {
  for (std::size_t l = 0; l < layout.layers().size(); ++l) {
    const LinearLayer& layer = layout.layers()[l];
    EGT_TRY(device.randomize({weights.as<float>() + layer.bias, ElementType::f32, layer.outputs},
                             {.seed = seed,
                              .sequence = weight_sequences + l,
                              .first = static_cast<std::uint64_t>(layer.outputs * layer.inputs),
                              .scale = initial_scale(layer.inputs, l + 1 == layout.layers().size())},
                             stream));
  }
  return {};
}

MatrixView ParameterSet::compute_weights(const LinearLayer& layer, Precision precision) const {
  const ElementType type = storage_type(precision);
  char* base = (type == ElementType::f32 ? weights : copy_).as<char>();
  return {base + static_cast<std::size_t>(layer.weights) * size_of(type), type, layer.outputs, layer.inputs};
}

VectorView ParameterSet::compute_bias(const LinearLayer& layer, Precision precision) const {
  if (keeps_copy(precision)) return compute_copy_range(precision, layer.bias, layer.outputs);
  return {weights.as<float>() + layer.bias, ElementType::f32, layer.outputs};
}

VectorView ParameterSet::compute_copy_range(Precision precision, std::int64_t offset,
                                            std::int64_t count) const {
  const ElementType type = storage_type(precision);
  if (!keeps_copy(precision) || copy_.bytes() == 0) return {};
  return {copy_.as<char>() + static_cast<std::size_t>(offset) * size_of(type), type, count};
}

Result<Workspace> Workspace::allocate(Device& device, const MlpConfig& config,
                                      const ParameterLayout& layout) {
  Workspace workspace;
  workspace.gradient_type = config.gradient_type;
  workspace.neurons_ = config.neurons;
  const auto parameters = static_cast<std::size_t>(layout.size());
  const std::size_t width = widest(config.precisions);
  EGT_TRY_ASSIGN(workspace.gradient, device.allocate(parameters * size_of(config.gradient_type)));
  EGT_TRY_ASSIGN(workspace.product, device.allocate(product_bytes(config, layout)));
  const std::int64_t samples = std::max(config.batch.local, config.max_samples);
  const auto allocate = [&](std::int64_t neurons) {
    return device.allocate(static_cast<std::size_t>(neurons * samples) * width + word_bytes);
  };
  const std::size_t passes = config.part ? config.part->passes : 1;
  for (std::size_t i = 0; i < passes * config.neurons.size(); ++i) {
    EGT_TRY_ASSIGN(Buffer activation, allocate(config.neurons[i % config.neurons.size()]));
    workspace.activations_.push_back(std::move(activation));
  }
  const std::int64_t largest = *std::max_element(config.neurons.begin(), config.neurons.end());
  for (Buffer& gradient : workspace.gradients_) {
    EGT_TRY_ASSIGN(gradient, allocate(largest));
  }
  if (!config.part) return workspace;
  EGT_TRY_ASSIGN(workspace.bias_sums, device.allocate(static_cast<std::size_t>(largest) * sizeof(float)));
  if (config.part->has_input()) return workspace;
  EGT_TRY_ASSIGN(workspace.input_gradient_, allocate(config.neurons.front()));
  if (config.part->has_loss()) {
    EGT_TRY_ASSIGN(workspace.network_input_, allocate(config.part->neurons.front()));
    workspace.network_inputs_ = config.part->neurons.front();
  }
  return workspace;
}

MatrixView Workspace::activation(std::size_t l, Precision precision, std::int64_t rows,
                                 std::size_t pass) const {
  const Buffer& memory = activations_[pass * neurons_.size() + l];
  return {memory.data(), activation_type(precision), rows, neurons_[l]};
}

MatrixView Workspace::network_input(Precision precision, std::int64_t rows, std::size_t pass) const {
  if (!network_input_) return activation(0, precision, rows, pass);
  return {network_input_.data(), activation_type(precision), rows, network_inputs_};
}

MatrixView Workspace::activation_gradient(std::size_t l, Precision precision, std::int64_t rows) const {
  const Buffer& memory = l > 0 ? gradients_[l % 2] : input_gradient_;
  return {memory.data(), activation_type(precision), rows, neurons_[l]};
}

VectorView Workspace::gradient_range(std::int64_t offset, std::int64_t count, const Buffer* other) const {
  return {(other ? *other : gradient).as<char>() + static_cast<std::size_t>(offset) * size_of(gradient_type),
          gradient_type, count};
}

}  // namespace egt::mlp
