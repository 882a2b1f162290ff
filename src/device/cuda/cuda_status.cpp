#include <fmt/format.h>

#include "device/cuda/cuda_native.hpp"

namespace egt {
namespace {

StatusCode code_of(cudaError_t error) {
  switch (error) {
    case cudaErrorMemoryAllocation:
      return StatusCode::out_of_memory;
    case cudaErrorNoDevice:
    case cudaErrorInvalidDevice:
    case cudaErrorInsufficientDriver:
    case cudaErrorDevicesUnavailable:
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorSystemDriverMismatch:
    case cudaErrorSystemNotReady:
    case cudaErrorInitializationError:
      return StatusCode::unavailable;
    // After these every further call of the process fails.
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchFailure:
    case cudaErrorLaunchTimeout:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorAssert:
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorContextIsDestroyed:
    case cudaErrorUnknown:
      return StatusCode::aborted;
    default:
      return StatusCode::internal;
  }
}

}  // namespace

Status cuda_status(cudaError_t error, std::string_view doing, std::source_location where) {
  if (error == cudaSuccess) return {};
  // Else a later call that asks for the last error would see this one.
  static_cast<void>(cudaGetLastError());
  return Status(
      code_of(error),
      fmt::format("CUDA could not {}: {} ({})", doing, cudaGetErrorString(error), cudaGetErrorName(error)),
      error, where);
}

Status select_cuda_device(int device) {
  return cuda_status(cudaSetDevice(device), "select the GPU");
}

}  // namespace egt
