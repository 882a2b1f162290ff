#include <algorithm>

#include "kernels/words.cuh"

namespace egt::kernels {
namespace {

template <typename Words>
__device__ __forceinline__ uint4 four_words(const Words& words, std::uint32_t low) {
  const FourWords four = words.four(low);
  return {four.word[0], four.word[1], four.word[2], four.word[3]};
}

/// Mismatches of one thread. They are published once, so that an entirely wrong region costs no more time.
/// They are in shared memory, because registers would reduce the occupancy of concurrent kernels.
struct Found {
  std::uint32_t count, first_low, xor_or, xor_and;

  __device__ void add(std::uint64_t base, std::uint32_t low, std::uint32_t expected, std::uint32_t actual,
                      Mismatches* report) {
    if (expected == actual) return;
    first_low = min(first_low, low);
    ++count;
    xor_or |= expected ^ actual;
    xor_and &= expected ^ actual;
    if (*static_cast<volatile std::uint64_t*>(&report->samples) >= Mismatches::max_samples) return;
    const auto slot = atomicAdd(reinterpret_cast<unsigned long long*>(&report->samples), 1ull);
    if (slot >= Mismatches::max_samples) return;
    report->sample[slot] = {base + low, expected, actual, multiprocessor_id(), blockIdx.x};
  }

