#include "dnn_reference.hpp"

#include <algorithm>
#include <cmath>

namespace egt::reference {
namespace {

std::size_t at(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

std::vector<double> values(const Array& array) {
  std::vector<double> all(at(array.count()));
  for (std::int64_t i = 0; i < array.count(); ++i) all[at(i)] = array.get(i);
  return all;
}

std::int64_t place(const ImageShape& s, std::int64_t n, std::int64_t y, std::int64_t x, std::int64_t c) {
  return ((n * s.height + y) * s.width + x) * s.channels + c;
}

/// Calls f(n, oy, ox, ky, kx, y, x) for each pixel (y, x) of x in the window of each pixel (oy, ox) of y.
template <typename F>
void for_each_tap(const ImageShape& x, const Window& window, F&& f) {
  const ImageShape out = window.over(x, 1);
  for (std::int64_t n = 0; n < out.images; ++n)
    for (std::int64_t oy = 0; oy < out.height; ++oy)
      for (std::int64_t ox = 0; ox < out.width; ++ox)
        for (std::int64_t ky = 0; ky < window.kernel; ++ky)
          for (std::int64_t kx = 0; kx < window.kernel; ++kx) {
            const std::int64_t iy = oy * window.stride + ky - window.padding;
            const std::int64_t ix = ox * window.stride + kx - window.padding;
            if (iy >= 0 && iy < x.height && ix >= 0 && ix < x.width) f(n, oy, ox, ky, kx, iy, ix);
          }
}

}  // namespace

void Sums::add(std::int64_t i, double term) {
  value[at(i)] += term;
  magnitude[at(i)] += std::fabs(term);
  ++terms[at(i)];
}

ConvolutionSums convolve(const ConvolutionShape& shape, const Array& x, const Array& filter,
                         const Array& y_gradient) {
  const std::vector<double> xs = values(x), filters = values(filter), gradients = values(y_gradient);
  const std::int64_t kernel = shape.window.kernel, inputs = shape.x.channels;
  ConvolutionSums sums{Sums(shape.y().count()), Sums(shape.x.count()), Sums(shape.filter_count())};
  for_each_tap(shape.x, shape.window,
               [&](std::int64_t n, std::int64_t oy, std::int64_t ox, std::int64_t ky, std::int64_t kx,
                   std::int64_t iy, std::int64_t ix) {
                 for (std::int64_t k = 0; k < shape.outputs; ++k)
                   for (std::int64_t c = 0; c < inputs; ++c) {
                     const std::int64_t to = place(shape.y(), n, oy, ox, k);
                     const std::int64_t from = place(shape.x, n, iy, ix, c);
                     const std::int64_t weight = ((k * kernel + ky) * kernel + kx) * inputs + c;
                     sums.y.add(to, xs[at(from)] * filters[at(weight)]);
                     sums.x_gradient.add(from, gradients[at(to)] * filters[at(weight)]);
                     sums.filter_gradient.add(weight, xs[at(from)] * gradients[at(to)]);
                   }
               });
  return sums;
}

Statistics statistics(const ImageShape& shape, const Array& x) {
  Statistics found{std::vector<double>(at(shape.channels)), std::vector<double>(at(shape.channels))};
  const auto rows = static_cast<double>(shape.rows());
  for (std::int64_t i = 0; i < x.count(); ++i) found.mean[at(i % shape.channels)] += x.get(i) / rows;
  for (std::int64_t i = 0; i < x.count(); ++i) {
    const double difference = x.get(i) - found.mean[at(i % shape.channels)];
    found.variance[at(i % shape.channels)] += difference * difference / rows;
  }
  return found;
}

std::vector<double> normalize(const ImageShape& shape, const Array& x, const Statistics& statistics,
                              const Array& scale, const Array& shift) {
  std::vector<double> y(at(x.count()));
  for (std::int64_t i = 0; i < x.count(); ++i) {
    const std::int64_t c = i % shape.channels;
    const double deviation = std::sqrt(statistics.variance[at(c)] + BatchNormShape::epsilon);
    y[at(i)] = (x.get(i) - statistics.mean[at(c)]) / deviation * scale.get(c) + shift.get(c);
  }
  return y;
}

BatchNormGradients batch_norm_gradients(const ImageShape& shape, const Array& x, const Array& y_gradient,
                                        const Statistics& statistics, const Array& scale) {
  BatchNormGradients found{
      std::vector<double>(at(x.count())), Sums(shape.channels), Sums(shape.channels), {}};
  found.x_magnitude.resize(at(x.count()));
  const auto rows = static_cast<double>(shape.rows());
  const auto normalized = [&](std::int64_t i) {
    const std::size_t c = at(i % shape.channels);
    return (x.get(i) - statistics.mean[c]) / std::sqrt(statistics.variance[c] + BatchNormShape::epsilon);
  };
  for (std::int64_t i = 0; i < x.count(); ++i) {
    found.scale.add(i % shape.channels, y_gradient.get(i) * normalized(i));
    found.shift.add(i % shape.channels, y_gradient.get(i));
  }
  for (std::int64_t i = 0; i < x.count(); ++i) {
    const std::size_t c = at(i % shape.channels);
    const double factor =
        scale.get(i % shape.channels) / std::sqrt(statistics.variance[c] + BatchNormShape::epsilon);
    found.x[at(i)] = factor * (y_gradient.get(i) - found.shift.value[c] / rows -
                               normalized(i) * found.scale.value[c] / rows);
    found.x_magnitude[at(i)] =
        std::fabs(factor) * (std::fabs(y_gradient.get(i)) + found.shift.magnitude[c] / rows +
                             std::fabs(normalized(i)) * found.scale.magnitude[c] / rows);
  }
  return found;
}

std::vector<std::vector<std::int64_t>> pooling_windows(const PoolingShape& shape) {
  std::vector<std::vector<std::int64_t>> windows(at(shape.y().count()));
  for_each_tap(shape.x, shape.window,
               [&](std::int64_t n, std::int64_t oy, std::int64_t ox, std::int64_t, std::int64_t,
                   std::int64_t iy, std::int64_t ix) {
                 for (std::int64_t c = 0; c < shape.x.channels; ++c)
                   windows[at(place(shape.y(), n, oy, ox, c))].push_back(place(shape.x, n, iy, ix, c));
               });
  return windows;
}

}  // namespace egt::reference
