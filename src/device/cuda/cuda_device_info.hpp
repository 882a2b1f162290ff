#pragma once

#include "egt/core/status.hpp"
#include "egt/device/device.hpp"

namespace egt {

struct CudaDeviceInfo {
  DeviceInfo info;
  int capability = 0;  ///< 90 is 9.0
};

/// Properties of the GPU with CUDA index `index`, after checking that this program can run on it. Errors, and
/// the calling thread's current device afterwards: as for open_cuda_device. Thread-safe.
Result<CudaDeviceInfo> inspect_cuda_device(int index);

/// Whether the GPU supports the precision, by its compute capability.
Support supported_by(const CudaDeviceInfo& device, Precision precision);

}  // namespace egt
