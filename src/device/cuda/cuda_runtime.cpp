#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include "egt/device/cuda/cuda_device.hpp"

namespace egt {
namespace {

/// CUDA's 13020 is 13.2; 0 is nothing.
std::string version_text(int version) {
  return version > 0 ? fmt::format("{}.{}", version / 1000, version % 1000 / 10) : std::string();
}

}  // namespace

int cuda_device_count() {
  int count = 0;
  if (cudaGetDeviceCount(&count) == cudaSuccess) return count;
  static_cast<void>(cudaGetLastError());
  return 0;
}

std::string cuda_unavailable_reason() {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error == cudaSuccess) return count > 0 ? "" : "CUDA sees no GPU on this machine";
  static_cast<void>(cudaGetLastError());
  if (error != cudaErrorInsufficientDriver) return fmt::format("CUDA says: {}", cudaGetErrorString(error));
  const std::string driver = cuda_driver_version();
  return driver.empty() ? "no NVIDIA driver answers on this machine"
                        : fmt::format("the NVIDIA driver serves CUDA {}, and this program needs {}", driver,
                                      cuda_runtime_version());
}

std::string cuda_runtime_version() {
  int version = 0;
  return cudaRuntimeGetVersion(&version) == cudaSuccess ? version_text(version) : std::string();
}

std::string cuda_driver_version() {
  int version = 0;
  return cudaDriverGetVersion(&version) == cudaSuccess ? version_text(version) : std::string();
}

std::string cublas_version() {
  const std::size_t version = cublasLtGetVersion();
  return fmt::format("{}.{}.{}", version / 10000, version % 10000 / 100, version % 100);
}

}  // namespace egt
