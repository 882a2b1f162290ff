#include "kernels/extreme.cuh"

namespace egt::kernels {
namespace {

/// Bound by compute: one element a thread.
template <typename T>
__global__ void __launch_bounds__(matrix_threads)
    activate_extreme_kernel(const MatrixView h, const float* __restrict__ bias, int iterations) {
  using Compute = typename Element<T>::compute;
  const std::int64_t column = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (column >= h.columns) return;
  const auto column_bias = static_cast<Compute>(bias[column]);
  const std::int64_t step = std::int64_t{gridDim.y} * blockDim.y;
  for (std::int64_t row = std::int64_t{blockIdx.y} * blockDim.y + threadIdx.y; row < h.rows; row += step) {
    T& element = static_cast<T*>(h.data)[row * h.leading + column];
    element =
        Element<T>::store(math::activation<Compute>(Element<T>::load(element) + column_bias, iterations));
  }
}

struct Extreme {
  float* values;
  int iterations;

  template <int N>
  __device__ __forceinline__ void run(std::int64_t i) const {
    static_assert(N == 1);
    values[i] = math::extreme(values[i], iterations);
  }
};

}  // namespace

int extreme(const Launch& launch, VectorView values, int iterations) {
  return for_each<1>(launch, values.count, {}, Extreme{static_cast<float*>(values.data), iterations});
}

int activate_extreme(const Launch& launch, const MatrixView& h, const float* bias, int iterations) {
  return with_type(h.type, [&](auto type) {
    const MatrixGrid grid(h, 1, 1);
    return start(launch, grid.grid, grid.block, 0, activate_extreme_kernel<decltype(type)>, h, bias,
                 iterations);
  });
}

}  // namespace egt::kernels
