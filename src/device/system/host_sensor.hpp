#pragma once

#include <filesystem>
#include <memory>
#include <vector>

#include "egt/device/sensor.hpp"

namespace egt {

/// Busy and all time of CPUs since boot, in the kernel's ticks.
struct CpuTicks {
  std::uint64_t busy = 0;
  std::uint64_t total = 0;
};

/// CPU and memory of the node, from /proc. For one thread.
class HostLoadSampler {
 public:
  /// `root`: the folder that holds `proc`.
  explicit HostLoadSampler(std::filesystem::path root = "/");
  HostLoad look();

 private:
  std::filesystem::path root_;
  std::optional<CpuTicks> before_;
};

/// The node's ECC errors (EDAC) cannot be separated by rank: of the ranks of a node one counts them for all.
enum class NodeErrors { counted, left_to_another };

/// The host as a device: utilization of `cpus` (empty: of all) and their mean clock, the node's memory, the
/// hottest CPU sensor (hwmon's coretemp, k10temp, zenpower; else a thermal zone of a CPU), power, energy and
/// power limit of all packages (RAPL, where this user may read it; energy counts from here), ECC errors
/// (EDAC). Utilization and power are those since the last `read`, at first since the opening; a `read` that
/// comes before a tick of the kernel is over has none. `root`: the folder that holds `proc` and `sys`.
std::unique_ptr<Sensor> open_host_sensor(std::vector<int> cpus = {}, std::filesystem::path root = "/",
                                         NodeErrors errors = NodeErrors::counted);

}  // namespace egt
