// Preload library that simulates a GPU that CUDA can no longer reach.
#include <cuda_runtime_api.h>

extern "C" cudaError_t CUDARTAPI cudaGetDeviceCount(int* count) {
  *count = 0;
  return cudaErrorUnknown;
}
