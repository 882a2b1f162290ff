#include "kernels/vector.cuh"

/// One warp looks after up to 32 flags, one a thread. Everything is of system scope: the other side is
/// another GPU, or the host.
namespace egt::kernels {
namespace {

constexpr unsigned polls_at_full_speed = 256;
constexpr unsigned polls_between_looks = 32;  ///< at the gate, which lies in host memory: some microseconds
constexpr unsigned pause_ns = 100;

__device__ __forceinline__ std::uint32_t load_acquire(const std::uint32_t* word) {
  std::uint32_t value;
  asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
  return value;
}

__device__ __forceinline__ void store_release(std::uint32_t* word, std::uint32_t value) {
  asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(word), "r"(value) : "memory");
}

__device__ __forceinline__ std::uint64_t time_ns() {
  std::uint64_t now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  return now;
}

/// The launch comes after the stream's earlier work, whose writes the fence and the release put before the
/// flag for whoever reads it.
__global__ void __launch_bounds__(most_flags)
    signal_kernel(const __grid_constant__ FlagList flags, const std::uint32_t* gate) {
  if (static_cast<int>(threadIdx.x) >= flags.count) return;
  if (gate != nullptr && load_acquire(gate) != 0) return;
  __threadfence_system();
  store_release(flags.word[threadIdx.x], flags.value[threadIdx.x]);
}

__global__ void __launch_bounds__(most_flags)
    await_kernel(const __grid_constant__ FlagList flags, std::uint32_t* gate, std::uint32_t timed_out,
                 std::uint64_t limit_ns) {
  if (static_cast<int>(threadIdx.x) >= flags.count) return;
  const std::uint32_t* word = flags.word[threadIdx.x];
  const std::uint32_t value = flags.value[threadIdx.x];
  const std::uint64_t start = time_ns();
  for (unsigned poll = 1; static_cast<std::int32_t>(load_acquire(word) - value) < 0; ++poll) {
    if (poll % polls_between_looks == 0) {
      if (load_acquire(gate) != 0) return;
      if (time_ns() - start > limit_ns) {
        store_release(gate, timed_out);
        return;
      }
    }
    if (poll > polls_at_full_speed) __nanosleep(pause_ns);
  }
}

}  // namespace

int load_flags() {
  cudaFuncAttributes attributes{};
  if (const cudaError_t error = cudaFuncGetAttributes(&attributes, signal_kernel); error != cudaSuccess)
    return error;
  return cudaFuncGetAttributes(&attributes, await_kernel);
}

int signal(const Launch& launch, const FlagList& flags, const std::uint32_t* gate) {
  if (flags.count == 0) return cudaSuccess;
  return start(launch, dim3(1), dim3(most_flags), 0, signal_kernel, flags, gate);
}

int await(const Launch& launch, const FlagList& flags, std::uint32_t* gate, std::uint32_t timed_out,
          std::uint64_t limit_ns) {
  if (flags.count == 0) return cudaSuccess;
  return start(launch, dim3(1), dim3(most_flags), 0, await_kernel, flags, gate, timed_out, limit_ns);
}

}  // namespace egt::kernels
