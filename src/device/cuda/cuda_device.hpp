#pragma once

#include <memory>
#include <string>

#include "egt/core/status.hpp"
#include "egt/device/device.hpp"

/// The CUDA adapter of the device port. It includes no CUDA header and needs no driver until a device is
/// opened. All functions are thread-safe.
namespace egt {

/// Number of GPUs that CUDA offers; 0 without a GPU or driver. unavailable: CUDA failed although a GPU may be
/// present.
Result<int> cuda_device_count();
/// Why no GPU can be used, in one line; empty if one can.
std::string cuda_unavailable_reason();

/// Opens the GPU with CUDA index `index`, from 0, and makes it the calling thread's current CUDA device.
/// Errors: unavailable if it does not exist, or if this program contains no code for it.
Result<std::unique_ptr<Device>> open_cuda_device(int index);

/// Linked runtime version, and the newest that the driver supports (empty without a driver): "13.0".
std::string cuda_runtime_version();
std::string cuda_driver_version();
/// Example: "13.0.2".
std::string cublas_version();

}  // namespace egt
