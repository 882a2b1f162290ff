#include <cuda_runtime.h>

#include "kernels/launch.hpp"

namespace egt::kernels {
namespace {

__global__ void probe_kernel() {}

}  // namespace

int probe() {
  cudaFuncAttributes attributes{};
  return cudaFuncGetAttributes(&attributes, probe_kernel);
}

bool can_start_early() {
  cudaFuncAttributes attributes{};
  return cudaFuncGetAttributes(&attributes, probe_kernel) == cudaSuccess && attributes.ptxVersion >= 90;
}

}  // namespace egt::kernels
