#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "egt/core/status.hpp"

namespace egt {

/// For how long the device held its own clocks down, in seconds since its driver was loaded: counters, so
/// nothing between two looks is missed.
struct ThrottleTimes {
  std::optional<double> power_cap_s;    ///< to stay within the power limit: the aim of a burn-in
  std::optional<double> sw_thermal_s;   ///< by the driver, to stay below the highest working temperature
  std::optional<double> hw_thermal_s;   ///< by the hardware, since it is too hot
  std::optional<double> power_brake_s;  ///< the node's power supply asked for it
};

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
  ThrottleTimes throttle;
};

/// An error that the driver reports under a number of NVIDIA's Xid catalog.
struct XidEvent {
  unsigned xid = 0;
  double time = 0;  ///< seconds since 1970
  std::string
      detail;  ///< the rest of the kernel log's line; empty: told by NVML, which gives the number only
};

/// One NVLink. CRC errors and replays are put right by the link itself; a recovery is a retraining of it.
struct LinkCounters {
  unsigned link = 0;
  std::optional<bool> up;
  std::optional<std::uint64_t> crc;
  std::optional<std::uint64_t> replay;
  std::optional<std::uint64_t> recovery;
  std::optional<std::uint64_t> recovery_failed;
};

/// The PCIe link of the device: as it is now (it sinks while idle), and the most that both of its ends can.
struct PcieLink {
  std::optional<unsigned> generation, width;
  std::optional<unsigned> max_generation, max_width;
};

/// What only ever grows (or latches), `pcie` and the links' `up` aside: read before, in and after a run.
struct SensorCounters {
  std::optional<std::uint64_t> ecc_corrected;
  std::optional<std::uint64_t> ecc_uncorrected;
  bool ecc_from_zero = false;  ///< those that appear later than the first time have counted from 0 since
  std::optional<std::uint64_t> remapped_rows;  ///< for corrected and uncorrectable errors
  std::optional<std::uint64_t> remapped_rows_uncorrected;
  std::optional<bool> remap_pending;
  std::optional<bool> remap_failure;
  std::optional<std::uint64_t> pcie_replay;
  std::optional<std::uint64_t> nvlink_crc;  ///< these three: sums over all links that answer
  std::optional<std::uint64_t> nvlink_replay;
  std::optional<std::uint64_t> nvlink_recovery;
  std::vector<LinkCounters> nvlinks;  ///< those that the device has
  PcieLink pcie;
  bool xids_told = false;      ///< is there anybody to tell Xids?
  std::vector<XidEvent> xids;  ///< all since the sensor was opened, oldest first
  /// Why the device does not work any more, in one line; then only `xids` is told besides. Empty: it works.
  std::string lost;
};

/// What does not change in a run.
struct SensorLimits {
  std::optional<double> power_limit_w;
  std::optional<double> slowdown_temperature_c;
  std::optional<double> shutdown_temperature_c;
  std::string link;  ///< "PCIe gen 5 x16, NVLink 18 links"; empty: not known
  std::string driver_version;
  std::vector<std::string> untold;  ///< what it cannot tell and why, a line for people each
};

/// The port to what watches a device. A call returns within about a second, unless the driver itself is
/// stuck: callers must be ready to leave it behind with its thread. Safe from one thread at a time.
///
/// `read` fails with `aborted` when the device is lost for good (`counters` tells it in `lost`), and both
/// with `unavailable` when it answers nothing.
class Sensor {
 public:
  virtual ~Sensor() = default;
  virtual SensorLimits limits() = 0;
  virtual Result<SensorReading> read() = 0;
  virtual Result<SensorCounters> counters() = 0;
};

/// CPU and memory of the node, always from /proc.
struct HostLoad {
  std::optional<double> cpu_percent;     ///< of all cores, since the last look
  std::optional<double> memory_percent;  ///< used of total
};

}  // namespace egt
