#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <mutex>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "device/nvml/nvml_library.hpp"

/// A fake NVML with one GPU (PCI 00000000:18:00.0, UUID GPU-fake) that follows a script: the file
/// FAKE_NVML_SCRIPT, read by nvmlInit_v2, or the text that a test passes to fake_nvml_load.
///
/// A line is "KEY VALUE" or "at SECONDS KEY VALUE" (valid from this time on); the last match counts.
/// Values without a line are not supported. Keys, in the units of the sensor:
///   temperature memory_temperature utilization power_w power_average_w power_limit_w energy_j sm_clock
///   memory_clock memory_used memory_total slowdown shutdown reasons ecc_corrected
///   ecc_uncorrected remapped_corrected remapped_uncorrected remap_pending remap_failure pcie_replay
///   pcie_generation pcie_width pcie_max_generation pcie_max_width time.power_cap time.sw_thermal
///   time.hw_thermal time.power_brake time.hw_thermal_2025 time.power_brake_2025
///   banks.N: number of memory banks of the class N of nvmlRowRemapperHistogramValues_t
///   ecc_corrected.P ecc_uncorrected.P: of the memory P, a nvmlMemoryLocation_t
///   links N: number of links; nvlink.up, nvlink.crc, .replay, .recovery, .recovery_events, .recovery_failed,
///   .old_crc, .old_replay, .old_recovery: all links; nvlink.3.crc: one link
///   nvlink.version, .remote_type: all links, or one; nvlink.remote_bus: remote PCI id 00000000:XX:00.0
///   p2p_nvlink N: NVLink status between this GPU and a second one, PCI 00000000:2a:00.0, if present
///   gpus N: GPUs by index, PCI 00000000:1X:00.0, UUID GPU-X; gpu.X.KEY: the key for one of them
///   ecc mig persistence fabric processes: settings, nvmlGpuFabricState_t and number of processes
///   field.ID: a 32-bit field value; events 1: Xid events are supported; xid N: an Xid event
///   fail.KEY CODE: this call fails; all CODE: every device call fails (15: the GPU is lost)
///   stall SECONDS: duration of every device call; init CODE: nvmlInit fails
/// nvmlDeviceGetFanSpeed is omitted: a driver may lack any function.
using egt::nvml::Code;

namespace {

using egt::nvml::invalid_argument;
using egt::nvml::not_supported;
constexpr Code not_found = 6;
int gpu, other_gpu, events;
int node_gpus[16];  // by index

struct Line {
  double at = 0;
  std::string key;
  double value = 0;
  bool delivered = false;  ///< refers to an Xid
};

class Script {
 public:
  void load(const std::string& text) {
    const std::lock_guard lock(mutex_);
    lines_.clear();
    std::istringstream in(text);
    for (std::string words; std::getline(in, words);) {
      std::istringstream fields(words.substr(0, words.find('#')));
      Line line;
      if (!(fields >> line.key)) continue;
      if (line.key == "at") fields >> line.at >> line.key;
      fields >> line.value;
      lines_.push_back(line);
    }
    start_ = std::chrono::steady_clock::now();
    time_.reset();
  }
  /// Sets the clock to `seconds`.
  void set_time(double seconds) {
    const std::lock_guard lock(mutex_);
    time_ = seconds;
  }
  std::optional<double> value(const std::string& key) {
    const std::lock_guard lock(mutex_);
    std::optional<double> found;
    for (const Line& line : lines_)
      if (line.key == key && line.at <= now()) found = line.value;
    return found;
  }
  std::optional<unsigned> next_xid() {
    const std::lock_guard lock(mutex_);
    for (Line& line : lines_)
      if (line.key == "xid" && line.at <= now() && !std::exchange(line.delivered, true))
        return static_cast<unsigned>(line.value);
    return std::nullopt;
  }

