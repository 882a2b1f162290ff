#pragma once

#include "egt/core/record.hpp"
#include "egt/core/status.hpp"

namespace egt {

/// The driver and all GPUs that it shows, without opening a context on one. {"driver", "gpu": [{"index",
/// "model", "uuid", "serial", "pci", "memory_gb", "vbios", "nvlinks", "nvlinks_of", "pcie_generation",
/// "pcie_width", "pcie_max_width", "ecc", "mig", "persistence", "fabric", "processes", "idle_temperature_c",
/// "power_limit_w", "error"}]}. `nvlinks`: active ones of `nvlinks_of`. `pcie_generation`: the highest that
/// GPU and slot support, since the link slows down while idle. `processes`: with a context on the GPU.
/// Null: the device does not report it. `error`: why the GPU does not respond. `unavailable`: no driver.
Result<Json> nvml_inventory(const char* library = "libnvidia-ml.so.1");

}  // namespace egt
