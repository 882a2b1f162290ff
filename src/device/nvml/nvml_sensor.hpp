#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "device/system/node_errors.hpp"
#include "egt/core/status.hpp"
#include "egt/device/sensor.hpp"

namespace egt {

/// An NVIDIA GPU through NVML. `device`: its PCI bus id ("00000000:18:00.0") or UUID ("GPU-.."), never an
/// index, since NVML orders GPUs differently than CUDA. The library is loaded only here, so that the program
/// starts without a driver. `unavailable`: no such library or device.
///
/// Power is instantaneous if the driver supports it (otherwise a one-second average). ECC counters start at 0
/// when the driver is loaded and are not reset while the GPU is in use. NVML's lifetime counters are not
/// used, since they are updated late. NVLink errors are reported per link and in total.
///
/// Xids are reported by NVML's events or the kernel log (`kernel_log`; often readable only by root) after
/// this call, up to 16 per number. An Xid reported by both counts once. Its time is that of the read that
/// returned it. Unreadable sources are in `SensorLimits::untold`.
///
/// Errors of its PCIe link (AER) are from `root`, the directory that contains `sys`. `errors`: this rank also
/// has those of the node's memory (EDAC) and the SXids of its NVSwitches.
///
/// A GPU is lost if NVML reports it lost or in need of a reset. No response at all is `unavailable`.
Result<std::unique_ptr<Sensor>> open_nvml_sensor(const std::string& device,
                                                 const char* library = "libnvidia-ml.so.1",
                                                 const std::string& kernel_log = "/dev/kmsg",
                                                 NodeErrors errors = NodeErrors::counted,
                                                 std::filesystem::path root = "/");

}  // namespace egt
