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
/// Figures: power is the instantaneous one where the driver has it (else the average of a second), ECC errors
/// are those since the driver was loaded, NVLink errors are summed over the links. A PCIe link's generation
/// is the highest that GPU and slot agree on (it sinks while the GPU is idle), its width the present one.
/// `read` and `counters` fail with `aborted` when NVML says that the GPU is lost, else with `unavailable`
/// when nothing at all is answered.
Result<std::unique_ptr<Sensor>> open_nvml_sensor(const std::string& device,
                                                 const char* library = "libnvidia-ml.so.1");

}  // namespace egt
