#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "egt/core/status.hpp"

/// NVML's ABI as far as it is used, from NVIDIA's NVML API reference: the toolkit that this builds with may
/// have no header of it. A function that the driver's library lacks is null.
namespace egt::nvml {

using Code = int;
using DeviceHandle = void*;

constexpr Code success = 0;
constexpr Code gpu_is_lost = 15;

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

constexpr unsigned field_memory_temperature = 82;  ///< NVML_FI_DEV_MEMORY_TEMP, degrees Celsius
constexpr unsigned field_power_instant = 186;      ///< NVML_FI_DEV_POWER_INSTANT, milliwatts

constexpr unsigned sensor_gpu = 0;
constexpr unsigned threshold_shutdown = 0, threshold_slowdown = 1;
constexpr unsigned clock_sm = 1, clock_memory = 2;
constexpr unsigned ecc_corrected = 0, ecc_uncorrected = 1;
constexpr unsigned ecc_volatile = 0;  ///< since the driver was loaded
constexpr unsigned nvlink_replay = 0, nvlink_recovery = 1, nvlink_crc_flit = 2;
constexpr unsigned max_links = 18;

/// The loaded library, initialized; shut down and unloaded with this object.
class Library {
 public:
  static Result<std::unique_ptr<Library>> open(const char* file);
  ~Library();
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  std::string error_text(Code code) const;

  template <typename... Arguments>
  using Function = Code (*)(Arguments...);
  template <typename T>
  using Get = Function<DeviceHandle, T*>;

  Function<const char*, DeviceHandle*> handle_by_pci = nullptr;
  Function<const char*, DeviceHandle*> handle_by_uuid = nullptr;
  Function<char*, unsigned> driver_version = nullptr;
  Get<Utilization> utilization = nullptr;
  Get<Memory> memory = nullptr;
  Function<DeviceHandle, unsigned, unsigned*> temperature = nullptr;
  Function<DeviceHandle, unsigned, unsigned*> temperature_threshold = nullptr;
  Function<DeviceHandle, int, FieldValue*> field_values = nullptr;
  Get<unsigned> power = nullptr;  ///< milliwatts
  Get<unsigned> power_limit = nullptr;
  Get<unsigned long long> energy = nullptr;                     ///< millijoules
  Function<DeviceHandle, unsigned, unsigned*> clock = nullptr;  ///< MHz
  Get<unsigned> fan = nullptr;                                  ///< percent
  Get<unsigned long long> event_reasons = nullptr;
  Function<DeviceHandle, unsigned, unsigned, unsigned long long*> ecc_errors = nullptr;
  /// corrected, uncorrected, pending, failed
  Function<DeviceHandle, unsigned*, unsigned*, unsigned*, unsigned*> remapped_rows = nullptr;
  Get<unsigned> pcie_replay = nullptr;
  Get<unsigned> pcie_generation = nullptr;
  Get<unsigned> pcie_width = nullptr;
  Function<DeviceHandle, unsigned, unsigned*> nvlink_state = nullptr;
  Function<DeviceHandle, unsigned, unsigned, unsigned long long*> nvlink_errors = nullptr;

 private:
  explicit Library(void* handle) : handle_(handle) {}
  template <typename F>
  void find(F& function, const char* name);
  void find_functions();

  void* handle_;
  bool initialized_ = false;
  const char* (*error_string_)(Code) = nullptr;
};

}  // namespace egt::nvml
