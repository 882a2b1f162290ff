#include "kernels/matrix.cuh"
#include "kernels/tiles.cuh"

/// Gradients with their column sums. A block reduces a tile of rows to a row of partial sums in the scratch;
/// a second kernel adds the partial sums, always in the same order. The tiling depends on the shape alone, so
/// every device gives the same bits.
namespace egt::kernels {
namespace {

constexpr std::size_t loss_partials_bytes = std::size_t{1} << 20;  // at the end of the scratch

/// Tiling of the rows: `rows_each` rows per tile, a multiple of `unit`.
struct Tiles {
  std::int64_t rows_each;
  std::int64_t count;

  Tiles(const MatrixView& m, std::size_t sum_bytes, std::int64_t unit, std::int64_t most) {
    const auto fit = static_cast<std::int64_t>((scratch_bytes - loss_partials_bytes) / sum_bytes) / m.columns;
    const std::int64_t allowed = fit < 1 ? 1 : fit < most ? fit : most;
    rows_each = divide_up(divide_up(m.rows, allowed), unit) * unit;
    count = divide_up(m.rows, rows_each);
  }
};

template <typename Sum>
int sum_tiles(const Launch& launch, std::int64_t tiles, VectorView out) {
  return with_gradient_type(out.type, [&](auto type) {
    using Out = decltype(type);
    return add_tiles(launch, static_cast<const Sum*>(launch.scratch), tiles, out.count,
                     static_cast<Out*>(out.data));
  });
}

/// A matrix without rows has column sums of zero.
int zero_sums(const Launch& launch, VectorView out) {
  return out.count == 0 ? cudaSuccess : cudaMemsetAsync(out.data, 0, out.bytes(), launch.stream);
}

constexpr int rows_in_flight = 4;

/// Activation gradient of the rows [first, end) of a tile, for the thread's pack of columns and every
/// `down`th row. Four rows are loaded before the first is used. Adds to the thread's column sums.
template <typename T, int N, int down>
__device__ __forceinline__ void activation_gradient_rows(const MatrixView& gradient, const MatrixView& h,
                                                         std::int64_t column, std::int64_t first,
                                                         std::int64_t end,
                                                         typename Element<T>::compute (&sum)[N]) {
  using Compute = typename Element<T>::compute;
  T* g_data = static_cast<T*>(gradient.data) + column;
  const T* h_data = static_cast<const T*>(h.data) + column;
  for (std::int64_t row = first; row < end; row += rows_in_flight * down) {
    Pack<T, N> g[rows_in_flight], a[rows_in_flight];
#pragma unroll
    for (int u = 0; u < rows_in_flight; ++u) {
      if (row + u * down >= end) break;
      g[u] = Pack<T, N>::load(g_data + (row + u * down) * gradient.leading);
      a[u] = Pack<T, N>::load(h_data + (row + u * down) * h.leading);
    }
#pragma unroll
    for (int u = 0; u < rows_in_flight; ++u) {
      if (row + u * down >= end) break;
#pragma unroll
      for (int j = 0; j < N; ++j) {
        const Compute passed =
            math::activation_gradient<Compute>(Element<T>::load(g[u].v[j]), Element<T>::load(a[u].v[j]));
        g[u].v[j] = Element<T>::store(passed);
        sum[j] += passed;
      }
      g[u].store(g_data + (row + u * down) * gradient.leading);
    }
  }
}

/// Each block handles `across` * N columns by one tile of rows.
template <typename T, int N, int across>
__global__ void __launch_bounds__(matrix_threads)
    activation_gradient_kernel(const MatrixView gradient, const MatrixView h, std::int64_t tile_rows,
                               typename Element<T>::compute* partials) {
  using Sum = typename Element<T>::compute;
  constexpr int down = matrix_threads / across, width = across * N;
  __shared__ Sum sums[down][width];
  const int x = static_cast<int>(threadIdx.x) % across, y = static_cast<int>(threadIdx.x) / across;
  const std::int64_t strip = std::int64_t{blockIdx.x} * width, column = strip + x * N;
  const std::int64_t first = blockIdx.y * tile_rows;
  const std::int64_t end = first + tile_rows < gradient.rows ? first + tile_rows : gradient.rows;

  Sum sum[N] = {};
  if (column < gradient.columns)
    activation_gradient_rows<T, N, down>(gradient, h, column, first + y, end, sum);
#pragma unroll
  for (int j = 0; j < N; ++j) sums[y][x * N + j] = sum[j];
  __syncthreads();
  const int c = static_cast<int>(threadIdx.x);
  if (c >= width || strip + c >= gradient.columns) return;
  Sum total = sums[0][c];
  for (int row = 1; row < down; ++row) total += sums[row][c];
  partials[blockIdx.y * gradient.columns + strip + c] = total;
}

template <typename T, int N, int across>
int start_activation_gradient(const Launch& launch, const MatrixView& gradient, const MatrixView& h,
                              const Tiles& tiles) {
  static_assert(across * N <= matrix_threads);
  using Sum = typename Element<T>::compute;
  const std::int64_t strips = divide_up(gradient.columns, std::int64_t{across} * N);
  return start(launch, dim3(static_cast<unsigned>(strips), static_cast<unsigned>(tiles.count)),
               dim3(matrix_threads), 0, activation_gradient_kernel<T, N, across>, gradient, h,
               tiles.rows_each, static_cast<Sum*>(launch.scratch));
}

constexpr int loss_threads = 256;
constexpr std::size_t max_staged_bytes = 48 << 10;  // shared memory of a block without opt-in

/// Target value of one output: its taps are computed once and used for every row.
template <typename Compute>
struct Target {
  Compute offset;
  math::TargetTap taps[math::target_taps];

