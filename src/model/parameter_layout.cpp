#include "model/parameter_layout.hpp"

#include <algorithm>
#include <utility>

namespace egt {

namespace {
constexpr std::int64_t alignment =
    64;  // elements: 256 bytes in fp32, so vector accesses and GEMMs stay aligned

std::int64_t round_up(std::int64_t n) {
  return (n + alignment - 1) / alignment * alignment;
}
}  // namespace

ParameterLayout::ParameterLayout(const std::vector<std::int64_t>& neurons, std::int64_t bucket_elements) {
  std::int64_t offset = 0;
  for (std::size_t i = 0; i + 1 < neurons.size(); ++i) {
    LinearLayer layer{
        .inputs = neurons[i], .outputs = neurons[i + 1], .weights = offset, .bias = 0, .end = 0};
    layer.bias = round_up(layer.weights + layer.inputs * layer.outputs);
    layer.end = round_up(layer.bias + layer.outputs);
    offset = layer.end;
    parameter_count_ += layer.inputs * layer.outputs + layer.outputs;
    layers_.push_back(layer);
  }
  plan_buckets(bucket_elements);
}

/// Buckets follow the order in which gradients are computed. If the next layer in that order is not the next
/// lower one in memory, the bucket is closed.
void ParameterLayout::plan_buckets(std::int64_t bucket_elements) {
  std::vector<int> order;
  for (int layer = static_cast<int>(layers_.size()); layer-- > 0;)
    if (layer != late_layer) order.push_back(layer);
  if (static_cast<int>(layers_.size()) > late_layer) order.push_back(late_layer);

  GradientBucket bucket;
  for (std::size_t i = 0; i < order.size(); ++i) {
    const LinearLayer& layer = layers_[static_cast<std::size_t>(order[i])];
    const bool goes_on = i + 1 < order.size() && order[i + 1] == order[i] - 1;
    const std::int64_t pieces = 1 + (layer.inputs * layer.outputs - 1) / bucket_elements;
    const std::int64_t rows = round_up((layer.outputs + pieces - 1) / pieces);
    std::int64_t end = bucket.pieces.empty() ? layer.end : bucket.offset + bucket.count;
    for (std::int64_t first = (layer.outputs - 1) / rows * rows; first >= 0; first -= rows) {
      bucket.pieces.push_back({order[i], first, std::min(rows, layer.outputs - first)});
      bucket.offset = layer.weights + first * layer.inputs;
      bucket.count = end - bucket.offset;
      if (bucket.count < bucket_elements / 2 && (first > 0 || goes_on)) continue;
      end = bucket.offset;
      buckets_.push_back(std::exchange(bucket, {}));
    }
  }
}

}  // namespace egt
