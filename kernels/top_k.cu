#include "kernels/vector.cuh"

// Radix selection: elements are counted by the digits of their keys, highest first, which gives the key of
// the smallest selected one. Then each chunk's elements above and at that key are counted, so that each block
// knows its first output position. Integer counts do not depend on the order of the threads, so the output is
// deterministic.

namespace egt::kernels {
namespace {

constexpr unsigned select_threads = 256, warp_threads = 32, whole_warp = 0xffffffffu;

/// This block's element range [begin, end): a multiple of the block's threads, except at the end of the data.
struct Chunk {
  std::int64_t begin, end;

  __device__ __forceinline__ explicit Chunk(std::int64_t count) {
    const std::int64_t tiles = divide_up(count, std::int64_t{select_threads});
    const std::int64_t length = divide_up(tiles, std::int64_t{TopKScratch::chunks}) * select_threads;
    begin = min(blockIdx.x * length, count);
    end = min(begin + length, count);
  }
};

/// Counts elements by a digit of their keys, if the digits before it equal the threshold's. Before the first
/// digit: residual += gradient.
template <bool is_first>
__global__ void __launch_bounds__(select_threads)
    count_digits_kernel(const float* gradient, float* residual, std::int64_t count, math::KeyDigit digit,
                        TopKScratch* scratch) {
  __shared__ std::uint32_t histogram[math::max_digit_values];
  for (unsigned i = threadIdx.x; i < math::max_digit_values; i += select_threads) histogram[i] = 0;
  __syncthreads();
  const std::uint32_t known = is_first ? 0 : scratch->key;
  const Chunk chunk(count);
  for (std::int64_t i = chunk.begin + threadIdx.x; i < chunk.end; i += select_threads) {
    if constexpr (is_first) residual[i] = math::add(gradient[i], residual[i]);
    const std::uint32_t key = math::magnitude_key(residual[i]);
    if (digit.before(key) == known) atomicAdd(&histogram[digit.of(key)], 1u);
  }
  __syncthreads();
  for (unsigned i = threadIdx.x; i < math::max_digit_values; i += select_threads)
    if (histogram[i] > 0) atomicAdd(&scratch->histogram[i], histogram[i]);
}

/// One block: selects the threshold's next digit and clears the histogram for the digit after it.
__global__ void __launch_bounds__(select_threads)
    choose_digit_kernel(math::KeyDigit digit, std::uint32_t k, bool is_first, TopKScratch* scratch) {
  constexpr unsigned each = math::max_digit_values / select_threads;
  __shared__ std::uint32_t sums[select_threads], counts[math::max_digit_values];
  std::uint32_t sum = 0;
  for (unsigned j = 0; j < each; ++j) {
    const unsigned i = threadIdx.x * each + j;
    sum += counts[i] = scratch->histogram[i];
    scratch->histogram[i] = 0;
  }
  sums[threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.x != 0) return;
  std::uint32_t left = is_first ? k : scratch->left;
  unsigned thread = select_threads - 1;
  for (; thread > 0 && left > sums[thread]; --thread) left -= sums[thread];
  unsigned value = (thread + 1) * each - 1;
  for (; value > 0 && left > counts[value]; --value) left -= counts[value];
  scratch->key = (is_first ? 0 : scratch->key) << digit.bits | value;
  scratch->left = left;
}

/// Two flags: the element's key is above the threshold's, or equal to it.
__device__ __forceinline__ uint2 larger_equal(float value, std::uint32_t threshold) {
  const std::uint32_t key = math::magnitude_key(value);
  return make_uint2(key > threshold, key == threshold);
}

/// The sums over the block's threads before this one; `total` becomes the sums over all threads.
__device__ __forceinline__ uint2 sums_before(uint2 own, uint2& total) {
  constexpr unsigned warps = select_threads / warp_threads;
  __shared__ uint2 warp_sums[warps];
  const unsigned lane = threadIdx.x % warp_threads, warp = threadIdx.x / warp_threads;
  uint2 sum = own;
#pragma unroll
  for (unsigned offset = 1; offset < warp_threads; offset *= 2) {
    const std::uint32_t x = __shfl_up_sync(whole_warp, sum.x, offset);
    const std::uint32_t y = __shfl_up_sync(whole_warp, sum.y, offset);
    if (lane < offset) continue;
    sum.x += x;
    sum.y += y;
  }
  __syncthreads();  // the sums of the previous call have been read
  if (lane == warp_threads - 1) warp_sums[warp] = sum;
  __syncthreads();
  uint2 before = make_uint2(sum.x - own.x, sum.y - own.y);
  total = make_uint2(0, 0);
  for (unsigned w = 0; w < warps; ++w) {
    if (w < warp) before = make_uint2(before.x + warp_sums[w].x, before.y + warp_sums[w].y);
    total = make_uint2(total.x + warp_sums[w].x, total.y + warp_sums[w].y);
  }
  return before;
}

__global__ void __launch_bounds__(select_threads)
    count_chunks_kernel(const float* residual, std::int64_t count, TopKScratch* scratch) {
  const std::uint32_t threshold = scratch->key;
  const Chunk chunk(count);
  uint2 own = make_uint2(0, 0), total;
  for (std::int64_t i = chunk.begin + threadIdx.x; i < chunk.end; i += select_threads) {
    const uint2 one = larger_equal(residual[i], threshold);
    own = make_uint2(own.x + one.x, own.y + one.y);
  }
  sums_before(own, total);
  if (threadIdx.x > 0) return;
  scratch->larger[blockIdx.x] = total.x;
  scratch->equal[blockIdx.x] = total.y;
}

/// One block: replaces each chunk's counts (above the threshold, equal to it) by those of all earlier chunks.
__global__ void __launch_bounds__(select_threads) place_chunks_kernel(TopKScratch* scratch) {
  uint2 before = make_uint2(0, 0);
  for (unsigned i = threadIdx.x; i < TopKScratch::chunks; i += select_threads) {
    const uint2 own = make_uint2(scratch->larger[i], scratch->equal[i]);
    uint2 total;
    const uint2 within = sums_before(own, total);
    scratch->larger[i] = before.x + within.x;
    scratch->equal[i] = before.y + within.y;
    before = make_uint2(before.x + total.x, before.y + total.y);
  }
}

__global__ void __launch_bounds__(select_threads)
    take_selected_kernel(float* residual, std::int64_t count, SparseElement* selected,
                         const TopKScratch* scratch) {
  const std::uint32_t threshold = scratch->key, left = scratch->left;
  uint2 before = make_uint2(scratch->larger[blockIdx.x], scratch->equal[blockIdx.x]);
  const Chunk chunk(count);
  for (std::int64_t tile = chunk.begin; tile < chunk.end; tile += select_threads) {
    const std::int64_t i = tile + threadIdx.x;
    const bool is_there = i < chunk.end;
    const float value = is_there ? residual[i] : 0.0f;
    const uint2 own = is_there ? larger_equal(value, threshold) : make_uint2(0, 0);
    uint2 total;
    const uint2 within = sums_before(own, total);
    const std::uint32_t larger = before.x + within.x, equal = before.y + within.y;
    if (own.x || (own.y && equal < left)) {
      selected[larger + min(equal, left)] = {static_cast<std::uint32_t>(i), value};
      residual[i] = 0;
    }
    before = make_uint2(before.x + total.x, before.y + total.y);
  }
}

struct AddSparse {
  float* sum;
  std::int64_t count;
  const SparseElement* elements;

