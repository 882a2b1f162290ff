#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <initializer_list>
#include <type_traits>
#include <utility>

#include "egt/core/math/half.hpp"
#include "egt/core/types.hpp"
#include "kernels/launch.hpp"

/// Helpers of all kernels: launching, 16-byte accesses, element types.
namespace egt::kernels {

constexpr int vector_bytes = 16;  ///< widest access of a thread

/// Launches and returns this launch's own error (cudaGetLastError may return an older one).
template <typename... Parameters, typename... Arguments>
int start(const Launch& launch, dim3 grid, dim3 block, std::size_t shared_bytes,
          void (*kernel)(Parameters...), Arguments&&... arguments) {
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared_bytes;
  config.stream = launch.stream;
  return cudaLaunchKernelEx(&config, kernel, std::forward<Arguments>(arguments)...);
}

/// As `start`, for a kernel that begins with `await_kernel_before`. If the device supports it, its blocks
/// start while the previous kernel in the stream ends. The previous operation must be a kernel.
template <typename... Parameters, typename... Arguments>
int start_early(const Launch& launch, dim3 grid, dim3 block, std::size_t shared_bytes,
                void (*kernel)(Parameters...), Arguments&&... arguments) {
  cudaLaunchAttribute early{};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared_bytes;
  config.stream = launch.stream;
  config.attrs = &early;
  config.numAttrs = launch.overlaps ? 1 : 0;
  return cudaLaunchKernelEx(&config, kernel, std::forward<Arguments>(arguments)...);
}

/// The multiprocessor that runs this thread.
__device__ __forceinline__ unsigned multiprocessor_id() {
  unsigned id;
  asm volatile("mov.u32 %0, %%smid;" : "=r"(id));
  return id;
}

/// Waits for the previous kernel. Must precede the first access to memory that it wrote or still reads.
__device__ __forceinline__ void await_kernel_before() {
#if __CUDA_ARCH__ >= 900
  cudaGridDependencySynchronize();
#endif
}

/// Lets the blocks of the next kernel start early; its await_kernel_before still waits for this kernel's end.
__device__ __forceinline__ void admit_next_kernel() {
#if __CUDA_ARCH__ >= 900
  cudaTriggerProgrammaticLaunchCompletion();
#endif
}

template <typename Integer>
__host__ __device__ constexpr Integer divide_up(Integer a, Integer b) {
  return (a + b - 1) / b;
}

/// N elements that are loaded and stored together, with accesses as wide as possible.
template <typename T, int N>
struct Pack {
  static constexpr int bytes = static_cast<int>(sizeof(T)) * N;
  using Word = std::conditional_t<bytes % 16 == 0, uint4, std::conditional_t<bytes % 8 == 0, uint2, T>>;
  static constexpr int words = bytes / static_cast<int>(sizeof(Word));

  union {
    Word word[words];
    T v[N];
  };

  __device__ __forceinline__ Pack() {}
  __device__ __forceinline__ static Pack load(const T* from) {
    Pack pack;
#pragma unroll
    for (int i = 0; i < words; ++i) pack.word[i] = reinterpret_cast<const Word*>(from)[i];
    return pack;
  }
  __device__ __forceinline__ void store(T* to) const {
#pragma unroll
    for (int i = 0; i < words; ++i) reinterpret_cast<Word*>(to)[i] = word[i];
  }
};

/// One of several arrays that a kernel traverses with the same element index.
struct Lane {
  const void* data;
  std::size_t element_bytes;
};

/// The first element from which packs of `n` are aligned to their accesses in all lanes; -1: none.
inline int aligned_head(std::initializer_list<Lane> lanes, int n) {
  for (int head = 0; head < n; ++head) {
    bool aligned = true;
    for (const Lane& lane : lanes) {
      const std::size_t pack = lane.element_bytes * static_cast<std::size_t>(n);
      const std::size_t access = pack % 16 == 0 ? 16 : pack % 8 == 0 ? 8 : lane.element_bytes;
      const auto address = reinterpret_cast<std::uintptr_t>(lane.data) + head * lane.element_bytes;
      aligned = aligned && address % access == 0;
    }
    if (aligned) return head;
  }
  return -1;
}

/// Each thread handles one pack of N elements. The first threads also handle the elements outside of packs.
template <int N, typename Operation>
__global__ void __launch_bounds__(256)
    for_each_kernel(const Operation operation, std::int64_t head, std::int64_t packs, std::int64_t count) {
  const std::int64_t thread = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (thread < packs) operation.template run<N>(head + thread * N);
  if constexpr (N > 1) {
    const std::int64_t tail = head + packs * N + thread;
    if (thread < head) operation.template run<1>(thread);
    if (tail < count) operation.template run<1>(tail);
  }
}

/// Runs `operation.run<N>(first element)` over `count` elements, N at a time if all `lanes` align equally.
template <int N, typename Operation>
int for_each(const Launch& launch, std::int64_t count, std::initializer_list<Lane> lanes,
             const Operation& operation) {
  if (count == 0) return cudaSuccess;
  constexpr std::int64_t threads = 256;
  const auto grid = [](std::int64_t n) {
    return dim3(static_cast<unsigned>(n > 0 ? divide_up(n, threads) : 1));
  };
  const int head = aligned_head(lanes, N);
  if (head < 0 || head > count)
    return start(launch, grid(count), dim3(threads), 0, for_each_kernel<1, Operation>, operation,
                 std::int64_t{0}, count, count);
  const std::int64_t packs = (count - head) / N;
  return start(launch, grid(packs), dim3(threads), 0, for_each_kernel<N, Operation>, operation,
               std::int64_t{head}, packs, count);
}

/// Calls `f` with a value of the element type and returns its result.
template <typename F>
int with_type(ElementType type, F&& f) {
  switch (type) {
    case ElementType::f64:
      return f(double{});
    case ElementType::f32:
      return f(float{});
    case ElementType::f16:
      return f(Half{});
    case ElementType::bf16:
      return f(Bfloat16{});
    default:
      return cudaErrorInvalidValue;
  }
}

/// As `with_type`, for the types of gradients: f32 or bf16.
template <typename F>
int with_gradient_type(ElementType type, F&& f) {
  return type == ElementType::f32    ? f(float{})
         : type == ElementType::bf16 ? f(Bfloat16{})
                                     : static_cast<int>(cudaErrorInvalidValue);
}

}  // namespace egt::kernels
