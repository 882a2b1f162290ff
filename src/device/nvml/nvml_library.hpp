#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "egt/core/status.hpp"

/// The part of NVML's ABI in use, from NVIDIA's NVML API reference, because the build's toolkit may lack its
/// header. Functions missing in the driver's library are null.
namespace egt::nvml {

using Code = int;
using DeviceHandle = void*;
using EventSet = void*;

constexpr Code success = 0;
constexpr Code invalid_argument = 2;
constexpr Code not_supported = 3;
constexpr Code no_permission = 4;
constexpr Code insufficient_size = 7;
constexpr Code no_event = 10;  ///< NVML_ERROR_TIMEOUT
constexpr Code gpu_is_lost = 15;
constexpr Code reset_required = 16;
constexpr Code no_data = 21;
constexpr Code deprecated = 26;

struct Utilization {
  unsigned gpu;  ///< percent
  unsigned memory;
};

struct Memory {
  unsigned long long total;  ///< bytes
  unsigned long long free;
  unsigned long long used;
};

union Value {
  double f64;
  unsigned u32;
  unsigned long ulong;
  unsigned long long u64;
  long long i64;
  int i32;
  unsigned short u16;
};

enum ValueType : unsigned { type_f64, type_u32, type_ulong, type_u64, type_i64, type_i32, type_u16 };

struct FieldValue {
  unsigned field;
  unsigned scope;
  long long timestamp;
  long long latency;
  unsigned type;  ///< a ValueType
  Code code;
  Value value;
};
static_assert(sizeof(FieldValue) == 40);

struct PciInfo {
  char legacy_id[16];
  unsigned domain, bus, device;
  unsigned device_id, subsystem_id;
  char id[32];  ///< "00000000:18:00.0"
};
static_assert(sizeof(PciInfo) == 68);

struct RowRemapperHistogram {
  unsigned banks[5];  ///< with all, most, some, few and no spare rows
};
static_assert(sizeof(RowRemapperHistogram) == 20);

struct FabricInfo {
  unsigned char cluster[16];
  Code status;
  unsigned clique;
  unsigned char state;  ///< nvmlGpuFabricState_t: 0 not supported, 1 not started, 2 in progress, 3 completed
};
static_assert(sizeof(FabricInfo) == 28);

struct EventData {
  DeviceHandle device;
  unsigned long long type;
  unsigned long long data;  ///< the Xid
  unsigned gpu_instance, compute_instance;
};
static_assert(sizeof(EventData) == 32);

constexpr unsigned field_memory_temperature = 82;  ///< NVML_FI_DEV_MEMORY_TEMP, degrees Celsius
constexpr unsigned field_power_instant = 186;      ///< NVML_FI_DEV_POWER_INSTANT, milliwatts

/// NVML_FI_DEV_CLOCKS_EVENT_REASON_*: how long clocks were throttled, in nanoseconds. Drivers of early 2025
/// number the last two fields differently (`*_2025`). Current drivers use those numbers for mean power
/// smoothing, which is no 64-bit value. So the type of the value shows which field was read.
constexpr unsigned field_power_cap_time = 74;
constexpr unsigned field_sw_thermal_time = 75;
constexpr unsigned field_hw_thermal_time = 270, field_hw_thermal_time_2025 = 252;
constexpr unsigned field_power_brake_time = 271, field_power_brake_time_2025 = 253;

/// Counters of one NVLink, selected by scope. Up to Hopper: NVML_FI_DEV_NVLINK_ERROR_DL_*.
constexpr unsigned field_nvlink_replay = 161, field_nvlink_recovery = 162, field_nvlink_crc = 163;
/// Since Blackwell: NVML_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_FAILED_EVENTS and _EVENTS.
constexpr unsigned field_nvlink_recovery_failed = 214, field_nvlink_recovery_events = 215;

constexpr unsigned sensor_gpu = 0;
constexpr unsigned threshold_shutdown = 0, threshold_slowdown = 1;
constexpr unsigned clock_sm = 1, clock_memory = 2;
constexpr unsigned ecc_corrected = 0, ecc_uncorrected = 1;
constexpr unsigned ecc_volatile = 0;  ///< since the driver was loaded
constexpr unsigned nvlink_replay = 0, nvlink_recovery = 1, nvlink_crc_flit = 2;
constexpr unsigned max_links = 36;  ///< NVML_NVLINK_MAX_LINKS; a Hopper GPU has 18
constexpr unsigned long long event_xid = 8;

/// nvmlIntNvLinkDeviceType_t: the device at the other end of an NVLink.
constexpr unsigned remote_gpu = 0, remote_switch = 2;
constexpr unsigned p2p_nvlink = 2;  ///< NVML_P2P_CAPS_INDEX_NVLINK
constexpr unsigned p2p_ok = 0;      ///< NVML_P2P_STATUS_OK

/// The loaded and initialized library. The destructor shuts it down and unloads it.
class Library {
 public:
  static Result<std::unique_ptr<Library>> open(const char* file);
  ~Library();
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  std::string error_text(Code code) const;

 private:
  /// A library function or null, convertible to any function type.
  struct Symbol {
    void* address;
    template <typename F>
    operator F*() const {
      return reinterpret_cast<F*>(address);
    }
  };
  Symbol find(const char* name, const char* older_name = nullptr) const;
  explicit Library(void* handle) : handle_(handle) {}

  void* const handle_;  ///< declared before the functions, which are looked up in it

 public:
  template <typename... Arguments>
  using Function = Code (*)(Arguments...);
  template <typename T>
  using Get = Function<DeviceHandle, T*>;

