#pragma once

#include "egt/core/status.hpp"
#include "egt/device/device.hpp"

namespace egt {

struct CudaDeviceInfo {
  DeviceInfo info;
  int capability = 0;  ///< 90 is 9.0
};

/// What the GPU that CUDA counts as `index` is, and that this program can run on it. Errors, and the calling
/// thread's current device after it: as of open_cuda_device. Safe from any thread.
Result<CudaDeviceInfo> inspect_cuda_device(int index);

/// Has the GPU the precision? By its compute capability.
Support supported_by(const CudaDeviceInfo& device, Precision precision);

}  // namespace egt
