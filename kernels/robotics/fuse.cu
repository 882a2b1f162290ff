#include <cmath>

#include "egt/core/math/fusion_math.hpp"
#include "kernels/vector.cuh"

/// Linear interpolation in two passes. First, one block per row of samples finds the two samples around each
/// time of the timeline (a `Bracket`) in shared memory. Then each thread computes some values of a few
/// consecutive times. These mostly share their samples, so repeated reads hit the L1 cache.
namespace egt::kernels {
namespace {

using math::Bracket;
using math::BracketSearch;

constexpr unsigned warp_threads = 32, whole_warp = ~0u;
constexpr unsigned search_threads = 1024, search_warps = search_threads / warp_threads;
constexpr int samples_a_thread = 4;
constexpr int chunk_samples = static_cast<int>(search_threads) * samples_a_thread;
static_assert(search_warps == warp_threads);
constexpr unsigned max_blocks_y = 65535;

__device__ __forceinline__ double greater(double a, double b) {
  return b > a ? b : a;
}

/// The maximum over this thread and the earlier ones in the warp.
__device__ __forceinline__ double maximum_so_far(double value) {
#pragma unroll
  for (unsigned offset = 1; offset < warp_threads; offset *= 2)  // lanes without a source keep their value
    value = greater(value, __shfl_up_sync(whole_warp, value, offset));
  return value;
}

/// running[i] = the running maximum of finite times, initially `before`. Returns how many of this thread's
/// samples count. The caller synchronizes the block before and after.
__device__ unsigned scan_chunk(const double* times, int count, double before, double* running) {
  __shared__ double warp_maxima[search_warps];
  const unsigned lane = threadIdx.x % warp_threads, warp = threadIdx.x / warp_threads;
  const int first = static_cast<int>(threadIdx.x) * samples_a_thread;
  double own[samples_a_thread], top = -INFINITY;
#pragma unroll
  for (int i = 0; i < samples_a_thread; ++i) {
    own[i] = first + i < count ? times[first + i] : -INFINITY;
    if (!math::is_finite(own[i])) own[i] = -INFINITY;
    top = greater(top, own[i]);
  }
  const double of_warp = maximum_so_far(top);
  if (lane == warp_threads - 1) warp_maxima[warp] = of_warp;
  __syncthreads();
  if (warp == 0) warp_maxima[lane] = maximum_so_far(warp_maxima[lane]);
  __syncthreads();
  const double below = __shfl_up_sync(whole_warp, of_warp, 1);
  double reached = warp > 0 ? greater(before, warp_maxima[warp - 1]) : before;
  if (lane > 0) reached = greater(reached, below);
  unsigned counting = 0;
#pragma unroll
  for (int i = 0; i < samples_a_thread; ++i) {
    counting += own[i] > reached;
    reached = greater(reached, own[i]);
    running[first + i] = reached;
  }
  return counting;
}

/// The sum over the block, returned in all threads.
__device__ unsigned sum_over_block(unsigned value) {
  __shared__ unsigned sum;
  __syncthreads();
  if (threadIdx.x == 0) sum = 0;
  __syncthreads();
#pragma unroll
  for (unsigned offset = warp_threads / 2; offset > 0; offset /= 2)
    value += __shfl_down_sync(whole_warp, value, offset);
  if (threadIdx.x % warp_threads == 0) atomicAdd(&sum, value);
  __syncthreads();
  return sum;
}

/// The time rows of each stream: batch x samples.
struct TimesOf {
  const double* data[max_fusion_streams];
  std::int32_t samples[max_fusion_streams];