  __device__ __forceinline__ Target(std::uint64_t seed, std::uint32_t output, std::uint32_t inputs)
      : offset(static_cast<Compute>(math::target_offset(seed, output))) {
#pragma unroll
    for (int tap = 0; tap < math::target_taps; ++tap) taps[tap] = math::target_tap(seed, output, tap, inputs);
  }

  template <typename T>
  __device__ __forceinline__ Compute of(const T* x) const {
    Compute y = offset;
#pragma unroll
    for (int tap = 0; tap < math::target_taps; ++tap)
      y += static_cast<Compute>(taps[tap].weight) * Element<T>::load(x[taps[tap].input]);
    return y;
  }
};

/// Reduces over the block's threads in a fixed order; thread 0 gets the sum.
__device__ __forceinline__ double sum_over_block(double value) {
  __shared__ double warp_sums[loss_threads / 32];
  for (int offset = 16; offset > 0; offset /= 2) value += __shfl_down_sync(~0u, value, offset);
  if (threadIdx.x % 32 == 0) warp_sums[threadIdx.x / 32] = value;
  __syncthreads();
  if (threadIdx.x == 0)
    for (int warp = 1; warp < loss_threads / 32; ++warp) value += warp_sums[warp];
  return value;
}

/// Copies a row of x to shared memory; x is in packs. All threads of the block must call it.
template <typename T>
__device__ __forceinline__ const T* stage_row(const MatrixView& x, std::int64_t row, uint4* staged) {
  const auto* from = reinterpret_cast<const uint4*>(static_cast<const T*>(x.data) + row * x.leading);
  __syncthreads();  // the previous row is no longer read
  for (int i = static_cast<int>(threadIdx.x); i < x.columns / pack_width<T>; i += loss_threads)
    staged[i] = from[i];
  __syncthreads();
  return reinterpret_cast<const T*>(staged);
}

/// Each thread handles one column of z in a tile of rows, one tile per blockIdx.y. The taps of a column read
/// elements anywhere in a row of x. The row is therefore staged in shared memory if it fits.
template <typename T, bool staged>
__global__ void __launch_bounds__(loss_threads)
    loss_gradient_kernel(const LossGradient call, std::int64_t tile_rows,
                         typename Element<T>::compute* partials, double* loss_partials) {
  using Compute = typename Element<T>::compute;
  extern __shared__ uint4 staged_row[];
  const std::int64_t column = std::int64_t{blockIdx.x} * loss_threads + threadIdx.x;
  const bool inside = column < call.z.columns;
  const Target<Compute> target(call.target_seed, static_cast<std::uint32_t>(column),
                               static_cast<std::uint32_t>(call.x.columns));
  const Compute bias = inside ? static_cast<Compute>(call.bias[column]) : Compute(0);
  const auto scale = static_cast<Compute>(call.gradient_scale);
  const std::int64_t first = blockIdx.y * tile_rows;
  const std::int64_t end = first + tile_rows < call.z.rows ? first + tile_rows : call.z.rows;

  Compute gradient_sum = 0, loss = 0;
  for (std::int64_t row = first; row < end; ++row) {
    const T* x = static_cast<const T*>(call.x.data) + row * call.x.leading;
    if constexpr (staged) x = stage_row<T>(call.x, row, staged_row);
    if (!inside) continue;
    T& z = static_cast<T*>(call.z.data)[row * call.z.leading + column];
    const Compute error = Element<T>::load(z) + bias - target.of(x);
    z = Element<T>::store(error * scale);
    gradient_sum += Element<T>::load(z);
    loss += error * error;
  }
  if (inside) partials[blockIdx.y * call.z.columns + column] = gradient_sum;
  const double block_loss = sum_over_block(static_cast<double>(loss));
  if (threadIdx.x == 0) loss_partials[std::int64_t{blockIdx.y} * gridDim.x + blockIdx.x] = block_loss;
}

__global__ void __launch_bounds__(loss_threads)
    sum_loss_kernel(const double* __restrict__ partials, std::int64_t count, float* loss) {
  double sum = 0;
  for (std::int64_t i = threadIdx.x; i < count; i += loss_threads) sum += partials[i];
  sum = sum_over_block(sum);
  if (threadIdx.x == 0) *loss = static_cast<float>(sum);
}

template <typename T>
int start_loss_gradient(const Launch& launch, const LossGradient& call) {
  using Sum = typename Element<T>::compute;
  const Tiles tiles(call.z, sizeof(Sum), 4, 512);
  const dim3 grid(static_cast<unsigned>(divide_up(call.z.columns, std::int64_t{loss_threads})),
                  static_cast<unsigned>(tiles.count));
  auto* partials = static_cast<Sum*>(launch.scratch);
  auto* loss_partials =
      reinterpret_cast<double*>(static_cast<char*>(launch.scratch) + scratch_bytes - loss_partials_bytes);
  const auto row_bytes = static_cast<std::size_t>(call.x.columns) * sizeof(T);
  const bool staged = in_packs(call.x, pack_width<T>) && row_bytes <= max_staged_bytes - 1024;
  const int error = staged ? start(launch, grid, dim3(loss_threads), row_bytes, loss_gradient_kernel<T, true>,
                                   call, tiles.rows_each, partials, loss_partials)
                           : start(launch, grid, dim3(loss_threads), 0, loss_gradient_kernel<T, false>, call,
                                   tiles.rows_each, partials, loss_partials);
  if (error != cudaSuccess) return error;
  if (const int sums = sum_tiles<Sum>(launch, tiles.count, call.bias_gradient)) return sums;
  return start(launch, dim3(1), dim3(loss_threads), 0, sum_loss_kernel, loss_partials,
               std::int64_t{grid.x} * grid.y, call.loss);
}

}  // namespace

int enqueue(const Launch& launch, const ActivationGradient& call) {
  const auto& [gradient, h, bias_gradient] = call;
  if (gradient.count() == 0) return zero_sums(launch, bias_gradient);
  return with_type(gradient.type, [&](auto type) {
    using T = decltype(type);
    using Sum = typename Element<T>::compute;
    constexpr int pack = pack_width<T>;
    const Tiles tiles(gradient, sizeof(Sum), 128, 64);
    const int error = in_packs(gradient, pack) && in_packs(h, pack)
                          ? start_activation_gradient<T, pack, 8>(launch, gradient, h, tiles)
                          : start_activation_gradient<T, 1, 32>(launch, gradient, h, tiles);
    return error != cudaSuccess ? error : sum_tiles<Sum>(launch, tiles.count, bias_gradient);
  });
}

int enqueue(const Launch& launch, const LossGradient& call) {
  if (call.z.count() == 0) {
    if (const int error = cudaMemsetAsync(call.loss, 0, sizeof(float), launch.stream)) return error;
    return zero_sums(launch, call.bias_gradient);
  }
  return with_type(call.z.type, [&](auto type) { return start_loss_gradient<decltype(type)>(launch, call); });
}

}  // namespace egt::kernels
