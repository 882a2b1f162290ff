#pragma once

#include <memory>
#include <string>

#include "egt/core/status.hpp"
#include "egt/device/sensor.hpp"

namespace egt {

/// An NVIDIA GPU as NVML sees it. `device`: its PCI bus id ("00000000:18:00.0") or UUID ("GPU-.."), never an
/// index, since NVML counts in another order than CUDA. The library is loaded here and at no other time, so
/// that the program starts without a driver. `unavailable` when there is no such library or device.
///
/// Power is the instantaneous one where the driver has it (else the average of a second). ECC errors are
/// those since the driver was loaded: NVML's other count, of the GPU's whole life, is written late, while
/// this one is never set back as long as the GPU is in use. NVLink errors are reported by link and summed
/// over the links.
///
/// Xids are those that NVML's events or the kernel log (`kernel_log`; often only root may read it) report
/// after this call, at most 16 of each number; the same one by both is one. Their time is that of the look
/// that found them. What cannot be read is in `SensorLimits::untold`.
///
/// A GPU is lost when NVML says so or that it needs a reset; no answer at all is `unavailable`.
Result<std::unique_ptr<Sensor>> open_nvml_sensor(const std::string& device,
                                                 const char* library = "libnvidia-ml.so.1",
                                                 const std::string& kernel_log = "/dev/kmsg");

}  // namespace egt
