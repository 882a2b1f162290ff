#include "loadtest/convnet/network_plan.hpp"

#include <utility>

#include <fmt/format.h>

namespace egt {
namespace {

constexpr std::int64_t alignment = 64;  // elements, so that every range is aligned for vector access

std::int64_t padded(std::int64_t count) {
  return (count + alignment - 1) / alignment * alignment;
}

/// Appends layers. Each call returns the index of the layer's output tensor.
class Builder {
 public:
  explicit Builder(const ImageShape& images) { plan_.tensors.push_back(images); }

  int convolution(std::string name, int x, std::int64_t outputs, Window window, bool bias_and_relu) {
    const ImageShape in = shape(x);
    NetworkLayer layer = make(LayerKind::convolution, std::move(name), x, window.over(in, outputs));
    layer.window = window;
    layer.relu = bias_and_relu;
    return add(std::move(layer), outputs * window.kernel * window.kernel * in.channels,
               bias_and_relu ? outputs : 0);
  }
  int batch_norm(std::string name, int x, bool relu, int skip = -1) {
    const ImageShape in = shape(x);
    NetworkLayer layer = make(LayerKind::batch_norm, std::move(name), x, in);
    layer.relu = relu;
    layer.skip = skip;
    layer.statistics = plan_.statistics;
    plan_.statistics += padded(in.channels);
    return add(std::move(layer), in.channels, in.channels);
  }
  int pooling(std::string name, int x, PoolingKind kind, Window window) {
    const ImageShape in = shape(x);
    NetworkLayer layer = make(LayerKind::pooling, std::move(name), x, window.over(in, in.channels));
    layer.window = window;
    layer.pooling = kind;
    return add(std::move(layer), 0, 0);
  }
  int linear(std::string name, int x, std::int64_t outputs, bool relu) {
    const ImageShape in = shape(x);
    NetworkLayer layer = make(LayerKind::linear, std::move(name), x, {in.images, 1, 1, outputs});
    layer.relu = relu;
    return add(std::move(layer), in.count() / in.images * outputs, outputs);
  }
  const ImageShape& shape(int tensor) const { return plan_.tensors[static_cast<std::size_t>(tensor)]; }
  NetworkPlan take() { return std::move(plan_); }

 private:
  NetworkLayer make(LayerKind kind, std::string name, int x, const ImageShape& y) {
    plan_.tensors.push_back(y);
    NetworkLayer layer;
    layer.kind = kind;
    layer.name = std::move(name);
    layer.x = x;
    layer.y = static_cast<int>(plan_.tensors.size()) - 1;
    return layer;
  }
  int add(NetworkLayer layer, std::int64_t weights, std::int64_t biases) {
    layer.weights = plan_.parameters;
    layer.weight_count = weights;
    layer.bias = layer.weights + padded(weights);
    layer.bias_count = biases;
    plan_.parameters = layer.end();
    plan_.layers.push_back(std::move(layer));
    return plan_.layers.back().y;
  }

  NetworkPlan plan_;
};

void build_simple_cnn(Builder& net, std::int64_t classes) {
  int at = 0;
  std::int64_t outputs = 32;
  for (int i = 1; i <= 3; ++i, outputs *= 2) {
    at = net.convolution(fmt::format("conv{}", i), at, outputs, {.kernel = 3, .padding = 1}, true);
    at = net.pooling(fmt::format("pool{}", i), at, PoolingKind::maximum, {.kernel = 2, .stride = 2});
  }
  at = net.linear("fc1", at, 512, true);
  net.linear("fc2", at, classes, false);
}

int build_block(Builder& net, const std::string& name, int x, std::int64_t outputs, std::int64_t stride) {
  int at = net.convolution(name + ".conv1", x, outputs, {.kernel = 3, .stride = stride, .padding = 1}, false);
  at = net.batch_norm(name + ".bn1", at, true);
  at = net.convolution(name + ".conv2", at, outputs, {.kernel = 3, .padding = 1}, false);
  int skip = x;
  if (net.shape(at) != net.shape(x)) {
    skip = net.convolution(name + ".downsample.0", x, outputs, {.kernel = 1, .stride = stride}, false);
    skip = net.batch_norm(name + ".downsample.1", skip, false);
  }
  return net.batch_norm(name + ".bn2", at, true, skip);
}

void build_resnet18(Builder& net, std::int64_t classes) {
  int at = net.convolution("conv1", 0, 64, {.kernel = 7, .stride = 2, .padding = 3}, false);
  at = net.batch_norm("bn1", at, true);
  at = net.pooling("maxpool", at, PoolingKind::maximum, {.kernel = 3, .stride = 2, .padding = 1});
  std::int64_t outputs = 64;
  for (int stage = 1; stage <= 4; ++stage, outputs *= 2)
    for (int block = 0; block < 2; ++block)
      at = build_block(net, fmt::format("layer{}.{}", stage, block), at, outputs,
                       stage > 1 && block == 0 ? 2 : 1);
  at = net.pooling("avgpool", at, PoolingKind::average, {.kernel = net.shape(at).height, .stride = 1});
  net.linear("fc", at, classes, false);
}

}  // namespace

const char* to_string(NetworkKind kind) {
  return kind == NetworkKind::simple_cnn ? "simple_cnn" : "resnet18";
}

std::int64_t NetworkLayer::end() const {
  return bias + padded(bias_count);
}

double NetworkPlan::flops(bool with_backward) const {
  double sum = 0;
  for (const NetworkLayer& layer : layers) {
    if (layer.kind != LayerKind::convolution && layer.kind != LayerKind::linear) continue;
    const double once =
        2.0 * static_cast<double>(y_of(layer).rows()) * static_cast<double>(layer.weight_count);
    sum += once * (!with_backward ? 1 : layer.x == 0 ? 2 : 3);
  }
  return sum;
}

std::int64_t min_pixels(NetworkKind kind) {
  return kind == NetworkKind::simple_cnn ? 8 : 32;
}

NetworkPlan plan_network(NetworkKind kind, const ImageShape& images, std::int64_t classes) {
  Builder net(images);
  if (kind == NetworkKind::simple_cnn)
    build_simple_cnn(net, classes);
  else
    build_resnet18(net, classes);
  return net.take();
}

}  // namespace egt
