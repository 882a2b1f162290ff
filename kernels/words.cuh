#pragma once

#include "egt/core/view.hpp"
#include "kernels/vector.cuh"

/// Traversal of regions of 32-bit words at memory bandwidth. A region may exceed 2^32 words. It is traversed
/// in blocks of 2^32, one launch each, so that a kernel uses 32-bit indices and computes everything that
/// depends on the upper half of the index once.
namespace egt::kernels {

constexpr unsigned words_threads = 512;
constexpr unsigned words_blocks_per_multiprocessor = 16;  // the fastest measured

/// Up to 2^32 words that share the upper half of their index.
struct WordBlock {
  std::uint32_t* data;    ///< at index `base`
  std::uint64_t base;     ///< a multiple of 2^32
  std::uint32_t head;     ///< words before the first 16-byte boundary, below 4
  std::uint32_t vectors;  ///< of four words, from `head` on
  std::uint32_t tail;     ///< words after them, below 4

  __host__ __device__ std::uint64_t count() const { return head + std::uint64_t{4} * vectors + tail; }
  __device__ __forceinline__ uint4* vector_data() const { return reinterpret_cast<uint4*>(data + head); }
  /// The lower half of the index of the first word of vector `v`.
  __device__ __forceinline__ std::uint32_t vector_low(std::uint32_t v) const { return head + 4 * v; }
};

inline WordBlock word_block(WordsView words, std::uint64_t base) {
  constexpr std::uint64_t most = std::uint64_t{1} << 32;
  const std::uint64_t count = words.count - base < most ? words.count - base : most;
  std::uint32_t* data = words.data + base;
  const std::uint64_t misaligned =
      reinterpret_cast<std::uintptr_t>(data) % vector_bytes / sizeof(std::uint32_t);
  const std::uint64_t to_boundary = (4 - misaligned) % 4, head = to_boundary < count ? to_boundary : count;
  const std::uint64_t vectors = (count - head) / 4;
  return {data, base, static_cast<std::uint32_t>(head), static_cast<std::uint32_t>(vectors),
          static_cast<std::uint32_t>(count - head - 4 * vectors)};
}

/// Calls `f` for each block of the region, in reverse if `descending`, until one launch fails.
template <typename F>
int for_blocks(WordsView words, bool descending, F&& f) {
  constexpr std::uint64_t most = std::uint64_t{1} << 32;
  const std::uint64_t blocks = words.count / most + (words.count % most != 0);
  for (std::uint64_t i = 0; i < blocks; ++i) {
    const std::uint64_t block = descending ? blocks - 1 - i : i;
    if (const int error = f(word_block(words, block * most)); error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

template <typename F>
int for_blocks(WordsView words, F&& f) {
  return for_blocks(words, false, std::forward<F>(f));
}

inline dim3 words_grid(const Launch& launch, const WordBlock& block) {
  const unsigned most = static_cast<unsigned>(
      launch.width > 0 ? launch.width
                       : launch.multiprocessors * static_cast<int>(words_blocks_per_multiprocessor));
  const unsigned useful = block.vectors / words_threads + 1;
  return dim3(useful < most ? useful : most);
}

/// Calls `f(vector index, its four words)` for this thread's share of the vectors, with the loads of four
/// vectors in flight. Descending exactly reverses the order of the vectors and of the threads.
template <typename F>
__device__ __forceinline__ void for_vectors(const WordBlock& block, bool descending, F&& f) {
  constexpr std::uint32_t in_flight = 4;
  const std::uint32_t stride = gridDim.x * blockDim.x, thread = blockIdx.x * blockDim.x + threadIdx.x;
  const std::uint32_t first = descending ? stride - 1 - thread : thread;
  if (first >= block.vectors) return;
  const uint4* data = block.vector_data();
  std::uint32_t left = (block.vectors - 1 - first) / stride + 1;
  std::uint32_t v = descending ? first + (left - 1) * stride : first;
  const std::uint32_t step = descending ? 0u - stride : stride;
  for (; left >= in_flight; left -= in_flight, v += in_flight * step) {
    uint4 actual[in_flight];
#pragma unroll
    for (std::uint32_t u = 0; u < in_flight; ++u) actual[u] = __ldcs(data + (v + u * step));
#pragma unroll
    for (std::uint32_t u = 0; u < in_flight; ++u) f(v + u * step, actual[u]);
  }
  for (; left > 0; --left, v += step) f(v, __ldcs(data + v));
}

template <typename F>
__device__ __forceinline__ void for_vectors(const WordBlock& block, F&& f) {
  for_vectors(block, false, std::forward<F>(f));
}

/// Calls f(lower half of the index) for the up to 3 words before and after the vectors, in the first block.
template <typename F>
__device__ __forceinline__ void for_single_words(const WordBlock& block, F&& f) {
  if (blockIdx.x != 0) return;
  if (threadIdx.x < block.head) f(threadIdx.x);
  if (threadIdx.x < block.tail) f(block.head + 4 * block.vectors + threadIdx.x);
}

}  // namespace egt::kernels
