#pragma once

#include <cuda_runtime_api.h>

#include <source_location>
#include <string_view>

#include "egt/core/status.hpp"
#include "egt/device/device.hpp"

/// For files that call CUDA directly.
namespace egt {

/// The CUDA stream of a CUDA device's Stream, which owns it.
cudaStream_t native(Stream& stream);

/// Ok for cudaSuccess, else why `doing` ("copy memory") failed, with the cudaError_t as native code. Clears
/// the thread's last CUDA error. out_of_memory; unavailable: no driver or device; device_error: a hardware
/// error; aborted: the device's context is lost for another reason; internal: anything else.
Status cuda_status(cudaError_t error, std::string_view doing,
                   std::source_location where = std::source_location::current());

/// Sets the calling thread's current device. This is cheap, and needed at every entry, since calls come from
/// several threads.
Status select_cuda_device(int device);

/// Implement Device::memory, allocate and allocate_pinned.
Result<MemoryInfo> cuda_memory(int device);
Result<Buffer> allocate_cuda_memory(int device, std::size_t bytes);
Result<Buffer> allocate_pinned_memory(int device, std::size_t bytes);

}  // namespace egt
