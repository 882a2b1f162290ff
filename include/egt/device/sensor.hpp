#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "egt/core/status.hpp"

namespace egt {

/// One look at a device; what it does not answer is empty, never 0.
struct SensorReading {
  std::optional<double> gpu_utilization_percent;
  std::optional<double> power_w;   ///< instantaneous where the device gives it
  std::optional<double> energy_j;  ///< counter since the driver started
  std::optional<double> temperature_c;
  std::optional<double> memory_temperature_c;
  std::optional<double> sm_clock_mhz;
  std::optional<double> memory_clock_mhz;
  std::optional<double> fan_percent;
  std::optional<std::uint64_t> memory_used_bytes;
  std::optional<std::uint64_t> memory_total_bytes;
  std::optional<std::uint64_t> event_reasons;  ///< NVML's clocks event reasons, a bit mask
};

/// What only ever grows (or latches): read before and after a run.
struct SensorCounters {
  std::optional<std::uint64_t> ecc_corrected;
  std::optional<std::uint64_t> ecc_uncorrected;
  std::optional<std::uint64_t> remapped_rows;
  std::optional<bool> remap_pending;
  std::optional<bool> remap_failure;
  std::optional<std::uint64_t> pcie_replay;
  std::optional<std::uint64_t> nvlink_crc;
  std::optional<std::uint64_t> nvlink_replay;
  std::optional<std::uint64_t> nvlink_recovery;
};

/// What does not change in a run.
struct SensorLimits {
  std::optional<double> power_limit_w;
  std::optional<double> slowdown_temperature_c;
  std::optional<double> shutdown_temperature_c;
  std::string link;  ///< "PCIe gen 5 x16, NVLink 18 links"; empty: not known
  std::string driver_version;
};

/// The port to what watches a device. Every call returns within about a second; safe from one thread at a
/// time.
class Sensor {
 public:
  virtual ~Sensor() = default;
  virtual SensorLimits limits() = 0;
  /// An error: the device does not answer at all.
  virtual Result<SensorReading> read() = 0;
  virtual Result<SensorCounters> counters() = 0;
};

/// CPU and memory of the node, always from /proc.
struct HostLoad {
  std::optional<double> cpu_percent;     ///< of all cores, since the last look
  std::optional<double> memory_percent;  ///< used of total
};

}  // namespace egt
