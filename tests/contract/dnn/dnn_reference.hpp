#pragma once

#include <cstdint>
#include <vector>

#include "egt/device/dnn.hpp"
#include "tests/contract/reference.hpp"

/// Plain loops in double that the adapters of the port Dnn are held against.
namespace egt::reference {

/// Sums of products; with each the sum of their magnitudes and their number, which its rounding errors depend
/// on.
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

/// One a channel.
struct Statistics {
  std::vector<double> mean, variance;
};
/// Of each channel of x; the variance is the biased one.
Statistics statistics(const ImageShape& shape, const Array& x);
std::vector<double> normalize(const ImageShape& shape, const Array& x, const Statistics& statistics,
                              const Array& scale, const Array& shift);
struct BatchNormGradients {
  std::vector<double> x;
  Sums scale, shift;
  std::vector<double> x_magnitude;  ///< the magnitudes of what each of x is a difference of
};
BatchNormGradients batch_norm_gradients(const ImageShape& shape, const Array& x, const Array& y_gradient,
                                        const Statistics& statistics, const Array& scale);

/// For each element of y the elements of x in its window.
std::vector<std::vector<std::int64_t>> pooling_windows(const PoolingShape& shape);

}  // namespace egt::reference
