#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "nvml_library.hpp"

/// A library with NVML's functions and one GPU, PCI 00000000:18:00.0 = UUID GPU-fake. FAKE_NVML chooses what
/// it is: "whole", "old" (no instant power, no event reasons by the new name), "lost", "mute" (supports
/// nothing). nvmlDeviceGetFanSpeed is left out: a driver may lack any function.
using egt::nvml::Code;

namespace {

constexpr Code not_supported = 3, not_found = 6, invalid_argument = 2;
int gpu;

bool is(const char* kind) {
  const char* chosen = std::getenv("FAKE_NVML");
  return chosen != nullptr && std::strcmp(chosen, kind) == 0;
}

template <typename T>
Code answer(void* device, T* out, T value) {
  if (device != &gpu) return invalid_argument;
  if (is("lost")) return egt::nvml::gpu_is_lost;
  if (is("mute")) return not_supported;
  *out = value;
  return egt::nvml::success;
}

Code look_up(const char* name, const char* known, void** device) {
  if (std::strcmp(name, known) != 0) return not_found;
  *device = &gpu;
  return egt::nvml::success;
}

}  // namespace

extern "C" {

Code nvmlInit_v2() {
  return is("broken") ? 9 : egt::nvml::success;
}
Code nvmlShutdown() {
  return egt::nvml::success;
}
const char* nvmlErrorString(Code code) {
  return code == not_found ? "Not Found" : "Driver Not Loaded";
}
Code nvmlSystemGetDriverVersion(char* text, unsigned length) {
  std::snprintf(text, length, "580.1");
  return egt::nvml::success;
}
Code nvmlDeviceGetHandleByPciBusId_v2(const char* id, void** device) {
  return look_up(id, "00000000:18:00.0", device);
}
Code nvmlDeviceGetHandleByUUID(const char* id, void** device) {
  return look_up(id, "GPU-fake", device);
}
Code nvmlDeviceGetUtilizationRates(void* device, egt::nvml::Utilization* out) {
  return answer(device, out, {97, 12});
}
Code nvmlDeviceGetMemoryInfo(void* device, egt::nvml::Memory* out) {
  return answer(device, out, {100, 30, 70});
}
Code nvmlDeviceGetTemperature(void* device, unsigned sensor, unsigned* out) {
  return sensor == 0 ? answer(device, out, 61u) : invalid_argument;
}
Code nvmlDeviceGetTemperatureThreshold(void* device, unsigned which, unsigned* out) {
  return answer(device, out, which == egt::nvml::threshold_slowdown ? 87u : 92u);
}
Code nvmlDeviceGetFieldValues(void* device, int count, egt::nvml::FieldValue* fields) {
  for (int i = 0; i < count; ++i) {
    auto& field = fields[i];
    field.type = egt::nvml::type_u32;
    field.code = not_supported;
    if (field.field == egt::nvml::field_memory_temperature)
      field.code = answer(device, &field.value.u32, 74u);
    if (field.field == egt::nvml::field_power_instant && !is("old"))
      field.code = answer(device, &field.value.u32, 695500u);
  }
  return answer(device, &gpu, 0);
}
Code nvmlDeviceGetPowerUsage(void* device, unsigned* out) {
  return answer(device, out, 600000u);
}
Code nvmlDeviceGetEnforcedPowerLimit(void* device, unsigned* out) {
  return answer(device, out, 700000u);
}
Code nvmlDeviceGetTotalEnergyConsumption(void* device, unsigned long long* out) {
  return answer(device, out, 5000500ull);
}
Code nvmlDeviceGetClockInfo(void* device, unsigned which, unsigned* out) {
  return answer(device, out, which == egt::nvml::clock_sm ? 1440u : 3201u);
}
Code nvmlDeviceGetCurrentClocksThrottleReasons(void* device, unsigned long long* out) {
  return answer(device, out, 0x4ull);
}
Code nvmlDeviceGetTotalEccErrors(void* device, unsigned type, unsigned counter, unsigned long long* out) {
  if (counter != egt::nvml::ecc_volatile) return invalid_argument;
  return answer(device, out, type == egt::nvml::ecc_corrected ? 3ull : 1ull);
}
Code nvmlDeviceGetRemappedRows(void* device, unsigned* corrected, unsigned* uncorrected, unsigned* pending,
                               unsigned* failed) {
  *corrected = 2;
  *uncorrected = 1;
  *pending = 1;
  return answer(device, failed, 0u);
}
Code nvmlDeviceGetPcieReplayCounter(void* device, unsigned* out) {
  return answer(device, out, 4u);
}
Code nvmlDeviceGetMaxPcieLinkGeneration(void* device, unsigned* out) {
  return answer(device, out, 5u);
}
Code nvmlDeviceGetCurrPcieLinkWidth(void* device, unsigned* out) {
  return answer(device, out, 16u);
}
Code nvmlDeviceGetNvLinkState(void* device, unsigned link, unsigned* out) {
  return link < 6 ? answer(device, out, link < 4 ? 1u : 0u) : invalid_argument;
}
Code nvmlDeviceGetNvLinkErrorCounter(void* device, unsigned link, unsigned counter, unsigned long long* out) {
  if (link >= 4) return not_supported;
  if (counter == egt::nvml::nvlink_recovery) return not_supported;
  return answer(device, out, counter == egt::nvml::nvlink_replay ? 10ull : link);
}

}  // extern "C"