 private:
  double now() const {
    return time_.value_or(std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count());
  }
  std::mutex mutex_;
  std::vector<Line> lines_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::optional<double> time_;
};

Script& script() {
  static Script one;
  return one;
}

/// The index of a device that was asked for by index, else -1.
long index_of(void* device) {
  for (int& one : node_gpus)
    if (&one == device) return &one - node_gpus;
  return -1;
}

/// Common prologue of every call to the device.
Code enter(void* device) {
  if (device != &gpu && index_of(device) < 0) return invalid_argument;
  std::this_thread::sleep_for(std::chrono::duration<double>(script().value("stall").value_or(0)));
  return static_cast<Code>(script().value("all").value_or(egt::nvml::success));
}

/// The value of a key times `factor`.
template <typename T>
Code answer(void* device, T* out, const std::string& key, double factor = 1) {
  if (const Code code = enter(device); code != egt::nvml::success) return code;
  if (const auto code = script().value("fail." + key)) return static_cast<Code>(*code);
  auto value = script().value("gpu." + std::to_string(index_of(device)) + "." + key);
  if (!value) value = script().value(key);
  if (!value) return not_supported;
  *out = static_cast<T>(std::llround(*value * factor));
  return egt::nvml::success;
}

bool has_link(unsigned link) {
  return link < script().value("links").value_or(0);
}

template <typename T>
Code answer_link(void* device, T* out, unsigned link, const std::string& key) {
  const std::string own = "nvlink." + std::to_string(link) + "." + key;
  if (const Code code = enter(device); code != egt::nvml::success) return code;
  if (!has_link(link)) return invalid_argument;
  return answer(device, out, script().value(own) ? own : "nvlink." + key);
}

Code answer_wide(egt::nvml::FieldValue& field, const char* key) {
  field.type = egt::nvml::type_u64;
  return answer(&gpu, &field.value.u64, key, 1e9);
}

Code answer_field(egt::nvml::FieldValue& field) {
  using namespace egt::nvml;
  const std::map<unsigned, const char*> times = {{field_power_cap_time, "time.power_cap"},
                                                 {field_sw_thermal_time, "time.sw_thermal"},
                                                 {field_hw_thermal_time, "time.hw_thermal"},
                                                 {field_power_brake_time, "time.power_brake"},
                                                 {field_hw_thermal_time_2025, "time.hw_thermal_2025"},
                                                 {field_power_brake_time_2025, "time.power_brake_2025"}};
  const std::map<unsigned, const char*> links = {{field_nvlink_crc, "crc"},
                                                 {field_nvlink_replay, "replay"},
                                                 {field_nvlink_recovery, "recovery"},
                                                 {field_nvlink_recovery_events, "recovery_events"},
                                                 {field_nvlink_recovery_failed, "recovery_failed"}};
  const std::string raw = "field." + std::to_string(field.field);
  field.type = type_u32;
  if (script().value(raw)) return answer(&gpu, &field.value.u32, raw);
  if (times.contains(field.field)) return answer_wide(field, times.at(field.field));
  if (links.contains(field.field)) {
    field.type = type_u64;
    return answer_link(&gpu, &field.value.u64, field.scope, links.at(field.field));
  }
  if (field.field == field_memory_temperature) return answer(&gpu, &field.value.u32, "memory_temperature");
  if (field.field == field_power_instant) return answer(&gpu, &field.value.u32, "power_w", 1000);
  return not_supported;
}

Code look_up(const char* name, const char* known, void** device) {
  if (std::strcmp(name, known) != 0) return not_found;
  *device = &gpu;
  return egt::nvml::success;
}

}  // namespace

