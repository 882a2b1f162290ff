#include "egt/model/parameter_layout.hpp"

#include <algorithm>

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

void ParameterLayout::plan_buckets(std::int64_t bucket_elements) {
  last_bucket_.assign(layers_.size(), 0);
  std::int64_t end = size();
  GradientBucket bucket;
  const auto close_at = [&](std::int64_t begin) {
    bucket.offset = begin;
    bucket.count = end - begin;
    buckets_.push_back(std::move(bucket));
    bucket = {};
    end = begin;
  };
  for (int index = static_cast<int>(layers_.size()) - 1; index >= 0; --index) {
    const LinearLayer& layer = layers_[static_cast<std::size_t>(index)];
    const std::int64_t pieces = 1 + (layer.inputs * layer.outputs - 1) / bucket_elements;
    const std::int64_t rows = round_up((layer.outputs + pieces - 1) / pieces);
    for (std::int64_t first = (layer.outputs - 1) / rows * rows; first >= 0; first -= rows) {
      bucket.pieces.push_back({index, first, std::min(rows, layer.outputs - first)});
      const std::int64_t begin = layer.weights + first * layer.inputs;
      if (end - begin >= bucket_elements / 2 || begin == 0) close_at(begin);
    }
    // What is not closed yet goes out with the next bucket.
    last_bucket_[static_cast<std::size_t>(index)] =
        static_cast<int>(buckets_.size()) - (end == layer.weights ? 1 : 0);
  }
}

}  // namespace egt
