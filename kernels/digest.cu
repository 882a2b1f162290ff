#include "kernels/words.cuh"

namespace egt::kernels {
namespace {

/// The sum over the threads of a block, in thread 0. Blocks of whole warps, at most 1024 threads.
__device__ __forceinline__ void sum_over_block(unsigned long long& a, unsigned long long& b) {
  __shared__ unsigned long long warp_sums[2][32];
  for (int offset = 16; offset > 0; offset /= 2) {
    a += __shfl_down_sync(~0u, a, offset);
    b += __shfl_down_sync(~0u, b, offset);
  }
  const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  if (lane == 0) {
    warp_sums[0][warp] = a;
    warp_sums[1][warp] = b;
  }
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (unsigned w = 1; w < blockDim.x / 32; ++w) {
    a += warp_sums[0][w];
    b += warp_sums[1][w];
  }
}

/// Adds a thread's sums to *total. They are modulo 2^64, so the order of the blocks' atomics is free.
__device__ __forceinline__ void publish(std::uint64_t a, std::uint64_t b, Digest* total) {
  unsigned long long sum_a = a, sum_b = b;
  sum_over_block(sum_a, sum_b);
  if (threadIdx.x != 0) return;
  atomicAdd(reinterpret_cast<unsigned long long*>(&total->a), sum_a);
  atomicAdd(reinterpret_cast<unsigned long long*>(&total->b), sum_b);
}

__global__ void __launch_bounds__(words_threads) digest_kernel(const WordBlock block, Digest* total) {
  std::uint64_t a = 0, b = 0;
  for_vectors(block, [&](std::uint32_t v, const uint4& four) {
    const std::uint32_t low = block.vector_low(v);
    add_to_digest(a, b, block.base | low, four.x);
    add_to_digest(a, b, block.base | (low + 1), four.y);
    add_to_digest(a, b, block.base | (low + 2), four.z);
    add_to_digest(a, b, block.base | (low + 3), four.w);
  });
  for_single_words(block, [&](std::uint32_t low) { add_to_digest(a, b, block.base | low, block.data[low]); });
  publish(a, b, total);
}

constexpr unsigned compute_threads = 256;

/// Bound by compute: one word a thread at a time.
__global__ void __launch_bounds__(compute_threads)
    sine_exponential_kernel(const WordBlock block, int iterations, Digest* total) {
  std::uint64_t a = 0, b = 0;
  const std::uint64_t stride = std::uint64_t{gridDim.x} * compute_threads;
  for (std::uint64_t i = std::uint64_t{blockIdx.x} * compute_threads + threadIdx.x; i < block.count();
       i += stride) {
    const float result = math::sine_exponential(float_from_bits(block.data[i]), iterations);
    add_to_digest(a, b, block.base | i, float_bits(result));
  }
  publish(a, b, total);
}

/// Short blocks give way to streams of higher priority as they end; a background stream, which must not fill
/// the multiprocessors at all, gets one lasting block on each.
dim3 compute_grid(const Launch& launch, const WordBlock& block) {
  const std::uint64_t blocks = divide_up(block.count(), std::uint64_t{compute_threads});
  const auto multiprocessors = static_cast<std::uint64_t>(launch.multiprocessors);
  return dim3(
      static_cast<unsigned>(launch.background && blocks > multiprocessors ? multiprocessors : blocks));
}

}  // namespace

int digest(const Launch& launch, WordsView view, Digest* total) {
  if (const int error = cudaMemsetAsync(total, 0, sizeof *total, launch.stream)) return error;
  return for_blocks(view, [&](const WordBlock& block) {
    return start(launch, words_grid(launch, block), dim3(words_threads), 0, digest_kernel, block, total);
  });
}

int sine_exponential(const Launch& launch, WordsView view, int iterations, Digest* total) {
  if (const int error = cudaMemsetAsync(total, 0, sizeof *total, launch.stream)) return error;
  return for_blocks(view, [&](const WordBlock& block) {
    return start(launch, compute_grid(launch, block), dim3(compute_threads), 0, sine_exponential_kernel,
                 block, iterations, total);
  });
}

}  // namespace egt::kernels
