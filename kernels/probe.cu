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

}  // namespace egt::kernels
