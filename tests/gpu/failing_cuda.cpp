// Preloaded into a process: a GPU that CUDA does not reach any more.
#include <cuda_runtime_api.h>

extern "C" cudaError_t CUDARTAPI cudaGetDeviceCount(int* count) {
  *count = 0;
  return cudaErrorUnknown;
}
