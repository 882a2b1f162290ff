// Preload library that simulates a GPU that fails during its work with an error that CUDA keeps. Call
// EGT_STRIKE_CALL of function EGT_STRIKE_FUNCTION returns code EGT_STRIKE_ERROR on rank EGT_STRIKE_RANK.
// Every later call of any function here returns it too, and libraries then fail with their own errors. The
// strike is logged in the file EGT_STRIKE_FILE.
#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <nccl.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

const char* text_of(const char* name) {
  const char* const text = std::getenv(name);
  return text ? text : "";
}

struct Strike {
  const char* const function = text_of("EGT_STRIKE_FUNCTION");
  const long call = std::atol(text_of("EGT_STRIKE_CALL"));
  const int error = std::atoi(text_of("EGT_STRIKE_ERROR"));
  const bool is_here = std::atoi(text_of("EGT_STRIKE_RANK")) == std::atoi(text_of("OMPI_COMM_WORLD_RANK"));
  std::atomic<long> calls{0};
  std::atomic<bool> struck{false};
};

bool fails(const char* function) {
  static Strike strike;
  if (!strike.is_here) return false;
  if (strike.struck.load()) return true;
  if (std::strcmp(strike.function, function) != 0 || ++strike.calls != strike.call) return false;
  strike.struck = true;
  if (std::FILE* const file = std::fopen(text_of("EGT_STRIKE_FILE"), "w")) std::fclose(file);
  return true;
}

cudaError_t error() {
  static const int number = std::atoi(text_of("EGT_STRIKE_ERROR"));
  return static_cast<cudaError_t>(number);
}

template <typename Function>
Function next(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

}  // namespace

#define EGT_STRIKES(type, error, name, parameters, arguments) \
  extern "C" type name parameters {                           \
    if (fails(#name)) return error;                           \
    static const auto real = next<type(*) parameters>(#name); \
    return real arguments;                                    \
  }
#define EGT_CUDA_STRIKES(name, parameters, arguments) \
  EGT_STRIKES(cudaError_t, error(), name, parameters, arguments)

EGT_CUDA_STRIKES(cudaSetDevice, (int device), (device))
EGT_CUDA_STRIKES(cudaMalloc, (void** data, size_t bytes), (data, bytes))
EGT_CUDA_STRIKES(cudaMallocHost, (void** data, size_t bytes), (data, bytes))
EGT_CUDA_STRIKES(cudaMemGetInfo, (size_t * free, size_t* total), (free, total))
EGT_CUDA_STRIKES(cudaGetLastError, (), ())
EGT_CUDA_STRIKES(cudaMemcpyAsync,
                 (void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream),
                 (to, from, bytes, kind, stream))
EGT_CUDA_STRIKES(cudaMemsetAsync, (void* data, int value, size_t bytes, cudaStream_t stream),
                 (data, value, bytes, stream))
EGT_CUDA_STRIKES(cudaStreamCreateWithPriority, (cudaStream_t * stream, unsigned flags, int priority),
                 (stream, flags, priority))
EGT_CUDA_STRIKES(cudaStreamQuery, (cudaStream_t stream), (stream))
EGT_CUDA_STRIKES(cudaStreamWaitEvent, (cudaStream_t stream, cudaEvent_t event, unsigned flags),
                 (stream, event, flags))
EGT_CUDA_STRIKES(cudaEventCreateWithFlags, (cudaEvent_t * event, unsigned flags), (event, flags))
EGT_CUDA_STRIKES(cudaEventRecord, (cudaEvent_t event, cudaStream_t stream), (event, stream))
EGT_CUDA_STRIKES(cudaEventQuery, (cudaEvent_t event), (event))
EGT_CUDA_STRIKES(cudaEventElapsedTime, (float* ms, cudaEvent_t from, cudaEvent_t to), (ms, from, to))
EGT_CUDA_STRIKES(cudaGraphLaunch, (cudaGraphExec_t graph, cudaStream_t stream), (graph, stream))
EGT_CUDA_STRIKES(cudaLaunchKernelExC,
                 (const cudaLaunchConfig_t* config, const void* kernel, void** arguments),
                 (config, kernel, arguments))
#if CUDART_VERSION >= 13000
EGT_CUDA_STRIKES(__cudaLaunchKernel,
                 (cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments, size_t shared,
                  cudaStream_t stream),
                 (kernel, grid, block, arguments, shared, stream))
#else
EGT_CUDA_STRIKES(cudaLaunchKernel,
                 (const void* kernel, dim3 grid, dim3 block, void** arguments, size_t shared,
                  cudaStream_t stream),
                 (kernel, grid, block, arguments, shared, stream))
#endif
EGT_STRIKES(cublasStatus_t, CUBLAS_STATUS_EXECUTION_FAILED, cublasLtMatmul,
            (cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void* alpha, const void* a,
             cublasLtMatrixLayout_t a_desc, const void* b, cublasLtMatrixLayout_t b_desc, const void* beta,
             const void* c, cublasLtMatrixLayout_t c_desc, void* d, cublasLtMatrixLayout_t d_desc,
             const cublasLtMatmulAlgo_t* algorithm, void* workspace, size_t bytes, cudaStream_t stream),
            (handle, desc, alpha, a, a_desc, b, b_desc, beta, c, c_desc, d, d_desc, algorithm, workspace,
             bytes, stream))
EGT_STRIKES(ncclResult_t, ncclUnhandledCudaError, ncclAllReduce,
            (const void* from, void* to, size_t count, ncclDataType_t type, ncclRedOp_t operation,
             ncclComm_t communicator, cudaStream_t stream),
            (from, to, count, type, operation, communicator, stream))
EGT_STRIKES(ncclResult_t, ncclUnhandledCudaError, ncclCommGetAsyncError,
            (ncclComm_t communicator, ncclResult_t* state), (communicator, state))
