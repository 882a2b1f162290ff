#include "model/parallel/whole_network.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace egt {

namespace {

constexpr std::int64_t compared_at_once = 4 << 20;  ///< elements, in pinned memory

}  // namespace

WholeNetwork::WholeNetwork(Device& device, const MlpConfig& network, std::int64_t samples)
    : device_(device), config_(network), layout_(network.neurons, std::numeric_limits<std::int64_t>::max()) {
  config_.batch.local = samples;
}

Status WholeNetwork::enqueue_pass(std::uint64_t sequence, Stream& stream) {
  const Precision precision = config_.precisions.front();
  EGT_TRY_ASSIGN(parameters_, mlp::ParameterSet::allocate(device_, config_.precisions, layout_.size()));
  EGT_TRY_ASSIGN(workspace_, mlp::Workspace::allocate(device_, config_, layout_));
  EGT_TRY_ASSIGN(loss_, device_.allocate(sizeof(float)));
  EGT_TRY(parameters_.initialize(device_, layout_, nullptr, config_.seed, stream));
  if (const VectorView copy = parameters_.compute_copy(precision); copy.data != nullptr)
    EGT_TRY(device_.cast(copy, parameters_.master(), stream));
  pass_ = std::make_unique<mlp::Pass>(device_, config_, layout_, workspace_, stream);
  mlp::PassCompanion nobody;
  return pass_->enqueue({.precision = precision,
                         .parameters = parameters_,
                         .sequence = sequence,
                         .rows = config_.batch.local,
                         .loss = loss_.as<float>()},
                        nobody);
}

Status WholeNetwork::add(const float* own, const float* whole, std::int64_t rows, std::int64_t columns,
                         std::int64_t whole_stride, Norms& norms, Stream& stream, double timeout_seconds) {
  const std::int64_t at_once = std::max<std::int64_t>(1, compared_at_once / whole_stride);
  for (std::int64_t row = 0; row < rows; row += at_once) {
    const std::int64_t now = std::min(at_once, rows - row);
    const std::int64_t own_count = now * columns, whole_count = (now - 1) * whole_stride + columns;
    const std::size_t bytes = static_cast<std::size_t>(own_count + whole_count) * sizeof(float);
    if (pinned_.bytes() < bytes) {
      EGT_TRY_ASSIGN(pinned_, device_.allocate_pinned(bytes));
    }
    float* const here = pinned_.as<float>();
    EGT_TRY(
        device_.copy(here, own + row * columns, static_cast<std::size_t>(own_count) * sizeof(float), stream));
    EGT_TRY(device_.copy(here + own_count, whole + row * whole_stride,
                         static_cast<std::size_t>(whole_count) * sizeof(float), stream));
    EGT_TRY(device_.synchronize(stream, timeout_seconds));
    for (std::int64_t r = 0; r < now; ++r)
      for (std::int64_t c = 0; c < columns; ++c) {
        const double expected = here[own_count + r * whole_stride + c];
        const double off = here[r * columns + c] - expected;
        norms.difference += off * off;
        norms.whole += expected * expected;
      }
  }
  return {};
}

Result<double> WholeNetwork::difference(const NetworkPart& part, const ParameterLayout& layout,
                                        VectorView gradient, Stream& stream, double timeout_seconds) {
  // From here on nothing is under way that uses this network's memory, also where a copy fails.
  EGT_TRY(device_.synchronize(stream, timeout_seconds));
  const auto* const own = static_cast<const float*>(gradient.data);
  const auto* const whole = workspace_.gradient.as<float>();
  double most = 0;
  for (std::size_t l = 0; l < layout.layers().size(); ++l) {
    const LinearLayer& mine = layout.layers()[l];
    const LinearLayer& all = layout_.layers()[static_cast<std::size_t>(part.layers.first) + l];
    const NeuronRange rows = part.outputs(l), columns = part.inputs(l);
    Norms norms;
    EGT_TRY(add(own + mine.weights, whole + all.weights + rows.first * all.inputs + columns.first, rows.count,
                columns.count, all.inputs, norms, stream, timeout_seconds));
    EGT_TRY(add(own + mine.bias, whole + all.bias + rows.first, 1, rows.count, rows.count, norms, stream,
                timeout_seconds));
    if (!std::isfinite(norms.difference)) return std::numeric_limits<double>::infinity();
    if (norms.difference > 0) most = std::max(most, std::sqrt(norms.difference / norms.whole));
  }
  return most;
}

}  // namespace egt
