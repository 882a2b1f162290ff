#include <algorithm>
#include <cmath>
#include <limits>

#include "model/parallel/split_mlp.hpp"

namespace egt {

namespace {

constexpr std::int64_t compared_at_once = 4 << 20;  ///< elements per comparison, in pinned memory

struct Norms {
  double difference = 0, whole = 0;
};

/// Compares gradients in device memory on the host.
struct Comparison {
  Device& device;
  Stream& stream;
  double timeout_seconds;
  Buffer pinned = {};

  /// Accumulates norms over rows of `columns` elements, which are `whole_stride` apart in `whole`.
  Status add(const float* own, const float* whole, std::int64_t rows, std::int64_t columns,
             std::int64_t whole_stride, Norms& norms) {
    const std::int64_t at_once = std::max<std::int64_t>(1, compared_at_once / whole_stride);
    for (std::int64_t row = 0; row < rows; row += at_once) {
      const std::int64_t now = std::min(at_once, rows - row);
      const std::int64_t own_count = now * columns, whole_count = (now - 1) * whole_stride + columns;
      const std::size_t bytes = static_cast<std::size_t>(own_count + whole_count) * sizeof(float);
      if (pinned.bytes() < bytes) {
        EGT_TRY_ASSIGN(pinned, device.allocate_pinned(bytes));
      }
      float* const here = pinned.as<float>();
      EGT_TRY(device.copy(here, own + row * columns, static_cast<std::size_t>(own_count) * sizeof(float),
                          stream));
      EGT_TRY(device.copy(here + own_count, whole + row * whole_stride,
                          static_cast<std::size_t>(whole_count) * sizeof(float), stream));
      EGT_TRY(device.synchronize(stream, timeout_seconds));
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
};

}  // namespace

Result<double> difference_from_whole(Device& device, SplitMlp& part, MlpTrainer& whole,
                                     double timeout_seconds) {
  EGT_TRY(device.synchronize(whole.compute_stream(), timeout_seconds));
  const auto* const own = static_cast<const float*>(part.gradient().data);
  const auto* const all = static_cast<const float*>(whole.gradient().data);
  Comparison comparison{device, part.stream(), timeout_seconds};
  double most = 0;
  for (std::size_t l = 0; l < part.layout().layers().size(); ++l) {
    const LinearLayer& mine = part.layout().layers()[l];
    const LinearLayer& its = whole.layout().layers()[static_cast<std::size_t>(part.part().layers.first) + l];
    const NeuronRange rows = part.part().outputs(l), columns = part.part().inputs(l);
    Norms norms;
    EGT_TRY(comparison.add(own + mine.weights, all + its.weights + rows.first * its.inputs + columns.first,
                           rows.count, columns.count, its.inputs, norms));
    EGT_TRY(comparison.add(own + mine.bias, all + its.bias + rows.first, 1, rows.count, rows.count, norms));
    if (!std::isfinite(norms.difference)) return std::numeric_limits<double>::infinity();
    if (norms.difference > 0) most = std::max(most, std::sqrt(norms.difference / norms.whole));
  }
  return most;
}

/// Partial sums accumulate in another order, which changes values by about the precision's rounding unit u.
/// This flips ReLUs whose input is within u of 0: a share of about u of them, whose gradients then change
/// completely. So the relative norm of the difference is about sqrt(u) in each layer. A missing part of the
/// network gives a difference of about 1.
double allowed_difference(Precision precision, int layers) {
  const double u = precision == Precision::fp32 ? 0x1p-24 : precision == Precision::tf32 ? 0x1p-11 : 0x1p-9;
  return std::min(0.5, 4 * std::sqrt(u * layers));
}

}  // namespace egt