extern "C" {

void fake_nvml_load(const char* text) {
  script().load(text);
}
void fake_nvml_set_time(double seconds) {
  script().set_time(seconds);
}

Code nvmlInit_v2() {
  if (const char* file = std::getenv("FAKE_NVML_SCRIPT")) {
    std::ifstream in(file);
    script().load({std::istreambuf_iterator<char>(in), {}});
  }
  return static_cast<Code>(script().value("init").value_or(egt::nvml::success));
}
Code nvmlShutdown() {
  return egt::nvml::success;
}
const char* nvmlErrorString(Code code) {
  if (code == not_found) return "Not Found";
  return code == not_supported ? "Not Supported" : "Driver Not Loaded";
}
Code nvmlSystemGetDriverVersion(char* text, unsigned length) {
  std::snprintf(text, length, "580.1");
  return egt::nvml::success;
}
Code nvmlDeviceGetCount_v2(unsigned* count) {
  *count = static_cast<unsigned>(script().value("gpus").value_or(1));
  return egt::nvml::success;
}
Code nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
  if (index >= std::size(node_gpus)) return invalid_argument;
  if (const auto code = script().value("gpu." + std::to_string(index) + ".fail"))
    return static_cast<Code>(*code);
  *device = node_gpus + index;
  return egt::nvml::success;
}
Code nvmlDeviceGetName(void* device, char* text, unsigned length) {
  std::snprintf(text, length, "NVIDIA H200");
  return enter(device);
}
Code nvmlDeviceGetUUID(void* device, char* text, unsigned length) {
  std::snprintf(text, length, "GPU-%ld", index_of(device));
  return enter(device);
}
Code nvmlDeviceGetSerial(void* device, char* text, unsigned length) {
  if (index_of(device) >= 0)
    std::snprintf(text, length, "165%ld", index_of(device));
  else if (const auto serial = script().value("serial"))
    std::snprintf(text, length, "%.0f", *serial);
  else
    return not_supported;
  return enter(device);
}
Code nvmlDeviceGetVbiosVersion(void* device, char* text, unsigned length) {
  std::snprintf(text, length, "96.00.A5.00.01");
  return enter(device);
}
Code nvmlDeviceGetEccMode(void* device, unsigned* current, unsigned* pending) {
  const Code code = answer(device, current, "ecc");
  *pending = *current;
  return code;
}
Code nvmlDeviceGetMigMode(void* device, unsigned* current, unsigned* pending) {
  const Code code = answer(device, current, "mig");
  *pending = *current;
  return code;
}
Code nvmlDeviceGetPersistenceMode(void* device, unsigned* out) {
  return answer(device, out, "persistence");
}
Code nvmlDeviceGetGpuFabricInfo(void* device, egt::nvml::FabricInfo* out) {
  return answer(device, &out->state, "fabric");
}
/// Without room for the list, the driver returns NVML_ERROR_INSUFFICIENT_SIZE if there is a process.
Code nvmlDeviceGetComputeRunningProcesses_v3(void* device, unsigned* count, void*) {
  const Code code = answer(device, count, "processes");
  return code == egt::nvml::success && *count > 0 ? egt::nvml::insufficient_size : code;
}
Code nvmlDeviceGetHandleByPciBusId_v2(const char* id, void** device) {
  if (std::strcmp(id, "00000000:2a:00.0") == 0 && script().value("p2p_nvlink")) {
    *device = &other_gpu;
    return egt::nvml::success;
  }
  return look_up(id, "00000000:18:00.0", device);
}
Code nvmlDeviceGetHandleByUUID(const char* id, void** device) {
  return look_up(id, "GPU-fake", device);
}
Code nvmlDeviceGetPciInfo_v3(void* device, egt::nvml::PciInfo* out) {
  out->domain = 0;
  out->bus = index_of(device) < 0 ? 0x18 : 0x10 + static_cast<unsigned>(index_of(device));
  out->device = 0;
  return enter(device);
}
Code nvmlDeviceGetUtilizationRates(void* device, egt::nvml::Utilization* out) {
  out->memory = 12;
  return answer(device, &out->gpu, "utilization");
}
Code nvmlDeviceGetMemoryInfo(void* device, egt::nvml::Memory* out) {
  const Code code = answer(device, &out->total, "memory_total");
  return code == egt::nvml::success ? answer(device, &out->used, "memory_used") : code;
}
Code nvmlDeviceGetTemperature(void* device, unsigned sensor, unsigned* out) {
  return sensor == 0 ? answer(device, out, "temperature") : invalid_argument;
}
Code nvmlDeviceGetTemperatureThreshold(void* device, unsigned which, unsigned* out) {
  return answer(device, out, which == egt::nvml::threshold_slowdown ? "slowdown" : "shutdown");
}
Code nvmlDeviceGetFieldValues(void* device, int count, egt::nvml::FieldValue* fields) {
  if (const Code code = enter(device); code != egt::nvml::success) return code;
  for (int i = 0; i < count; ++i) fields[i].code = answer_field(fields[i]);
  return egt::nvml::success;
}
Code nvmlDeviceGetPowerUsage(void* device, unsigned* out) {
  return answer(device, out, "power_average_w", 1000);
}
Code nvmlDeviceGetEnforcedPowerLimit(void* device, unsigned* out) {
  return answer(device, out, "power_limit_w", 1000);
}
Code nvmlDeviceGetTotalEnergyConsumption(void* device, unsigned long long* out) {
  return answer(device, out, "energy_j", 1000);
}
Code nvmlDeviceGetClockInfo(void* device, unsigned which, unsigned* out) {
  return answer(device, out, which == egt::nvml::clock_sm ? "sm_clock" : "memory_clock");
}
/// The name before driver 535; the newer name is omitted.
Code nvmlDeviceGetCurrentClocksThrottleReasons(void* device, unsigned long long* out) {
  return answer(device, out, "reasons");
}
Code nvmlDeviceGetTotalEccErrors(void* device, unsigned type, unsigned counter, unsigned long long* out) {
  if (counter != egt::nvml::ecc_volatile) return invalid_argument;
  return answer(device, out, type == egt::nvml::ecc_corrected ? "ecc_corrected" : "ecc_uncorrected");
}
Code nvmlDeviceGetMemoryErrorCounter(void* device, unsigned type, unsigned counter, unsigned place,
                                     unsigned long long* out) {
  if (counter != egt::nvml::ecc_volatile) return invalid_argument;
  const char* const key = type == egt::nvml::ecc_corrected ? "ecc_corrected." : "ecc_uncorrected.";
  return answer(device, out, key + std::to_string(place));
}
Code nvmlDeviceGetRemappedRows(void* device, unsigned* corrected, unsigned* uncorrected, unsigned* pending,
                               unsigned* failed) {
  const Code code = answer(device, corrected, "remapped_corrected");
  if (code != egt::nvml::success) return code;
  *uncorrected = static_cast<unsigned>(script().value("remapped_uncorrected").value_or(0));
  *pending = static_cast<unsigned>(script().value("remap_pending").value_or(0));
  *failed = static_cast<unsigned>(script().value("remap_failure").value_or(0));
  return code;
}
Code nvmlDeviceGetRowRemapperHistogram(void* device, egt::nvml::RowRemapperHistogram* out) {
  for (std::size_t i = 0; i < std::size(out->banks); ++i)
    if (const Code code = answer(device, out->banks + i, "banks." + std::to_string(i));
        code != egt::nvml::success)
      return code;
  return egt::nvml::success;
}
Code nvmlDeviceGetPcieReplayCounter(void* device, unsigned* out) {
  return answer(device, out, "pcie_replay");
}
Code nvmlDeviceGetCurrPcieLinkGeneration(void* device, unsigned* out) {
  return answer(device, out, "pcie_generation");
}
Code nvmlDeviceGetCurrPcieLinkWidth(void* device, unsigned* out) {
  return answer(device, out, "pcie_width");
}
Code nvmlDeviceGetMaxPcieLinkGeneration(void* device, unsigned* out) {
  return answer(device, out, "pcie_max_generation");
}
Code nvmlDeviceGetMaxPcieLinkWidth(void* device, unsigned* out) {
  return answer(device, out, "pcie_max_width");
}
Code nvmlDeviceGetNvLinkState(void* device, unsigned link, unsigned* out) {
  return answer_link(device, out, link, "up");
}
Code nvmlDeviceGetNvLinkErrorCounter(void* device, unsigned link, unsigned counter, unsigned long long* out) {
  const char* keys[] = {"old_replay", "old_recovery", "old_crc"};
  return counter < 3 ? answer_link(device, out, link, keys[counter]) : invalid_argument;
}
Code nvmlDeviceGetNvLinkVersion(void* device, unsigned link, unsigned* out) {
  return answer_link(device, out, link, "version");
}
Code nvmlDeviceGetNvLinkRemoteDeviceType(void* device, unsigned link, unsigned* out) {
  return answer_link(device, out, link, "remote_type");
}
Code nvmlDeviceGetNvLinkRemotePciInfo_v2(void* device, unsigned link, egt::nvml::PciInfo* out) {
  *out = {};
  return answer_link(device, &out->bus, link, "remote_bus");
}
Code nvmlDeviceGetP2PStatus(void* device, void* other, unsigned index, unsigned* out) {
  if (other != &other_gpu || index != egt::nvml::p2p_nvlink) return invalid_argument;
  return answer(device, out, "p2p_nvlink");
}
Code nvmlEventSetCreate(void** set) {
  *set = &events;
  return script().value("events").value_or(0) != 0 ? egt::nvml::success : not_supported;
}
Code nvmlEventSetFree(void*) {
  return egt::nvml::success;
}
Code nvmlDeviceRegisterEvents(void* device, unsigned long long types, void* set) {
  return set == &events && types == egt::nvml::event_xid ? enter(device) : invalid_argument;
}
Code nvmlEventSetWait_v2(void* set, egt::nvml::EventData* out, unsigned) {
  if (set != &events) return invalid_argument;
  const auto xid = script().next_xid();
  if (!xid) return egt::nvml::no_event;
  *out = {&gpu, egt::nvml::event_xid, *xid, 0xffffffff, 0xffffffff};
  return egt::nvml::success;
}

}  // extern "C"
