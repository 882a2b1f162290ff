#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "egt/core/digest.hpp"

namespace egt::kernels {

/// Reduces over the threads of a block; its first thread gets the sums. Blocks must have whole warps and up
/// to 1024 threads in two dimensions.
__device__ __forceinline__ void sum_over_block(unsigned long long& a, unsigned long long& b) {
  __shared__ unsigned long long warp_sums[2][32];
  for (int offset = 16; offset > 0; offset /= 2) {
    a += __shfl_down_sync(~0u, a, offset);
    b += __shfl_down_sync(~0u, b, offset);
  }
  const unsigned thread = threadIdx.y * blockDim.x + threadIdx.x, lane = thread % 32, warp = thread / 32;
  if (lane == 0) {
    warp_sums[0][warp] = a;
    warp_sums[1][warp] = b;
  }
  __syncthreads();
  if (thread != 0) return;
  for (unsigned w = 1; w < blockDim.x * blockDim.y / 32; ++w) {
    a += warp_sums[0][w];
    b += warp_sums[1][w];
  }
}

/// Adds a thread's sums to *total. They are modulo 2^64, so the order of the blocks' atomics is irrelevant.
__device__ __forceinline__ void publish(std::uint64_t a, std::uint64_t b, Digest* total) {
  unsigned long long sum_a = a, sum_b = b;
  sum_over_block(sum_a, sum_b);
  if (threadIdx.x != 0 || threadIdx.y != 0) return;
  atomicAdd(reinterpret_cast<unsigned long long*>(&total->a), sum_a);
  atomicAdd(reinterpret_cast<unsigned long long*>(&total->b), sum_b);
}

}  // namespace egt::kernels