  /// Avoids a dynamic index into kernel parameters, which would copy them to memory first.
  __device__ __forceinline__ const double* row(int stream, std::int64_t element, int& count) const {
    const double* times = data[0];
    count = samples[0];
#pragma unroll
    for (int s = 1; s < max_fusion_streams; ++s)
      if (stream == s) {
        times = data[s];
        count = samples[s];
      }
    return times + element * count;
  }
};

/// Block (row, group) computes the brackets of a group of steps in one row: an element's times in a stream.
__global__ void __launch_bounds__(search_threads)
    find_brackets_kernel(const TimesOf all_times, int streams, const double* timeline, std::int64_t steps,
                         Bracket* brackets, std::uint32_t* dropped) {
  __shared__ double running[chunk_samples];
  admit_next_kernel();
  const std::int64_t row = blockIdx.x, element = row / streams;
  int samples;
  const double* times = all_times.row(static_cast<int>(row % streams), element, samples);
  std::int64_t group = blockIdx.y;
  do {
    const std::int64_t step = group * search_threads + threadIdx.x;
    BracketSearch search(step < steps ? timeline[element * steps + step] : NAN);
    double before = -INFINITY;
    unsigned counting = 0;
    for (int first = 0; first < samples; first += chunk_samples) {
      const int count = samples - first < chunk_samples ? samples - first : chunk_samples;
      __syncthreads();
      counting += scan_chunk(times + first, count, before, running);
      __syncthreads();
      search.look(running, count, first, before);
      before = running[count - 1];
    }
    if (step < steps) brackets[row * steps + step] = search.bracket();
    if (group == 0) {
      counting = sum_over_block(counting);
      if (threadIdx.x == 0) dropped[row] = static_cast<std::uint32_t>(samples) - counting;
    }
    group += gridDim.y;
  } while (group * search_threads < steps);
}

constexpr unsigned gather_threads = 128;
constexpr int gather_steps = 4;

/// A stream and its position in the fused rows.
struct GatherStream {
  const float* values;
  std::int64_t samples;
  std::int64_t dim;
  std::uint32_t begin;  ///< offset of its first value in a fused row
};

struct GatherArguments {
  GatherStream streams[max_fusion_streams];  ///< unused entries begin after all values
  std::int64_t batch, steps, total_dims;
  const Bracket* brackets;
  float* fused;
  int stream_count;
  std::uint32_t packs_a_row;
  std::uint32_t items;  ///< per batch element: groups of steps x packs of values
};

__device__ __forceinline__ Bracket load_bracket(const Bracket* from) {
  const int4 words = __ldg(reinterpret_cast<const int4*>(from));
  return {words.x, words.y, __int_as_float(words.z), 0};
}

/// Stores with the width of the pack's words, because the compiler splits some stores of Pack::store.
template <int N>
__device__ __forceinline__ void store(float* to, const Pack<float, N>& numbers) {
  using Word = typename Pack<float, N>::Word;
#pragma unroll
  for (int i = 0; i < Pack<float, N>::words; ++i) __stcg(reinterpret_cast<Word*>(to) + i, numbers.word[i]);
}

/// Interpolates N values of one stream for `gather_steps` steps from `step` on. Has no branches, so that all
/// loads are in flight before the first is used. Steps beyond the last load the last one again. Steps that no
/// sample defines load sample 0, which must exist.
template <int N>
__device__ __forceinline__ void gather(const GatherArguments& a, const Bracket* brackets, const float* values,
                                       std::int64_t dim, std::int64_t step, float* out) {
  Bracket around[gather_steps];
  Pack<float, N> left[gather_steps], right[gather_steps];
#pragma unroll
  for (int u = 0; u < gather_steps; ++u)
    around[u] = load_bracket(brackets + (step + u < a.steps ? step + u : a.steps - 1));
#pragma unroll
  for (int u = 0; u < gather_steps; ++u) {
    left[u] = Pack<float, N>::load(values + max(around[u].left, 0) * dim);
    right[u] = Pack<float, N>::load(values + max(around[u].right, 0) * dim);
  }
#pragma unroll
  for (int u = 0; u < gather_steps; ++u) {
    Pack<float, N> fused;
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const float value = math::interpolate(left[u].v[i], right[u].v[i], around[u].weight);
      fused.v[i] = around[u].left >= 0 ? value : 0.0f;
    }
    if (step + u < a.steps) store(out + (step + u) * a.total_dims, fused);
  }
}

template <int N>
__device__ void clear_steps(const GatherArguments& a, std::int64_t step, float* out) {
  Pack<float, N> zeros;
#pragma unroll
  for (int i = 0; i < N; ++i) zeros.v[i] = 0.0f;
  for (std::int64_t s = step; s < step + gather_steps && s < a.steps; ++s)
    store(out + s * a.total_dims, zeros);
}

template <int N>
__global__ void __launch_bounds__(gather_threads) gather_kernel(const GatherArguments a) {
  await_kernel_before();
  const std::uint32_t item = blockIdx.x * gather_threads + threadIdx.x;
  if (item >= a.items) return;
  const std::uint32_t group = item / a.packs_a_row, place = (item - group * a.packs_a_row) * N;
  GatherStream stream = a.streams[0];
  int s = 0;
#pragma unroll
  for (int i = 1; i < max_fusion_streams; ++i)
    if (place >= a.streams[i].begin) {
      stream = a.streams[i];
      s = i;
    }
  for (std::int64_t element = blockIdx.y; element < a.batch; element += gridDim.y) {
    const Bracket* brackets = a.brackets + (element * a.stream_count + s) * a.steps;
    const float* values = stream.values + element * stream.samples * stream.dim + (place - stream.begin);
    float* out = a.fused + element * a.steps * a.total_dims + place;
    if (stream.samples > 0)
      gather<N>(a, brackets, values, stream.dim, std::int64_t{group} * gather_steps, out);
    else
      clear_steps<N>(a, std::int64_t{group} * gather_steps, out);
  }
}

/// Values per access: the max width that is aligned in every row of the inputs and of the output.
int pack_numbers(const StreamFusion& call) {
  for (int n = 4; n > 1; n /= 2) {
    const std::uintptr_t bytes = static_cast<std::uintptr_t>(n) * sizeof(float);
    bool fits = reinterpret_cast<std::uintptr_t>(call.fused) % bytes == 0;
    for (int s = 0; s < call.shape.streams; ++s)
      fits = fits && call.shape.dims[s] % n == 0 &&
             reinterpret_cast<std::uintptr_t>(call.values[s]) % bytes == 0;
    if (fits) return n;
  }
  return 1;
}

template <int N>
int launch_gather(const Launch& launch, const StreamFusion& call) {
  GatherArguments a{};
  std::int64_t begin = 0;
  for (int s = 0; s < max_fusion_streams; ++s) {
    a.streams[s].begin = s < call.shape.streams ? static_cast<std::uint32_t>(begin) : ~0u;
    if (s >= call.shape.streams) continue;
    a.streams[s].values = call.values[s];
    a.streams[s].samples = call.shape.samples[s];
    a.streams[s].dim = call.shape.dims[s];
    begin += call.shape.dims[s];
  }
  a.batch = call.shape.batch;
  a.steps = call.shape.steps;
  a.total_dims = begin;
  a.brackets = static_cast<const Bracket*>(call.scratch);
  a.fused = call.fused;
  a.stream_count = call.shape.streams;
  a.packs_a_row = static_cast<std::uint32_t>(begin / N);
  a.items = static_cast<std::uint32_t>(divide_up(a.steps, std::int64_t{gather_steps})) * a.packs_a_row;
  const dim3 grid(divide_up(a.items, gather_threads),
                  static_cast<unsigned>(a.batch < max_blocks_y ? a.batch : max_blocks_y));
  return start_early(launch, grid, dim3(gather_threads), 0, gather_kernel<N>, a);
}

int find_brackets(const Launch& launch, const StreamFusion& call) {
  TimesOf times{};
  for (int s = 0; s < call.shape.streams; ++s) {
    times.data[s] = call.times[s];
    times.samples[s] = static_cast<std::int32_t>(call.shape.samples[s]);
  }
  const std::int64_t groups = divide_up(call.shape.steps, std::int64_t{search_threads});
  const std::int64_t blocks_y = groups < 1 ? 1 : groups < max_blocks_y ? groups : max_blocks_y;
  return start(
      launch,
      dim3(static_cast<unsigned>(call.shape.batch * call.shape.streams), static_cast<unsigned>(blocks_y)),
      dim3(search_threads), 0, find_brackets_kernel, times, call.shape.streams, call.timeline,
      call.shape.steps, static_cast<Bracket*>(call.scratch), call.dropped);
}

}  // namespace

int enqueue(const Launch& launch, const StreamFusion& call) {
  if (call.shape.batch == 0) return cudaSuccess;
  if (const int error = find_brackets(launch, call)) return error;
  if (call.shape.steps == 0) return cudaSuccess;
  const int n = pack_numbers(call);
  return n == 4   ? launch_gather<4>(launch, call)
         : n == 2 ? launch_gather<2>(launch, call)
                  : launch_gather<1>(launch, call);
}

}  // namespace egt::kernels
