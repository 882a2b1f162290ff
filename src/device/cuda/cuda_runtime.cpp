#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <cstdlib>

#include "device/cuda/cuda_device.hpp"
#include "device/cuda/cuda_native.hpp"
#include "egt/core/units.hpp"

namespace egt {
namespace {

/// CUDA's 13020 means 13.2; 0 means none.
std::string version_text(int version) {
  return version > 0 ? fmt::format("{}.{}", version / 1000, version % 1000 / 10) : std::string();
}

/// Streams that share a hardware channel wait for each other. Requests the max number of channels unless the
/// user has set another. CUDA reads the variable at startup.
void ask_for_channels() {
  static const int once = ::setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  static_cast<void>(once);
}

}  // namespace

/// An error does not prove that there is no GPU, so the caller must not continue without one.
Result<int> cuda_device_count() {
  ask_for_channels();
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  const Status counted = cuda_status(error, "count the GPUs");
  if (counted.ok()) return count;
  if (error == cudaErrorNoDevice || error == cudaErrorStubLibrary) return 0;
  if (error != cudaErrorInsufficientDriver)
    return Status(StatusCode::unavailable, counted.what(), counted.native());
  const std::string driver = cuda_driver_version();
  if (driver.empty()) return 0;  // no driver
  return Status(StatusCode::unavailable,
                fmt::format("the NVIDIA driver serves CUDA {}, and this program needs {}: update the driver",
                            driver, cuda_runtime_version()),
                error);
}

std::string cuda_unavailable_reason() {
  const Result<int> count = cuda_device_count();
  if (!count.ok()) return count.status().what();
  if (count.value() > 0) return "";
  return cuda_driver_version().empty() ? "no NVIDIA driver answers on this machine"
                                       : "CUDA sees no GPU on this machine";
}

std::string cuda_runtime_version() {
  int version = 0;
  return cudaRuntimeGetVersion(&version) == cudaSuccess ? version_text(version) : std::string();
}

std::string cuda_driver_version() {
  int version = 0;
  return cudaDriverGetVersion(&version) == cudaSuccess ? version_text(version) : std::string();
}

Result<MemoryInfo> cuda_memory(int device) {
  EGT_TRY(select_cuda_device(device));
  std::size_t free = 0, total = 0;
  EGT_TRY(cuda_status(cudaMemGetInfo(&free, &total), "ask for free memory"));
  return MemoryInfo{.total_bytes = total, .free_bytes = free};
}

Result<Buffer> allocate_cuda_memory(int device, std::size_t bytes) {
  if (bytes == 0) return Buffer();
  EGT_TRY(select_cuda_device(device));
  void* data = nullptr;
  if (const cudaError_t error = cudaMalloc(&data, bytes); error != cudaSuccess) {
    const Status status =
        cuda_status(error, fmt::format("allocate {} on GPU {}", format_bytes(bytes), device));
    if (status.code() != StatusCode::out_of_memory) return status;
    EGT_TRY_ASSIGN(const MemoryInfo left, cuda_memory(device));
    return Status(StatusCode::out_of_memory,
                  fmt::format("GPU {} cannot give {}: {} of its {} are free", device, format_bytes(bytes),
                              format_bytes(left.free_bytes), format_bytes(left.total_bytes)),
                  error);
  }
  return Buffer(data, bytes, [device](void* memory) {
    if (select_cuda_device(device).ok()) cudaFree(memory);
  });
}

std::string cublas_version() {
  const std::size_t version = cublasLtGetVersion();
  return fmt::format("{}.{}.{}", version / 10000, version % 10000 / 100, version % 100);
}

}  // namespace egt
