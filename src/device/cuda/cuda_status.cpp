#include <fmt/format.h>

#include "device/cuda/cuda_native.hpp"

namespace egt {
namespace {

// Kernel exceptions that not all toolkit headers define: cudaErrorContained and cudaErrorTensorMemoryLeak.
constexpr int contained = 226, tensor_memory_leak = 721;

StatusCode code_of(cudaError_t error) {
  if (const int number = error; number == contained || number == tensor_memory_leak)
    return StatusCode::device_error;
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
    // The same binary computes the same on every GPU, so an exception in a kernel is a hardware fault: a
    // flipped bit in an instruction, address or pointer. Every later call of the process fails as well.
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorIllegalAddress:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure:
      return StatusCode::device_error;
    // The context is lost as well, but the cause may be outside the hardware: a display watchdog, a library
    // assertion, a reset by another process, or an unknown driver error. An Xid or a lost device, which the
    // sensor reports, is then the evidence.
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
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
  // Otherwise a later query of the last error would return this one.
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
