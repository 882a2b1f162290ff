#include <algorithm>

#include "egt/core/histogram.hpp"
#include "model/mlp_buffers.hpp"
#include "model/parallel/split_mlp.hpp"
#include "model/pass_gemms.hpp"

namespace egt {
namespace {

constexpr int measurements = 3;

}  // namespace

/// Measures each layer as a network of its own. Its memory is allocated only during its measurement.
Result<std::vector<double>> measure_layers(Device& device, const MlpConfig& network, std::int64_t rows,
                                           double timeout_seconds) {
  const Precision precision = network.precisions.front();
  EGT_TRY_ASSIGN(const auto begin, device.create_event(EventUse::timing));
  EGT_TRY_ASSIGN(const auto end, device.create_event(EventUse::timing));
  std::vector<double> layer_ms;
  for (std::size_t l = 0; l + 1 < network.neurons.size(); ++l) {
    MlpConfig one = network;
    one.neurons = {network.neurons[l], network.neurons[l + 1]};
    one.batch.local = rows;
    const ParameterLayout layout(one.neurons, network.neurons[l] * network.neurons[l + 1] + 1);
    const LinearLayer& layer = layout.layers().front();
    EGT_TRY_ASSIGN(const auto parameters, mlp::ParameterSet::allocate(device, one.precisions, layout.size()));
    EGT_TRY_ASSIGN(const auto work, mlp::Workspace::allocate(device, one, layout));
    EGT_TRY_ASSIGN(const auto inputs, device.allocate(static_cast<std::size_t>(rows * layer.inputs) * 8));
    EGT_TRY_ASSIGN(const auto stream, device.create_stream(StreamPriority::normal));
    mlp::PassGemms products(device, layout, *stream);
    const MatrixView x = work.activation(0, precision, rows), z = work.activation(1, precision, rows);
    const MatrixView input_gradient(inputs.data(), x.type, rows, layer.inputs);
    const auto enqueue = [&]() -> Status {
      EGT_TRY_ASSIGN(const Gemm forward, products.forward(0, precision, parameters, x, z));
      EGT_TRY(device.gemm(forward, *stream));
      EGT_TRY(
          device.activate(z, parameters.bias(layer), {.iterations = network.extreme_iterations}, *stream));
      EGT_TRY(device.activation_gradient(z, z, work.gradient_range(layer.bias, layer.outputs), *stream));
      EGT_TRY(device.gemm(products.input_gradient(0, precision, parameters, z, input_gradient), *stream));
      const VectorView d = work.gradient_range(layer.weights, layer.inputs * layer.outputs);
      return device.gemm(products.weight_gradient({0, 0, layer.outputs}, precision, z, x,
                                                  {d.data, d.type, layer.outputs, layer.inputs}),
                         *stream);
    };
    EGT_TRY(parameters.initialize(device, layout, nullptr, network.seed, *stream));
    if (const VectorView copy = parameters.compute_copy(precision); copy.data != nullptr)
      EGT_TRY(device.cast(copy, parameters.master(), *stream));
    EGT_TRY(device.randomize({x.data, x.type, x.count()}, {.seed = network.seed}, *stream));
    EGT_TRY(enqueue());  // warm up: libraries load code at first use
    std::vector<double> times;
    for (int i = 0; i < measurements; ++i) {
      EGT_TRY(device.record(*begin, *stream));
      EGT_TRY(enqueue());
      EGT_TRY(device.record(*end, *stream));
      EGT_TRY(device.synchronize(*stream, timeout_seconds));
      EGT_TRY_ASSIGN(times.emplace_back(), device.elapsed_ms(*begin, *end));
    }
    layer_ms.push_back(std::max(1e-6, median_of(std::move(times))));
  }
  return layer_ms;
}

}  // namespace egt
