#include "kernels/matrix.cuh"
#include "kernels/tiles.cuh"

/// Products of a matrix and a vector in fp64, bound by the memory that the matrix lies in. Each sum is
/// divided into tiles, whose partial sums a second kernel adds in order. How it is divided depends on the
/// shape alone, so every device gives the same bits. fma() keeps a product exact, and is one instruction
/// where fp64 is slow.
namespace egt::kernels {
namespace {

constexpr int warp_threads = 32, warps = matrix_threads / warp_threads;
constexpr int rows_in_flight = 4;

/// A sum's terms divided into tiles of `each`, a multiple of `preferred`; as many as the scratch holds.
struct TermTiles {
  std::int64_t each;
  std::int64_t count;

  TermTiles(std::int64_t terms, std::int64_t sums, std::int64_t preferred) {
    const std::int64_t most = 4096, fit = static_cast<std::int64_t>(scratch_bytes / sizeof(double)) / sums;
    const std::int64_t allowed = fit < 1 ? 1 : fit < most ? fit : most;
    each = divide_up(divide_up(terms, allowed), preferred) * preferred;
    count = divide_up(terms, each);
  }
};

template <typename T>
__device__ __forceinline__ double value(T element) {
  return static_cast<double>(Element<T>::load(element));
}

/// The sum over the warp's threads, in thread 0, in a fixed order.
__device__ __forceinline__ double sum_over_warp(double value) {
#pragma unroll
  for (int offset = warp_threads / 2; offset > 0; offset /= 2) value += __shfl_down_sync(~0u, value, offset);
  return value;
}

/// A warp: four rows by a tile of columns, so that what it reads of x serves all four. sums: tiles x rows.
template <typename T, int N>
__global__ void __launch_bounds__(matrix_threads)
    multiply_rows_kernel(const MatrixView m, const double* __restrict__ x, std::int64_t tile_columns,
                         double* sums) {
  const int lane = static_cast<int>(threadIdx.x) % warp_threads;
  const std::int64_t warp = static_cast<std::int64_t>(blockIdx.x) * warps + threadIdx.x / warp_threads;
  const std::int64_t row = warp * rows_in_flight, first = blockIdx.y * tile_columns;
  const std::int64_t end = first + tile_columns < m.columns ? first + tile_columns : m.columns;
  if (row >= m.rows) return;
  const T* data = static_cast<const T*>(m.data) + row * m.leading;

  double sum[rows_in_flight] = {};
  for (std::int64_t column = first + lane * N; column < end; column += warp_threads * N) {
    Pack<T, N> elements[rows_in_flight];
#pragma unroll
    for (int u = 0; u < rows_in_flight; ++u)
      if (row + u < m.rows) elements[u] = Pack<T, N>::load(data + u * m.leading + column);
    const auto factors = Pack<double, N>::load(x + column);
#pragma unroll
    for (int u = 0; u < rows_in_flight; ++u) {
      if (row + u >= m.rows) break;
#pragma unroll
      for (int j = 0; j < N; ++j) sum[u] = fma(value(elements[u].v[j]), factors.v[j], sum[u]);
    }
  }
#pragma unroll
  for (int u = 0; u < rows_in_flight; ++u) {
    const double total = sum_over_warp(sum[u]);
    if (lane == 0 && row + u < m.rows) sums[blockIdx.y * m.rows + row + u] = total;
  }
}

/// The rows `first`, first + warps, ... below `end` times their elements of x, added to the thread's columns.
template <typename T, int N>
__device__ __forceinline__ void add_rows(const MatrixView& m, const double* __restrict__ x,
                                         std::int64_t column, std::int64_t first, std::int64_t end,
                                         double (&sum)[N]) {
  const T* data = static_cast<const T*>(m.data) + column;
  for (std::int64_t row = first; row < end; row += rows_in_flight * warps) {
    Pack<T, N> elements[rows_in_flight];
#pragma unroll
    for (int u = 0; u < rows_in_flight; ++u)
      if (row + u * warps < end) elements[u] = Pack<T, N>::load(data + (row + u * warps) * m.leading);
#pragma unroll
    for (int u = 0; u < rows_in_flight; ++u) {
      if (row + u * warps >= end) break;
      const double factor = x[row + u * warps];
#pragma unroll
      for (int j = 0; j < N; ++j) sum[j] = fma(value(elements[u].v[j]), factor, sum[j]);
    }
  }
}

/// A block: a strip of 32 N columns by a tile of rows, shared by its warps. sums: tiles x columns.
template <typename T, int N>
__global__ void __launch_bounds__(matrix_threads)
    multiply_columns_kernel(const MatrixView m, const double* __restrict__ x, std::int64_t tile_rows,
                            double* sums) {
  constexpr int width = warp_threads * N;
  static_assert(width <= matrix_threads);
  __shared__ double warp_sums[warps][width];
  const int lane = static_cast<int>(threadIdx.x) % warp_threads;
  const int warp = static_cast<int>(threadIdx.x) / warp_threads;
  const std::int64_t strip = std::int64_t{blockIdx.x} * width, column = strip + lane * N;
  const std::int64_t first = blockIdx.y * tile_rows;
  const std::int64_t end = first + tile_rows < m.rows ? first + tile_rows : m.rows;

  double sum[N] = {};
  if (column < m.columns) add_rows<T, N>(m, x, column, first + warp, end, sum);
#pragma unroll
  for (int j = 0; j < N; ++j) warp_sums[warp][lane * N + j] = sum[j];
  __syncthreads();
  const int c = static_cast<int>(threadIdx.x);
  if (c >= width || strip + c >= m.columns) return;
  double total = warp_sums[0][c];
  for (int w = 1; w < warps; ++w) total += warp_sums[w][c];
  sums[blockIdx.y * m.columns + strip + c] = total;
}

/// Calls `f` with the number of elements that a thread takes at once, as a std::integral_constant.
template <typename T, typename F>
int with_pack(const MatrixView& m, const double* x, F&& f) {
  constexpr int most = matrix_threads / warp_threads, width = pack_width<T> < most ? pack_width<T> : most;
  const bool x_is_aligned = reinterpret_cast<std::uintptr_t>(x) % vector_bytes == 0;
  if (x_is_aligned && in_packs(m, width)) return f(std::integral_constant<int, width>());
  return f(std::integral_constant<int, 1>());
}

template <typename T>
int multiply_rows(const Launch& launch, const MatrixView& m, const double* x, const TermTiles& tiles,
                  double* sums) {
  const std::int64_t blocks = divide_up(m.rows, std::int64_t{warps} * rows_in_flight);
  return with_pack<T>(m, x, [&](auto n) {
    return start(launch, dim3(static_cast<unsigned>(blocks), static_cast<unsigned>(tiles.count)),
                 dim3(matrix_threads), 0, multiply_rows_kernel<T, n.value>, m, x, tiles.each, sums);
  });
}

template <typename T>
int multiply_columns(const Launch& launch, const MatrixView& m, const double* x, const TermTiles& tiles,
                     double* sums) {
  return with_pack<T>(m, x, [&](auto n) {
    const std::int64_t strips = divide_up(m.columns, std::int64_t{warp_threads} * n.value);
    return start(launch, dim3(static_cast<unsigned>(strips), static_cast<unsigned>(tiles.count)),
                 dim3(matrix_threads), 0, multiply_columns_kernel<T, n.value>, m, x, tiles.each, sums);
  });
}

}  // namespace

int multiply_vector(const Launch& launch, MatrixView m, bool transposed, const double* x, double* y) {
  const std::int64_t sums = transposed ? m.columns : m.rows, terms = transposed ? m.rows : m.columns;
  if (sums == 0) return cudaSuccess;
  if (terms == 0)
    return cudaMemsetAsync(y, 0, static_cast<std::size_t>(sums) * sizeof(double), launch.stream);
  constexpr std::int64_t tile_columns = 1024, tile_rows = 128;
  const TermTiles tiles(terms, sums, transposed ? tile_rows : tile_columns);
  double* const partials = tiles.count == 1 ? y : static_cast<double*>(launch.scratch);
  const auto multiply = [&](auto type) {
    using T = decltype(type);
    return transposed ? multiply_columns<T>(launch, m, x, tiles, partials)
                      : multiply_rows<T>(launch, m, x, tiles, partials);
  };
  const int error = m.type == ElementType::i8    ? multiply(std::int8_t{})
                    : m.type == ElementType::i32 ? multiply(std::int32_t{})
                                                 : with_type(m.type, multiply);
  if (error != cudaSuccess || tiles.count == 1) return error;
  return add_tiles(launch, static_cast<const double*>(partials), tiles.count, sums, y);
}

}  // namespace egt::kernels
