#include "kernels/extreme.cuh"

#include <algorithm>

#include "kernels/block_sum.cuh"

namespace egt::kernels {
namespace {

/// Compute-bound: one element per thread. `Faulted`: a fault is injected, by a separate instance of the
/// kernel, because the check in each iteration cost 3 % of an H100's time.
template <typename T, bool Faulted>
__global__ void __launch_bounds__(matrix_threads)
    activate_extreme_kernel(const MatrixView h, const float* __restrict__ bias, const ExtremeTerm extreme,
                            std::int64_t piece) {
  using Compute = typename Element<T>::compute;
  const std::int64_t column = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const std::int64_t step = std::int64_t{gridDim.y} * blockDim.y;
  const std::int64_t rows = column < h.columns ? h.rows : 0;
  const auto column_bias = rows > 0 ? static_cast<Compute>(bias[column]) : Compute{};
  std::uint64_t a = 0, b = 0;
  for (std::int64_t row = std::int64_t{blockIdx.y} * blockDim.y + threadIdx.y; row < rows; row += step) {
    T& element = static_cast<T*>(h.data)[row * h.leading + column];
    const std::int64_t of_matrix = piece + row;
    const auto place = static_cast<std::uint64_t>((extreme.first_row + of_matrix) * h.columns + column);
    const auto index = static_cast<std::uint64_t>(of_matrix * h.columns + column);
    math::ChainFault fault;
    if (Faulted && extreme.fault.hits(index)) fault = {extreme.fault_turn, extreme.fault.mask};
    const auto result = math::extreme_activation<Compute>(
        Element<T>::load(element) + column_bias, math::extreme_phase(place), extreme.iterations, fault);
    element = Element<T>::store(result.h);
    add_to_digest(a, b, index, result.bits);
  }
  if (extreme.digest != nullptr) publish(a, b, extreme.digest);
}

}  // namespace

int activate_extreme(const Launch& launch, const Activation& call, std::int64_t piece) {
  const auto& [h, bias, extreme] = call;
  if (extreme.digest != nullptr && piece == 0)
    if (const int error = cudaMemsetAsync(extreme.digest, 0, sizeof *extreme.digest, launch.stream))
      return error;
  if (h.count() == 0) return cudaSuccess;
  return with_type(h.type, [&](auto type) {
    using T = decltype(type);
    MatrixGrid grid(h, 1, 1);
    if (launch.width > 0)
      grid.grid.y = std::clamp(static_cast<unsigned>(launch.width) / grid.grid.x, 1u, grid.grid.y);
    const auto kernel =
        extreme.fault.count > 0 ? activate_extreme_kernel<T, true> : activate_extreme_kernel<T, false>;
    return start(launch, grid.grid, grid.block, 0, kernel, h, bias, extreme, piece);
  });
}

}  // namespace egt::kernels