  template <int N>
  __device__ __forceinline__ void run(std::int64_t i) const {
    const SparseElement element = elements[i];
    if (element.index < count) sum[element.index] = math::add(sum[element.index], element.value);
  }
};

}  // namespace

int enqueue(const Launch& launch, const TopKSelection& call) {
  const std::int64_t count = call.gradient.count;
  if (count == 0) return cudaSuccess;
  const auto* const gradient = static_cast<const float*>(call.gradient.data);
  const dim3 chunks(TopKScratch::chunks), one(1), threads(select_threads);
  TopKScratch* const scratch = call.scratch;
  if (const int error = cudaMemsetAsync(scratch->histogram, 0, sizeof scratch->histogram, launch.stream))
    return error;
  for (const math::KeyDigit& digit : math::key_digits) {
    const bool is_first = &digit == math::key_digits;
    auto* const kernel = is_first ? count_digits_kernel<true> : count_digits_kernel<false>;
    if (const int error =
            start(launch, chunks, threads, 0, kernel, gradient, call.residual, count, digit, scratch))
      return error;
    if (const int error = start(launch, one, threads, 0, choose_digit_kernel, digit,
                                static_cast<std::uint32_t>(call.selected.count), is_first, scratch))
      return error;
  }
  if (const int error = start(launch, chunks, threads, 0, count_chunks_kernel, call.residual, count, scratch))
    return error;
  if (const int error = start(launch, one, threads, 0, place_chunks_kernel, scratch)) return error;
  return start(launch, chunks, threads, 0, take_selected_kernel, call.residual, count, call.selected.data,
               scratch);
}

int enqueue(const Launch& launch, const ScatterAdd& call) {
  const auto& [sum, elements] = call;
  return for_each<1>(launch, elements.count, {{elements.data, sizeof(SparseElement)}},
                     AddSparse{static_cast<float*>(sum.data), sum.count, elements.data});
}

}  // namespace egt::kernels
