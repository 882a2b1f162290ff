#include "kernels/vector.cuh"

/// Work that waits for the host: one thread polls a word in pinned memory. See Device::hold.
namespace egt::kernels {
namespace {

constexpr unsigned polls_at_full_speed = 256;
constexpr unsigned polls_between_looks = 32;  ///< polls per check of the clock
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

__global__ void __launch_bounds__(1)
    hold_kernel(const std::uint32_t* held, std::uint32_t* expired, std::uint64_t limit_ns) {
  const std::uint64_t start = time_ns();
  for (unsigned poll = 1; load_acquire(held) != 0; ++poll) {
    if (poll % polls_between_looks == 0) {
      if (load_acquire(expired) != 0) return;
      if (time_ns() - start > limit_ns) {
        store_release(expired, 1);
        return;
      }
    }
    if (poll > polls_at_full_speed) __nanosleep(pause_ns);
  }
}

}  // namespace

int load_hold() {
  cudaFuncAttributes attributes{};
  return cudaFuncGetAttributes(&attributes, hold_kernel);
}

int hold(const Launch& launch, const std::uint32_t* held, std::uint32_t* expired, std::uint64_t limit_ns) {
  return start(launch, dim3(1), dim3(1), 0, hold_kernel, held, expired, limit_ns);
}

}  // namespace egt::kernels
