#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "egt/core/status.hpp"

namespace egt {

/// Time for which the device throttled its clocks, in seconds since its driver was loaded. These are
/// counters, so nothing between two readings is missed.
struct ThrottleTimes {
  std::optional<double> power_cap_s;    ///< to stay within the power limit: the goal of a burn-in
  std::optional<double> sw_thermal_s;   ///< by the driver, to stay below the max operating temperature
  std::optional<double> hw_thermal_s;   ///< by the hardware, because it is too hot
  std::optional<double> power_brake_s;  ///< requested by the node's power supply
};

/// One reading of a device; values that it does not report are empty, never 0. A row of `sampled_metrics`
/// brings a value into the telemetry, metrics.prom, the charts and the table at the end of a run.
struct SensorReading {
  std::optional<double> gpu_utilization_percent;
  std::optional<double> power_w;   ///< instantaneous if the device reports it
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

/// A driver error (Xid), with its number in NVIDIA's Xid catalog.
struct XidEvent {
  unsigned xid = 0;
  double time = 0;     ///< seconds since 1970
  std::string detail;  ///< rest of the kernel log line; empty: from NVML, which gives only the number
};

/// A message of the kernel log that is no Xid.
struct LogMessage {
  enum class Source {
    nvswitch,  ///< SXid of an NVSwitch
    pcie,      ///< AER of the GPU or of the port above it
    driver,    ///< of this GPU, without an Xid
  };
  Source source = Source::driver;
  bool is_error = false;  ///< not corrected, or a failure
  std::string text;       ///< without the time of the log
};

/// One NVLink. The link corrects CRC errors and replays without software; a recovery retrains the link.
struct LinkCounters {
  unsigned link = 0;
  std::optional<bool> up;
  std::optional<std::uint64_t> crc;
  std::optional<std::uint64_t> replay;
  std::optional<std::uint64_t> recovery;
  std::optional<std::uint64_t> recovery_failed;
};

/// PCIe link of the device: current values, which drop while idle, and the max that both ends support.
struct PcieLink {
  std::optional<unsigned> generation, width;
  std::optional<unsigned> max_generation, max_width;
};

/// Memories of a device that count their errors, in the order of NVML's nvmlMemoryLocation_t.
constexpr const char* ecc_places[] = {"l1_cache",       "l2_cache",       "device_memory", "register_file",
                                      "texture_memory", "texture_shared", "control_block", "sram"};
struct EccErrors {
  std::optional<std::uint64_t> corrected, uncorrected;
};

/// Classes of memory banks by their spare rows, in the order of NVML's nvmlRowRemapperHistogramValues_t.
constexpr const char* remap_availabilities[] = {"max", "high", "partial", "low", "none"};

/// Monotonic counters and latches, except `pcie`, `remap_availability` and the links' `up`. Read before,
/// during and after a run.
struct SensorCounters {
  std::optional<std::uint64_t> ecc_corrected;
  std::optional<std::uint64_t> ecc_uncorrected;
  EccErrors ecc_at[std::size(ecc_places)];     ///< by place, as far as the device counts them so
  bool ecc_from_zero = false;                  ///< an ECC counter that appears during the run started at 0
  std::optional<std::uint64_t> remapped_rows;  ///< for corrected and uncorrectable errors
  std::optional<std::uint64_t> remapped_rows_uncorrected;
  std::optional<std::uint64_t>
      remap_availability[std::size(remap_availabilities)];  ///< number of banks per class
  std::optional<bool> remap_pending;
  std::optional<bool> remap_failure;
  std::optional<std::uint64_t> pcie_replay;
  std::optional<std::uint64_t> pcie_corrected;  ///< these three: AER of the GPU and of the port above it
  std::optional<std::uint64_t> pcie_nonfatal;
  std::optional<std::uint64_t> pcie_fatal;
  std::optional<std::uint64_t> host_ecc_corrected;  ///< memory of a GPU's node (EDAC), on one of its ranks
  std::optional<std::uint64_t> host_ecc_uncorrected;
  std::optional<std::uint64_t> nvlink_crc;  ///< these three: sums over all responding links
  std::optional<std::uint64_t> nvlink_replay;
  std::optional<std::uint64_t> nvlink_recovery;
  std::vector<LinkCounters> nvlinks;  ///< those that the device has
  PcieLink pcie;
  bool xids_told = false;                ///< a source of Xids can be read
  std::vector<XidEvent> xids;            ///< all since the sensor was opened, oldest first
  std::vector<LogMessage> log_messages;  ///< the first of each source and severity since then
  /// Why the device no longer works, in one line; then only `xids` is also set. Empty: it works.
  std::string lost;
};

/// A counter of errors that the hardware corrects, compared with --corrected-limit and with peers.
struct CorrectedCounter {
  const char* key;   ///< in `counters` of the result
  const char* text;  ///< plural, for people
  const char* kind;  ///< of its finding
  std::optional<std::uint64_t> SensorCounters::*value;
  bool is_rare;  ///< healthy devices have none, so that any is a notice
};
inline constexpr CorrectedCounter corrected_counters[] = {
    {"ecc_corrected", "corrected memory errors (ECC)", "ecc", &SensorCounters::ecc_corrected, true},
    {"pcie_corrected", "corrected PCIe errors (AER)", "link", &SensorCounters::pcie_corrected, true},
    {"pcie_replay", "PCIe replays", "link", &SensorCounters::pcie_replay, false},
    {"nvlink_crc", "NVLink CRC errors", "link", &SensorCounters::nvlink_crc, true},
    {"nvlink_replay", "NVLink replays", "link", &SensorCounters::nvlink_replay, true},
    {"host_ecc_corrected", "corrected errors of the node's memory (EDAC)", "host-memory",
     &SensorCounters::host_ecc_corrected, true}};

/// Values that are constant during a run.
struct SensorLimits {
  std::optional<double> power_limit_w;
  std::optional<double> slowdown_temperature_c;
  std::optional<double> shutdown_temperature_c;
  std::string link;    ///< "PCIe gen 5 x16, NVLink 18 links"; empty: unknown
  std::string serial;  ///< serial number of the board; empty: unknown
  std::string driver_version;
  std::vector<std::string> untold;  ///< values that the device does not report and why, one line each
};

/// CPU and memory of the node, always from /proc.
struct HostLoad {
  std::optional<double> cpu_percent;     ///< of all cores, since the last reading
  std::optional<double> memory_percent;  ///< used of total
};

/// A value that each rank samples during a run. The telemetry has its {min, avg, max, last}.
struct SampledMetric {
  const char* key;  ///< in the telemetry
  std::variant<std::optional<double> SensorReading::*, std::optional<std::uint64_t> SensorReading::*,
               std::optional<double> HostLoad::*>
      member;
  const char* metric = nullptr;  ///< in metrics.prom, without "egt_"; null: not exported
  const char* help = nullptr;    ///< its help text there
  double per_base_unit = 1;      ///< units of this value per unit of metrics.prom
  const char* group = nullptr;   ///< heading above its chart in report.html
  const char* chart = nullptr;   ///< title of the chart; null: no chart
  const char* unit = nullptr;    ///< of the chart
  double scale = 1;              ///< factor to that unit
  const char* limit = nullptr;   ///< name of its limit in the telemetry or its limiter part; null: none
  /// Head of its column in the table at the end of a run; the last word is the statistic; null: no column.
  const char* column = nullptr;
};

/// In the order of metrics.prom, the charts and the columns.
inline constexpr SampledMetric sampled_metrics[] = {
    {"power_w", &SensorReading::power_w, "rank_power_watts",
     "Power of the device by its sensor."},  // its chart uses the energy counter
    {"temperature_c", &SensorReading::temperature_c, "rank_temperature_celsius", "Temperature of the device.",
     1, "Power and temperature", "Temperature", "°C", 1, "temperature_limit_c", "temp C max"},
    {"memory_temperature_c", &SensorReading::memory_temperature_c, "rank_memory_temperature_celsius",
     "Temperature of the device's memory.", 1, "Power and temperature", "Memory temperature", "°C", 1,
     nullptr, "mem C max"},
    {"sm_clock_mhz", &SensorReading::sm_clock_mhz, "rank_clock_hertz",
     "Clock of the device's multiprocessors.", 1e-6, "Clocks", "Clock", "MHz", 1, nullptr, "SM MHz avg"},
    {"memory_clock_mhz", &SensorReading::memory_clock_mhz, "rank_memory_clock_hertz",
     "Clock of the device's memory.", 1e-6, "Clocks", "Memory clock", "MHz"},
    {"fan_percent", &SensorReading::fan_percent, "rank_fan_ratio",
     "Speed of the device's fan, of its maximum.", 100, "Power and temperature", "Fan", "%"},
    {"gpu_utilization_percent", &SensorReading::gpu_utilization_percent, "rank_utilization_ratio",
     "Share of the time in which the device was busy.", 100, "Compute", "Utilization", "%"},
    {"memory_used_bytes", &SensorReading::memory_used_bytes, "rank_memory_used_bytes",
     "Memory of the device in use.", 1, "Memory", "Memory in use", "GB", 1e-9},
    {"cpu_percent", &HostLoad::cpu_percent, nullptr, nullptr, 1, "Host", "Host CPU", "%"},
    {"host_memory_percent", &HostLoad::memory_percent, nullptr, nullptr, 1, "Host", "Host memory", "%"}};

/// The port to a device sensor. A call returns within about one second, unless the driver is stuck. Callers
/// must be able to abandon such a call together with its thread. Used by one thread at a time.
///
/// `read` fails with `aborted` if the device is lost for good (`counters` gives the reason in `lost`). Both
/// fail with `unavailable` if the device does not respond.
class Sensor {
 public:
  virtual ~Sensor() = default;
  virtual SensorLimits limits() = 0;
  virtual Result<SensorReading> read() = 0;
  virtual Result<SensorCounters> counters() = 0;
};

}  // namespace egt