  /// Called by all threads of the block. `compared`: words that this thread compared. The equal ones are
  /// subtracted from the report's `count` with one atomic per block.
  __device__ void publish(std::uint64_t base, std::uint32_t compared, Mismatches* report) const {
    __shared__ unsigned long long equal_of_block;
    if (threadIdx.x == 0) equal_of_block = 0;
    __syncthreads();
    atomicAdd(&equal_of_block, static_cast<unsigned long long>(compared - count));
    __syncthreads();
    if (threadIdx.x == 0)
      atomicAdd(reinterpret_cast<unsigned long long*>(&report->count), 0 - equal_of_block);
    if (count == 0) return;
    atomicMin(reinterpret_cast<unsigned long long*>(&report->first_index),
              static_cast<unsigned long long>(base + first_low));
    atomicOr(&report->xor_or, xor_or);
    atomicAnd(&report->xor_and, xor_and);
  }
};

/// Not inlined: the mismatch path would use registers of the loop.
__device__ __noinline__ void add_four(Found& found, std::uint64_t base, std::uint32_t low, uint4 expected,
                                      uint4 actual, Mismatches* report) {
  found.add(base, low, expected.x, actual.x, report);
  found.add(base, low + 1, expected.y, actual.y, report);
  found.add(base, low + 2, expected.z, actual.z, report);
  found.add(base, low + 3, expected.w, actual.w, report);
}

__device__ __forceinline__ void check_four(Found& found, const WordBlock& block, std::uint32_t low,
                                           const uint4& expected, const uint4& actual, Mismatches* report) {
  const std::uint32_t difference =
      (expected.x ^ actual.x) | (expected.y ^ actual.y) | (expected.z ^ actual.z) | (expected.w ^ actual.w);
  if (difference != 0) add_four(found, block.base, low, expected, actual, report);
}

/// Resident blocks per multiprocessor: fewer registers per thread leave registers for concurrent kernels.
constexpr unsigned words_residents = 3;

/// Clears and returns this thread's entry in the block's array.
__device__ __forceinline__ Found& nothing_found(Found* of_block) {
  of_block[threadIdx.x] = {.count = 0, .first_low = ~0u, .xor_or = 0, .xor_and = ~0u};
  return of_block[threadIdx.x];
}

template <typename Words>
__global__ void __launch_bounds__(words_threads) fill_kernel(const WordBlock block, const Words words) {
  const std::uint32_t stride = gridDim.x * words_threads;
  for (std::uint32_t v = blockIdx.x * words_threads + threadIdx.x; v < block.vectors; v += stride)
    __stcs(block.vector_data() + v, four_words(words, block.vector_low(v)));
  for_single_words(block, [&](std::uint32_t low) { block.data[low] = words(low); });
}

template <typename Words>
__global__ void __launch_bounds__(words_threads, words_residents)
    verify_kernel(const WordBlock block, const Words words, Mismatches* report, const Flip miscomputed) {
  __shared__ Found of_block[words_threads];
  Found& found = nothing_found(of_block);
  std::uint32_t compared = 0;
  for_vectors(block, [&](std::uint32_t v, const uint4& actual) {
    check_four(found, block, block.vector_low(v), four_words(words, block.vector_low(v)), actual, report);
    compared += 4;
  });
  for_single_words(block, [&](std::uint32_t low) {
    found.add(block.base, low, words(low), block.data[low], report);
    ++compared;
  });
  if (miscomputed.count > 0) {
    const auto low = static_cast<std::uint32_t>(miscomputed.first);
    const std::uint32_t vector = (low - block.head) / 4, stride = gridDim.x * words_threads;
    if (miscomputed.first - low == block.base && vector < block.vectors &&
        vector % stride == blockIdx.x * words_threads + threadIdx.x)
      found.add(block.base, low, miscomputed(words(low)), block.data[low], report);
  }
  found.publish(block.base, compared, report);
}

template <typename Words, typename NextWords>
__global__ void __launch_bounds__(words_threads, words_residents)
    verify_and_fill_kernel(const WordBlock block, const Words words, const NextWords next, bool descending,
                           Mismatches* report) {
  __shared__ Found of_block[words_threads];
  Found& found = nothing_found(of_block);
  std::uint32_t compared = 0;
  for_vectors(block, descending, [&](std::uint32_t v, const uint4& actual) {
    const std::uint32_t low = block.vector_low(v);
    check_four(found, block, low, four_words(words, low), actual, report);
    compared += 4;
    __stcs(block.vector_data() + v, four_words(next, low));
  });
  for_single_words(block, [&](std::uint32_t low) {
    found.add(block.base, low, words(low), block.data[low], report);
    ++compared;
    block.data[low] = next(low);
  });
  found.publish(block.base, compared, report);
}

template <typename T>
__global__ void __launch_bounds__(words_threads)
    verify_sum_kernel(const T* sum, std::uint32_t elements, const T* terms, int count, Mismatches* report) {
  __shared__ Found of_block[words_threads];
  Found& found = nothing_found(of_block);
  const std::uint32_t stride = gridDim.x * words_threads;
  std::uint32_t compared = 0;
  for (std::uint64_t i = blockIdx.x * words_threads + threadIdx.x; i < elements; i += stride, ++compared) {
    math::SumOfTerms exact;
    for (int k = 0; k < count; ++k)
      exact.add(Element<T>::load(terms[static_cast<std::uint64_t>(k) * elements + i]));
    const T actual = sum[i];
    if (!exact.allows(actual))
      found.add(0, static_cast<std::uint32_t>(i), bits_of(exact.nearest<T>()), bits_of(actual), report);
  }
  found.publish(0, compared, report);
}

__global__ void reset_kernel(Mismatches* report, const Mismatches nothing) {
  *report = nothing;
}

/// A separate kernel: if the verification does not run, its words remain counted as mismatches.
__global__ void expect_kernel(Mismatches* report, std::uint64_t words) {
  report->count += words;
}

int expect(const Launch& launch, Mismatches* report, std::uint64_t words) {
  return start(launch, dim3(1), dim3(1), 0, expect_kernel, report, words);
}

/// Calls `f` with the pattern's words for one block.
template <typename F>
int with_words(const Pattern& pattern, const WordBlock& block, F&& f) {
  const PatternFunction function(pattern);
  const auto high = static_cast<std::uint32_t>(block.base >> 32);
  if (function.is_contribution() || block.head != 0) return f(SingleWords{function, block.base});
  if (function.is_regular()) return f(function.regular_block(high));
  return f(function.block(high));
}

/// As `with_words`, for all kinds. Only fill and verify have code for `operands`.
template <typename F>
int with_any_words(const Pattern& pattern, const WordBlock& block, F&& f) {
  if (pattern.kind != PatternKind::operands || block.head != 0) return with_words(pattern, block, f);
  return f(PatternFunction(pattern).operand_block(static_cast<std::uint32_t>(block.base >> 32)));
}

}  // namespace

int enqueue(const Launch& launch, const Fill& call) {
  const auto& [view, pattern] = call;
  return for_blocks(view, [&](const WordBlock& block) {
    return with_any_words(pattern, block, [&](const auto& words) {
      using Words = std::decay_t<decltype(words)>;
      return start(launch, words_grid(launch, block), dim3(words_threads), 0, fill_kernel<Words>, block,
                   words);
    });
  });
}

int enqueue(const Launch& launch, const Reset& call) {
  return start(launch, dim3(1), dim3(1), 0, reset_kernel, call.report, Mismatches::none());
}

int enqueue(const Launch& launch, const Verify& call) {
  const auto& [view, expected, report, miscomputed] = call;
  if (const int error = expect(launch, report, view.count); error != cudaSuccess) return error;
  return for_blocks(view, [&](const WordBlock& block) {
    return with_any_words(expected, block, [&](const auto& words) {
      using Words = std::decay_t<decltype(words)>;
      return start(launch, words_grid(launch, block), dim3(words_threads), 0, verify_kernel<Words>, block,
                   words, report, miscomputed);
    });
  });
}

int enqueue(const Launch& launch, const VerifySum& call) {
  const auto& [sum, terms, count, report] = call;
  if (sum.count == 0) return cudaSuccess;
  if (const int error = expect(launch, report, static_cast<std::uint64_t>(sum.count)); error != cudaSuccess)
    return error;
  constexpr std::int64_t blocks_per_multiprocessor = 2048 / words_threads;
  const std::int64_t useful = divide_up<std::int64_t>(sum.count, words_threads),
                     most = launch.multiprocessors * blocks_per_multiprocessor;
  return with_gradient_type(sum.type, [&](auto type) {
    using T = decltype(type);
    return start(launch, dim3(static_cast<unsigned>(std::min(useful, most))), dim3(words_threads), 0,
                 verify_sum_kernel<T>, static_cast<const T*>(sum.data), static_cast<std::uint32_t>(sum.count),
                 static_cast<const T*>(terms), count, report);
  });
}

int enqueue(const Launch& launch, const VerifyAndFill& call) {
  const auto& [view, expected, next, direction, report] = call;
  if (expected.kind == PatternKind::operands || next.kind == PatternKind::operands) {
    const int error = enqueue(launch, Verify{view, expected, report});
    return error != cudaSuccess ? error : enqueue(launch, Fill{view, next});
  }
  const bool descending = direction == Direction::descending;
  if (const int error = expect(launch, report, view.count); error != cudaSuccess) return error;
  return for_blocks(view, descending, [&](const WordBlock& block) {
    return with_words(expected, block, [&](const auto& words) {
      return with_words(next, block, [&](const auto& next_words) {
        using Words = std::decay_t<decltype(words)>;
        using NextWords = std::decay_t<decltype(next_words)>;
        return start(launch, words_grid(launch, block), dim3(words_threads), 0,
                     verify_and_fill_kernel<Words, NextWords>, block, words, next_words, descending, report);
      });
    });
  });
}

}  // namespace egt::kernels
