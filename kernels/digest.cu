#include "kernels/block_sum.cuh"
#include "kernels/words.cuh"

namespace egt::kernels {
namespace {

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

__global__ void __launch_bounds__(words_threads) sum_kernel(const WordBlock block, Digest* total) {
  std::uint64_t a = 0;
  for_vectors(block, [&](std::uint32_t, const uint4& four) {
    a += (std::uint64_t{four.x} + four.y) + (std::uint64_t{four.z} + four.w);
  });
  for_single_words(block, [&](std::uint32_t low) { a += block.data[low]; });
  publish(a, 0, total);
}

constexpr unsigned compute_threads = 256;

/// Compute-bound, so each thread loads one word at a time.
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

/// Without Launch::width, there are many short blocks. Whenever one ends, a block of a stream with a higher
/// priority can start.
dim3 compute_grid(const Launch& launch, const WordBlock& block) {
  const std::uint64_t blocks = divide_up(block.count(), std::uint64_t{compute_threads});
  const auto width = static_cast<std::uint64_t>(launch.width);
  return dim3(static_cast<unsigned>(width > 0 && blocks > width ? width : blocks));
}

}  // namespace

int enqueue(const Launch& launch, const DigestWords& call) {
  const auto& [view, total] = call;
  if (const int error = cudaMemsetAsync(total, 0, sizeof *total, launch.stream)) return error;
  return for_blocks(view, [&](const WordBlock& block) {
    return start(launch, words_grid(launch, block), dim3(words_threads), 0, digest_kernel, block, total);
  });
}

int enqueue(const Launch& launch, const SumWords& call) {
  const auto& [view, sums] = call;
  if (const int error = cudaMemsetAsync(sums, 0, sizeof *sums, launch.stream)) return error;
  return for_blocks(view, [&](const WordBlock& block) {
    return start(launch, words_grid(launch, block), dim3(words_threads), 0, sum_kernel, block, sums);
  });
}

int enqueue(const Launch& launch, const SineExponential& call) {
  const auto& [view, iterations, total] = call;
  if (const int error = cudaMemsetAsync(total, 0, sizeof *total, launch.stream)) return error;
  return for_blocks(view, [&](const WordBlock& block) {
    return start(launch, compute_grid(launch, block), dim3(compute_threads), 0, sine_exponential_kernel,
                 block, iterations, total);
  });
}

}  // namespace egt::kernels