  Function<const char*, DeviceHandle*> handle_by_pci = find("nvmlDeviceGetHandleByPciBusId_v2");
  Function<const char*, DeviceHandle*> handle_by_uuid = find("nvmlDeviceGetHandleByUUID");
  Function<unsigned*> count = find("nvmlDeviceGetCount_v2");
  Function<unsigned, DeviceHandle*> handle_by_index = find("nvmlDeviceGetHandleByIndex_v2");
  using GetText = Function<DeviceHandle, char*, unsigned>;
  GetText name = find("nvmlDeviceGetName"), uuid = find("nvmlDeviceGetUUID"),
          serial = find("nvmlDeviceGetSerial"), vbios = find("nvmlDeviceGetVbiosVersion");
  /// current, pending
  Function<DeviceHandle, unsigned*, unsigned*> ecc_mode = find("nvmlDeviceGetEccMode"),
                                               mig_mode = find("nvmlDeviceGetMigMode");
  Get<unsigned> persistence = find("nvmlDeviceGetPersistenceMode");
  Get<FabricInfo> fabric = find("nvmlDeviceGetGpuFabricInfo");
  /// count, list
  Function<DeviceHandle, unsigned*, void*> processes = find("nvmlDeviceGetComputeRunningProcesses_v3");
  Function<char*, unsigned> driver_version = find("nvmlSystemGetDriverVersion");
  Get<Utilization> utilization = find("nvmlDeviceGetUtilizationRates");
  Get<Memory> memory = find("nvmlDeviceGetMemoryInfo");
  Function<DeviceHandle, unsigned, unsigned*> temperature = find("nvmlDeviceGetTemperature");
  Function<DeviceHandle, unsigned, unsigned*> temperature_threshold =
      find("nvmlDeviceGetTemperatureThreshold");
  Function<DeviceHandle, int, FieldValue*> field_values = find("nvmlDeviceGetFieldValues");
  Get<unsigned> power = find("nvmlDeviceGetPowerUsage");  ///< milliwatts
  Get<unsigned> power_limit = find("nvmlDeviceGetEnforcedPowerLimit");
  Get<unsigned long long> energy = find("nvmlDeviceGetTotalEnergyConsumption");        ///< millijoules
  Function<DeviceHandle, unsigned, unsigned*> clock = find("nvmlDeviceGetClockInfo");  ///< MHz
  Get<unsigned> fan = find("nvmlDeviceGetFanSpeed");                                   ///< percent
  Get<unsigned long long> event_reasons =
      find("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons");
  Function<DeviceHandle, unsigned, unsigned, unsigned long long*> ecc_errors =
      find("nvmlDeviceGetTotalEccErrors");
  /// error type, counter, place (nvmlMemoryLocation_t)
  Function<DeviceHandle, unsigned, unsigned, unsigned, unsigned long long*> ecc_errors_at =
      find("nvmlDeviceGetMemoryErrorCounter");
  /// corrected, uncorrected, pending, failed
  Function<DeviceHandle, unsigned*, unsigned*, unsigned*, unsigned*> remapped_rows =
      find("nvmlDeviceGetRemappedRows");
  Get<RowRemapperHistogram> remap_histogram = find("nvmlDeviceGetRowRemapperHistogram");
  Get<unsigned> pcie_replay = find("nvmlDeviceGetPcieReplayCounter");
  Get<unsigned> pcie_generation = find("nvmlDeviceGetCurrPcieLinkGeneration");
  Get<unsigned> pcie_width = find("nvmlDeviceGetCurrPcieLinkWidth");
  Get<unsigned> pcie_max_generation =
      find("nvmlDeviceGetMaxPcieLinkGeneration");  ///< max supported by both GPU and slot
  Get<unsigned> pcie_max_width = find("nvmlDeviceGetMaxPcieLinkWidth");
  Get<PciInfo> pci_info = find("nvmlDeviceGetPciInfo_v3");
  Function<DeviceHandle, unsigned, unsigned*> nvlink_state = find("nvmlDeviceGetNvLinkState");
  Function<DeviceHandle, unsigned, unsigned, unsigned long long*> nvlink_errors =
      find("nvmlDeviceGetNvLinkErrorCounter");
  Function<DeviceHandle, unsigned, unsigned*> nvlink_version =
      find("nvmlDeviceGetNvLinkVersion");  ///< nvmlNvlinkVersion_t
  Function<DeviceHandle, unsigned, unsigned*> nvlink_remote_type =
      find("nvmlDeviceGetNvLinkRemoteDeviceType");  ///< remote_gpu, ..
  Function<DeviceHandle, unsigned, PciInfo*> nvlink_remote_pci = find("nvmlDeviceGetNvLinkRemotePciInfo_v2");
  Function<DeviceHandle, DeviceHandle, unsigned, unsigned*> p2p_status = find("nvmlDeviceGetP2PStatus");
  Function<EventSet*> event_set_create = find("nvmlEventSetCreate");
  Function<EventSet> event_set_free = find("nvmlEventSetFree");
  Function<DeviceHandle, unsigned long long, EventSet> register_events = find("nvmlDeviceRegisterEvents");
  Function<EventSet, EventData*, unsigned> event_set_wait = find("nvmlEventSetWait_v2");  ///< milliseconds

 private:
  const Function<> init_ = find("nvmlInit_v2"), shutdown_ = find("nvmlShutdown");
  const char* (*const error_string_)(Code) = find("nvmlErrorString");
  bool initialized_ = false;
};

}  // namespace egt::nvml
