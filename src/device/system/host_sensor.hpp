#pragma once

#include <filesystem>
#include <memory>
#include <vector>

#include "device/system/node_errors.hpp"
#include "egt/device/sensor.hpp"

namespace egt {

/// Busy and total CPU time since boot, in kernel ticks.
struct CpuTicks {
  std::uint64_t busy = 0;
  std::uint64_t total = 0;
};

/// CPU and memory load of the node, from /proc. Not thread-safe.
class HostLoadSampler {
 public:
  /// `root`: the directory that contains `proc`.
  explicit HostLoadSampler(std::filesystem::path root = "/");
  HostLoad look();

 private:
  std::filesystem::path root_;
  std::optional<CpuTicks> before_;
};

/// The host as a device: utilization of `cpus` (empty: all), their mean clock, the node's memory and ECC
/// errors (EDAC). The temperature is the max of all CPUs, from hwmon (coretemp, k10temp, zenpower) or a CPU
/// thermal zone. Power, energy and power limit are those of all packages (RAPL, if this user may read it).
/// Energy counts from here. Utilization and power cover the time since the last `read`, initially since
/// opening. They are empty if no kernel tick has passed. `root`: the directory that contains `proc` and
/// `sys`.
std::unique_ptr<Sensor> open_host_sensor(std::vector<int> cpus = {}, std::filesystem::path root = "/",
                                         NodeErrors errors = NodeErrors::counted);

}  // namespace egt
