#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>

#include "egt/core/status.hpp"
#include "egt/device/device.hpp"

namespace egt {

struct HostDeviceConfig {
  int local_rank = 0;
  int local_size = 1;                               ///< ranks that share this node
  std::optional<int> cores;                         ///< overrides the equal share
  std::optional<std::uint64_t> memory_total_bytes;  ///< overrides the equal share
  std::filesystem::path root = "/";                 ///< the directory that contains `proc` and `sys`
  /// Called after each piece of work that the thread which opens the device enqueued, on other threads.
  std::function<void()> on_progress = {};
};

/// Opens this rank's share of its node's cores and memory as a device. It sets OpenBLAS's process-wide thread
/// count, so open one host device per process at a time.
Result<std::unique_ptr<Device>> open_host_device(const HostDeviceConfig& config);

}  // namespace egt
