#pragma once

#include <memory>
#include <string>

#include "egt/core/status.hpp"
#include "egt/device/device.hpp"

/// The CUDA adapter of the device port. Needs no CUDA header, and no driver to be there until a device is
/// opened. All functions are safe from any thread.
namespace egt {

/// How many GPUs CUDA offers; 0 where there is no GPU, or no driver for one. unavailable: one may be there,
/// but CUDA failed, so that nobody knows.
Result<int> cuda_device_count();
/// Why none can be used, in one line; empty where one can.
std::string cuda_unavailable_reason();

/// The GPU that CUDA counts as `index`, from 0. unavailable: there is none, or this program holds no machine
/// code for it. The calling thread's current CUDA device becomes this one.
Result<std::unique_ptr<Device>> open_cuda_device(int index);

/// "13.0": of the runtime that is linked, and the newest that the driver serves (empty without a driver).
std::string cuda_runtime_version();
std::string cuda_driver_version();
/// "13.0.2"
std::string cublas_version();

}  // namespace egt
