#include "egt/model/mlp_config.hpp"

#include <cmath>
#include <cstddef>

#include "mlp_buffers.hpp"

namespace egt {

using mlp::output_gain;

/// With output gain g and unit-variance inputs, the largest curvature of the loss (1/2 the squared error
/// summed over outputs, mean over the batch) is about the squared norm of the last hidden layer plus g^2
/// times those before it; heavy-ball momentum is stable to 2 (1 + 0.9) over that. A twentieth of it leaves
/// room for curvature that grows in training. Adam moves every weight by the rate: it is bounded so that a
/// step moves an output by about 0.3.
double default_learning_rate(const std::vector<std::int64_t>& neurons, Optimizer optimizer) {
  const std::size_t hidden = neurons.size() - 2;
  const double last = static_cast<double>(neurons[hidden]) + 1.0;
  double curvature = last, reach = last;
  for (std::size_t l = 0; l < hidden; ++l) {
    curvature += output_gain * output_gain * static_cast<double>(neurons[l]);
    reach += output_gain * std::sqrt(static_cast<double>(neurons[l + 1])) * static_cast<double>(neurons[l]);
  }
  return optimizer == Optimizer::adam ? 0.3 / reach : 0.19 / curvature;
}

double flops_per_sample(const std::vector<std::int64_t>& neurons) {
  double products = 0;
  for (std::size_t l = 0; l + 1 < neurons.size(); ++l)
    products += static_cast<double>(neurons[l] * neurons[l + 1]);
  return 2.0 * (3.0 * products - static_cast<double>(neurons[0] * neurons[1]));
}

}  // namespace egt
