#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>

#include "egt/core/status.hpp"
#include "egt/device/device.hpp"

namespace egt {

struct HostDeviceConfig {
  int local_rank = 0;
  int local_size = 1;                               ///< ranks that share this node
  std::optional<int> cores;                         ///< instead of the equal share
  std::optional<std::uint64_t> memory_total_bytes;  ///< instead of the equal share
  std::filesystem::path root = "/";                 ///< the folder that holds `proc` and `sys`
};

/// This rank's share of its node's cores and memory as a device. Sets the number of OpenBLAS's threads, which
/// is one for the process: so open one host device a process at a time.
Result<std::unique_ptr<Device>> open_host_device(const HostDeviceConfig& config);

}  // namespace egt
