#include "model/mlp_config.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>

#include "model/mlp_buffers.hpp"
#include "model/pass_gemms.hpp"

namespace egt {

using mlp::output_gain;

Support supports_training(const Device& device, Precision precision) {
  if (precision == Precision::int8)
    return {
        "int8 is for memory-resident GEMMs, which use it in addition to any other: training has no integers"};
  return device.supports(precision);
}

std::int64_t samples_unit(const std::vector<Precision>& precisions) {
  return std::find(precisions.begin(), precisions.end(), Precision::fp8) == precisions.end()
             ? 1
             : mlp::fp8_multiple;
}

/// SGD: the loss is half the squared error, summed over outputs and averaged over the batch. With
/// unit-variance inputs its max curvature is about n + c * s. Here n is the squared norm of the last hidden
/// layer's activation, s the sum of the squared norms of all layers' inputs, and c the squared output gain.
/// Heavy-ball momentum is stable up to 2 (1 + 0.9) / curvature; a twentieth of that is used. Two terms of c
/// were fitted to the max stable rates of 700 random networks over 800 steps (2 to 64 layers, 1 to 128
/// neurons, batches of 1 to 256). All these rates were at least four times this one. The factor `layers`:
/// training raises the gain of deep networks, about once per layer. `of_samples` / batch: small batches have
/// the curvature of single samples. Adam: a step moves every weight by the rate, which is chosen to move an
/// output by about 0.3.
double default_learning_rate(const std::vector<std::int64_t>& neurons, Optimizer optimizer,
                             std::int64_t global_batch) {
  constexpr double of_samples = 8;
  const std::size_t hidden = neurons.size() - 2;
  const auto layers = static_cast<double>(neurons.size() - 1);
  const double last = static_cast<double>(neurons[hidden]) + 1.0;
  double inputs = 0, reach = last;
  for (std::size_t l = 0; l + 1 < neurons.size(); ++l) inputs += static_cast<double>(neurons[l]) + 1.0;
  for (std::size_t l = 0; l < hidden; ++l)
    reach += output_gain * std::sqrt(static_cast<double>(neurons[l + 1])) * static_cast<double>(neurons[l]);
  if (optimizer == Optimizer::adam) return 0.3 / reach;
  const double gain = output_gain * output_gain * layers + of_samples / static_cast<double>(global_batch);
  return 0.19 / (last + gain * inputs);
}

double flops_per_sample(const std::vector<std::int64_t>& neurons) {
  double products = 0;
  for (std::size_t l = 0; l + 1 < neurons.size(); ++l)
    products += static_cast<double>(neurons[l] * neurons[l + 1]);
  return 2.0 * (3.0 * products - static_cast<double>(neurons[0] * neurons[1]));
}

std::size_t bytes_per_sample(const std::vector<std::int64_t>& neurons,
                             const std::vector<Precision>& precisions) {
  std::size_t width = 0;
  for (const Precision precision : precisions) width = std::max(width, size_of(activation_type(precision)));
  const auto sum = static_cast<std::size_t>(std::accumulate(neurons.begin(), neurons.end(), std::int64_t{0})),
             largest = static_cast<std::size_t>(*std::max_element(neurons.begin(), neurons.end()));
  return (sum + 2 * largest) * width + (samples_unit(precisions) > 1 ? sum + 3 * largest : 0);
}

}  // namespace egt
