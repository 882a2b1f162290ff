#pragma once

#include <cstdint>
#include <vector>

#include "egt/device/dnn.hpp"
#include "tests/contract/reference.hpp"

/// Reference for the adapters of the port Dnn: plain loops in double.
namespace egt::reference {

/// Sums of products. The sum of magnitudes and the number of terms of each bound its rounding error.
struct Sums {
  std::vector<double> value, magnitude;
  std::vector<std::int64_t> terms;

  explicit Sums(std::int64_t count)
      : value(static_cast<std::size_t>(count)),
        magnitude(static_cast<std::size_t>(count)),
        terms(static_cast<std::size_t>(count)) {}
  void add(std::int64_t i, double term);
};

struct ConvolutionSums {
  Sums y, x_gradient, filter_gradient;
};
ConvolutionSums convolve(const ConvolutionShape& shape, const Array& x, const Array& filter,
                         const Array& y_gradient);

/// One value per channel.
struct Statistics {
  std::vector<double> mean, variance;
};
/// Mean and variance of each channel of x; the variance is the biased one.
Statistics statistics(const ImageShape& shape, const Array& x);
std::vector<double> normalize(const ImageShape& shape, const Array& x, const Statistics& statistics,
                              const Array& scale, const Array& shift);
struct BatchNormGradients {
  std::vector<double> x;
  Sums scale, shift;
  std::vector<double> x_magnitude;  ///< magnitude of the terms that each x_gradient is a difference of
};
BatchNormGradients batch_norm_gradients(const ImageShape& shape, const Array& x, const Array& y_gradient,
                                        const Statistics& statistics, const Array& scale);

/// For each element of y, the elements of x in its window.
std::vector<std::vector<std::int64_t>> pooling_windows(const PoolingShape& shape);

}  // namespace egt::reference
