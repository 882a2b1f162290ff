#include "kernels/matrix.cuh"

/// Quantization to 8 bits: the first kernel computes the max magnitude. The second scales, rounds and writes
/// the copies, the transposed one through shared memory.
namespace egt::kernels {
namespace {

/// Tile of a block: 16 x 16 threads with 4 columns and 4 rows each.
constexpr int tile = 64, across = 16, down = matrix_threads / across, each = 4;
constexpr int tile_bytes = tile + each;  // line pitch that avoids bank conflicts

/// Computes the max magnitude. As integers, the bits of infinity and NaN are above those of finite values.
template <typename X, int N>
__global__ void __launch_bounds__(matrix_threads)
    magnitude_kernel(const MatrixView x, std::uint32_t* largest) {
  const std::int64_t column = (std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x) * N;
  std::uint32_t own = 0;
  if (column < x.columns) {
    const std::int64_t step = std::int64_t{gridDim.y} * blockDim.y;
    for (std::int64_t row = std::int64_t{blockIdx.y} * blockDim.y + threadIdx.y; row < x.rows; row += step) {
      const auto pack = Pack<X, N>::load(static_cast<const X*>(x.data) + row * x.leading + column);
#pragma unroll
      for (int j = 0; j < N; ++j) {
        const std::uint32_t magnitude = float_bits(Element<X>::load(pack.v[j])) & 0x7FFFFFFFu;
        own = own > magnitude ? own : magnitude;
      }
    }
  }
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
    const std::uint32_t other = __shfl_xor_sync(~0u, own, offset);
    own = own > other ? own : other;
  }
  // One atomic operation per block, because all go to the same word.
  __shared__ std::uint32_t of_block;
  const unsigned thread = threadIdx.y * blockDim.x + threadIdx.x;
  if (thread == 0) of_block = 0;
  __syncthreads();
  if (thread % 32 == 0) atomicMax(&of_block, own);
  __syncthreads();
  if (thread == 0 && of_block > 0) atomicMax(largest, of_block);
}

template <typename Q, typename X>
__device__ __forceinline__ std::uint8_t quantized(X element, float factor) {
  return to_float_of_8<Q>(Element<X>::load(element) * factor).bits;
}

/// `packed`: all rows of x and of the copies are accessed four elements at a time.
template <typename X, typename Q, bool packed>
__global__ void __launch_bounds__(matrix_threads)
    quantize_kernel(const MatrixView x, const MatrixView copy, const MatrixView transposed,
                    const std::uint32_t* __restrict__ largest, float* scale) {
  __shared__ alignas(each) std::uint8_t turned[tile][tile_bytes];  // indexed by column, then by row
  const float factor = quantization_factor<Q>(*largest);
  if (blockIdx.x == 0 && blockIdx.y == 0 && threadIdx.x == 0 && threadIdx.y == 0) *scale = 1 / factor;
  const std::int64_t first_column = std::int64_t{blockIdx.x} * tile,
                     first_row = std::int64_t{blockIdx.y} * tile;
  const int c = static_cast<int>(threadIdx.x) * each;
  const std::int64_t column = first_column + c;

#pragma unroll
  for (int i = 0; i < tile / down; ++i) {
    const int r = static_cast<int>(threadIdx.y) + i * down;
    const std::int64_t row = first_row + r;
    if (row >= x.rows || column >= x.columns) continue;
    const X* const from = static_cast<const X*>(x.data) + row * x.leading + column;
    std::uint8_t* const to = static_cast<std::uint8_t*>(copy.data) + row * copy.leading + column;
    std::uint8_t bytes[each] = {};
    if constexpr (packed) {
      const auto pack = Pack<X, each>::load(from);
#pragma unroll
      for (int j = 0; j < each; ++j) bytes[j] = quantized<Q>(pack.v[j], factor);
      if (copy.data) *reinterpret_cast<uchar4*>(to) = make_uchar4(bytes[0], bytes[1], bytes[2], bytes[3]);
    } else {
      for (int j = 0; j < each && column + j < x.columns; ++j) {
        bytes[j] = quantized<Q>(from[j], factor);
        if (copy.data) to[j] = bytes[j];
      }
    }
#pragma unroll
    for (int j = 0; j < each; ++j) turned[c + j][r] = bytes[j];
  }
  if (transposed.data == nullptr) return;
  __syncthreads();

  const int thread = static_cast<int>(threadIdx.y) * across + static_cast<int>(threadIdx.x);
  const int r = thread % across * each;
#pragma unroll
  for (int i = 0; i < tile / down; ++i) {
    const int line = thread / across + i * down;
    const std::int64_t to_row = first_column + line, to_column = first_row + r;
    if (to_row >= x.columns || to_column >= x.rows) continue;
    std::uint8_t* const to =
        static_cast<std::uint8_t*>(transposed.data) + to_row * transposed.leading + to_column;
    if constexpr (packed)
      *reinterpret_cast<uchar4*>(to) = *reinterpret_cast<const uchar4*>(&turned[line][r]);
    else
      for (int j = 0; j < each && to_column + j < x.rows; ++j) to[j] = turned[line][r + j];
  }
}

template <typename X>
int start_magnitude(const Launch& launch, const MatrixView& x, std::uint32_t* largest) {
  constexpr int n = pack_width<X>, rows_each = 8;
  if (in_packs(x, n)) {
    const MatrixGrid grid(x, n, rows_each);
    return start(launch, grid.grid, grid.block, 0, magnitude_kernel<X, n>, x, largest);
  }
  const MatrixGrid grid(x, 1, rows_each);
  return start(launch, grid.grid, grid.block, 0, magnitude_kernel<X, 1>, x, largest);
}

bool in_fours(const MatrixView& m) {
  return m.data == nullptr || (m.columns % each == 0 && m.leading % each == 0 &&
                               reinterpret_cast<std::uintptr_t>(m.data) % each == 0);
}

template <typename X, typename Q>
int start_quantize(const Launch& launch, const MatrixView& x, const MatrixView& copy,
                   const MatrixView& transposed, const std::uint32_t* largest, float* scale) {
  const dim3 grid(static_cast<unsigned>(divide_up(x.columns, std::int64_t{tile})),
                  static_cast<unsigned>(divide_up(x.rows, std::int64_t{tile})));
  const bool packed = in_packs(x, each) && in_fours(copy) && in_fours(transposed);
  return start(launch, grid, dim3(across, down), 0,
               packed ? quantize_kernel<X, Q, true> : quantize_kernel<X, Q, false>, x, copy, transposed,
               largest, scale);
}

}  // namespace

int enqueue(const Launch& launch, const Quantization& call) {
  const auto& [x, copy, transposed, scale] = call;
  if (x.count() == 0) return cudaSuccess;
  auto* const largest = static_cast<std::uint32_t*>(launch.scratch);
  if (const int error = cudaMemsetAsync(largest, 0, sizeof *largest, launch.stream)) return error;
  const bool e5m2 = (copy.data ? copy : transposed).type == ElementType::f8_e5m2;
  return with_gradient_type(x.type, [&](auto type) {
    using X = decltype(type);
    if (const int error = start_magnitude<X>(launch, x, largest)) return error;
    return e5m2 ? start_quantize<X, Float8E5m2>(launch, x, copy, transposed, largest, scale)
                : start_quantize<X, Float8>(launch, x, copy, transposed, largest, scale);
  });
}

}  // namespace egt::kernels
