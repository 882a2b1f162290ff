#include "kernels/extreme.cuh"
#include "kernels/matrix.cuh"

namespace egt::kernels {
namespace {

template <typename To, typename From>
struct Convert {
  To* to;
  const From* from;

  template <int N>
  __device__ __forceinline__ void run(std::int64_t i) const {
    const auto in = Pack<From, N>::load(from + i);
    Pack<To, N> out;
#pragma unroll
    for (int j = 0; j < N; ++j) out.v[j] = convert_element<To>(in.v[j]);
    out.store(to + i);
  }
};

/// Rare (GEMMs with k = 0), so one element per thread. If the factor is 0, the old value is not read.
template <typename T>
__global__ void __launch_bounds__(matrix_threads) scale_kernel(const MatrixView d, double factor) {
  using Compute = typename Element<T>::compute;
  const std::int64_t column = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (column >= d.columns) return;
  const std::int64_t step = std::int64_t{gridDim.y} * blockDim.y;
  for (std::int64_t row = std::int64_t{blockIdx.y} * blockDim.y + threadIdx.y; row < d.rows; row += step) {
    T& element = static_cast<T*>(d.data)[row * d.leading + column];
    element = factor == 0 ? T{} : Element<T>::store(static_cast<Compute>(factor) * Element<T>::load(element));
  }
}

constexpr int rows_in_flight = 4;

/// Without transcendental chains: memory-bound. Four rows' packs are loaded before the first is used.
template <typename T, int N>
__global__ void __launch_bounds__(matrix_threads)
    activate_kernel(const MatrixView h, const float* __restrict__ bias) {
  using Compute = typename Element<T>::compute;
  const std::int64_t column = (std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x) * N;
  if (column >= h.columns) return;
  Compute column_bias[N];
#pragma unroll
  for (int j = 0; j < N; ++j) column_bias[j] = static_cast<Compute>(bias[column + j]);

  T* data = static_cast<T*>(h.data) + column;
  const std::int64_t step = std::int64_t{gridDim.y} * blockDim.y;
  for (std::int64_t row = std::int64_t{blockIdx.y} * blockDim.y + threadIdx.y; row < h.rows;
       row += rows_in_flight * step) {
    Pack<T, N> z[rows_in_flight];
#pragma unroll
    for (int u = 0; u < rows_in_flight; ++u)
      if (row + u * step < h.rows) z[u] = Pack<T, N>::load(data + (row + u * step) * h.leading);
#pragma unroll
    for (int u = 0; u < rows_in_flight; ++u) {
      if (row + u * step >= h.rows) break;
#pragma unroll
      for (int j = 0; j < N; ++j)
        z[u].v[j] =
            Element<T>::store(math::activation<Compute>(Element<T>::load(z[u].v[j]) + column_bias[j]));
      z[u].store(data + (row + u * step) * h.leading);
    }
  }
}

template <typename T, int N>
int start_activate(const Launch& launch, const MatrixView& h, const float* bias) {
  const MatrixGrid grid(h, N, rows_in_flight);
  return start(launch, grid.grid, grid.block, 0, activate_kernel<T, N>, h, bias);
}

}  // namespace

int enqueue(const Launch& launch, const Cast& call) {
  const auto& [to, from] = call;
  return with_type(to.type, [&](auto to_type) {
    return with_type(from.type, [&](auto from_type) {
      using To = decltype(to_type);
      using From = decltype(from_type);
      const Convert<To, From> operation{static_cast<To*>(to.data), static_cast<const From*>(from.data)};
      return for_each<8>(launch, to.count, {{to.data, sizeof(To)}, {from.data, sizeof(From)}}, operation);
    });
  });
}

int scale(const Launch& launch, MatrixView d, double factor) {
  if (d.count() == 0) return cudaSuccess;
  return with_type(d.type, [&](auto type) {
    const MatrixGrid grid(d, 1, 1);
    return start(launch, grid.grid, grid.block, 0, scale_kernel<decltype(type)>, d, factor);
  });
}

int enqueue(const Launch& launch, const Activation& call, std::int64_t piece) {
  const auto& [h, bias, extreme] = call;
  if (extreme.iterations != 0) return activate_extreme(launch, call, piece);
  if (h.count() == 0) return cudaSuccess;
  return with_type(h.type, [&](auto type) {
    using T = decltype(type);
    return in_packs(h, pack_width<T>) ? start_activate<T, pack_width<T>>(launch, h, bias)
                                      : start_activate<T, 1>(launch, h, bias);
  });
}

}  // namespace egt::kernels
