#include "loadtest/convnet/network_memory.hpp"

#include <algorithm>
#include <cmath>

namespace egt {
namespace {

// Random sequence numbers of the weights, disjoint from those of the images.
constexpr std::uint64_t weight_sequences = std::uint64_t{1} << 62;

std::size_t index_of(int tensor) {
  return static_cast<std::size_t>(tensor);
}

/// Rounds up to a whole 4-byte word, because digests read whole words.
std::size_t bytes_of(std::int64_t count, ElementType type) {
  constexpr std::size_t word = 4;
  return (static_cast<std::size_t>(count) * size_of(type) + word - 1) / word * word;
}

Result<Buffer> zeros(Device& device, std::size_t bytes, Stream& stream) {
  EGT_TRY_ASSIGN(Buffer buffer, device.allocate(bytes));
  EGT_TRY(device.set_zero(buffer.data(), bytes, stream));
  return buffer;
}

}  // namespace

Status NetworkMemory::take(bool trains, Stream& stream) {
  const auto batch = static_cast<std::size_t>(plan_.tensors.front().images);
  const auto parameters = static_cast<std::size_t>(plan_.parameters);
  std::int64_t widest = 0;
  for (std::size_t t = 0; t < plan_.tensors.size(); ++t) {
    widest = std::max(widest, plan_.tensors[t].channels);
    EGT_TRY_ASSIGN(activations_.emplace_back(),
                   zeros(device_, bytes_of(plan_.tensors[t].count(), type_of(static_cast<int>(t))), stream));
  }
  EGT_TRY_ASSIGN(images, zeros(device_, bytes_of(plan_.tensors.front().count(), ElementType::f32), stream));
  EGT_TRY_ASSIGN(labels, zeros(device_, batch * sizeof(std::int32_t), stream));
  EGT_TRY_ASSIGN(losses, zeros(device_, batch * sizeof(float), stream));
  EGT_TRY_ASSIGN(larger, zeros(device_, batch * sizeof(std::int32_t), stream));
  EGT_TRY_ASSIGN(zero, zeros(device_, bytes_of(widest, ElementType::f32), stream));
  EGT_TRY_ASSIGN(unused, zeros(device_, bytes_of(widest, ElementType::f32), stream));
  EGT_TRY_ASSIGN(ones, device_.allocate(batch * sizeof(float)));
  const auto statistics = static_cast<std::size_t>(2 * plan_.statistics) * sizeof(float);
  EGT_TRY_ASSIGN(saved_statistics_, zeros(device_, statistics, stream));
  for (NetworkParameters* set : {&trained, &initial}) {
    EGT_TRY_ASSIGN(set->weights, zeros(device_, parameters * sizeof(float), stream));
    EGT_TRY_ASSIGN(set->statistics, zeros(device_, statistics, stream));
    if (type_ == ElementType::f32) continue;
    EGT_TRY_ASSIGN(set->copy, device_.allocate(parameters * size_of(type_)));
  }
  return trains ? take_gradients(stream) : Status();
}

/// The backward pass runs from the last layer to the first and writes a tensor's gradient when it is first
/// computed. The gradient of a skip tensor shares memory with the gradient of the tensor that it was added
/// to. The latter is no longer needed when the other branch's contribution is accumulated.
Status NetworkMemory::take_gradients(Stream& stream) {
  const auto parameters = static_cast<std::size_t>(plan_.parameters) * sizeof(float);
  EGT_TRY_ASSIGN(gradient, zeros(device_, parameters, stream));
  EGT_TRY_ASSIGN(velocity, zeros(device_, parameters, stream));
  gradients_.resize(plan_.tensors.size());
  adds_.resize(plan_.layers.size());
  std::size_t largest_term = 0;
  const auto take = [&](int tensor) -> Status {
    const std::size_t bytes = bytes_of(plan_.tensors[index_of(tensor)].count(), type_of(tensor));
    EGT_TRY_ASSIGN(gradient_memory_.emplace_back(), zeros(device_, bytes, stream));
    gradients_[index_of(tensor)] = gradient_memory_.back().data();
    return {};
  };
  gradients_.back() = activations_.back().data();  // the gradient of the logits overwrites the logits
  for (std::size_t l = plan_.layers.size(); l-- > 0;) {
    const NetworkLayer& layer = plan_.layers[l];
    if (layer.skip > 0 && gradient_of(layer.skip) == nullptr)
      gradients_[index_of(layer.skip)] = gradient_of(layer.y);
    if (layer.x == 0) continue;
    adds_[l] = gradient_of(layer.x) != nullptr;
    if (adds_[l])
      largest_term = std::max(largest_term, bytes_of(plan_.x_of(layer).count(), type_of(layer.x)));
    if (!adds_[l]) EGT_TRY(take(layer.x));
  }
  EGT_TRY_ASSIGN(term, device_.allocate(largest_term));
  if (type_ == ElementType::f32) return {};
  EGT_TRY_ASSIGN(narrow_logits, zeros(device_, bytes_of(plan_.tensors.back().count(), type_), stream));
  return {};
}

/// Waits for the stream, because the copies read from a temporary host buffer.
Status NetworkMemory::initialize(const NetworkParameters& set, std::uint64_t seed, Stream& stream) const {
  constexpr double timeout_seconds = 60;
  for (std::size_t l = 0; l < plan_.layers.size(); ++l) {
    const NetworkLayer& layer = plan_.layers[l];
    if (!layer.has_parameters() || layer.kind == LayerKind::batch_norm) continue;
    const std::int64_t inputs = layer.weight_count / plan_.y_of(layer).channels;
    EGT_TRY(device_.randomize({set.weights.as<float>() + layer.weights, ElementType::f32, layer.weight_count},
                              {.seed = seed,
                               .sequence = weight_sequences + l,
                               .scale = std::sqrt(6.0f / static_cast<float>(inputs))},
                              stream));
  }
  // Set scales and variances to 1.
  const std::int64_t count = std::max({plan_.statistics, plan_.tensors.front().images, std::int64_t{1}});
  EGT_TRY_ASSIGN(const Buffer host, device_.allocate_pinned(static_cast<std::size_t>(count) * sizeof(float)));
  std::fill_n(host.as<float>(), count, 1.0f);
  const auto put_ones = [&](float* to, std::int64_t n) {
    return device_.copy(to, host.data(), static_cast<std::size_t>(n) * sizeof(float), stream);
  };
  Status put = put_ones(set.statistics.as<float>() + plan_.statistics, plan_.statistics);
  if (put.ok()) put = put_ones(ones.as<float>(), plan_.tensors.front().images);
  for (const NetworkLayer& layer : plan_.layers)
    if (put.ok() && layer.kind == LayerKind::batch_norm)
      put = put_ones(set.weights.as<float>() + layer.weights, layer.weight_count);
  if (put.ok() && type_ != ElementType::f32)
    put = device_.cast({set.copy.data(), type_, plan_.parameters},
                       {set.weights.data(), ElementType::f32, plan_.parameters}, stream);
  EGT_TRY(device_.synchronize(stream, timeout_seconds));
  return put;
}

MatrixView NetworkMemory::pixels(int tensor, void* data) const {
  const ImageShape& shape = plan_.tensors[index_of(tensor)];
  return {data, type_of(tensor), shape.rows(), shape.channels};
}

MatrixView NetworkMemory::rows(int tensor, void* data) const {
  const ImageShape& shape = plan_.tensors[index_of(tensor)];
  return {data, type_of(tensor), shape.images, shape.count() / shape.images};
}

VectorView NetworkMemory::vector(int tensor, void* data) const {
  return {data, type_of(tensor), plan_.tensors[index_of(tensor)].count()};
}

WordsView NetworkMemory::activation_words(int tensor) const {
  return activations_[index_of(tensor)].words();
}

void* NetworkMemory::compute_weights(const NetworkParameters& set, const NetworkLayer& layer) const {
  if (type_ == ElementType::f32) return set.weights.as<float>() + layer.weights;
  return set.copy.as<char>() + static_cast<std::size_t>(layer.weights) * size_of(type_);
}

BatchNormState NetworkMemory::batch_norm(const NetworkParameters& set, const NetworkLayer& layer) const {
  float* const running = set.statistics.as<float>() + layer.statistics;
  float* const saved = saved_statistics_.as<float>() + layer.statistics;
  return {.scale = set.weights.as<float>() + layer.weights,
          .shift = set.weights.as<float>() + layer.bias,
          .running_mean = running,
          .running_variance = running + plan_.statistics,
          .saved_mean = saved,
          .saved_deviation = saved + plan_.statistics};
}

}  // namespace egt
