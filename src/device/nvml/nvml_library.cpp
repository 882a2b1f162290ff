#include "device/nvml/nvml_library.hpp"

#include <dlfcn.h>

#include <fmt/format.h>

namespace egt::nvml {

Result<std::unique_ptr<Library>> Library::open(const char* file) {
  void* handle = dlopen(file, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr)
    return Status(StatusCode::unavailable, fmt::format("no NVML ({}): install the NVIDIA driver", dlerror()));
  std::unique_ptr<Library> library(new Library(handle));
  Function<> init = nullptr;
  library->find(init, "nvmlInit_v2");
  if (init == nullptr) return Status(StatusCode::unavailable, fmt::format("{} has no nvmlInit_v2", file));
  library->find_functions();
  if (const Code code = init(); code != success)
    return Status(StatusCode::unavailable, fmt::format("NVML does not start: {}", library->error_text(code)),
                  code);
  library->initialized_ = true;
  return library;
}

Library::~Library() {
  Function<> shutdown = nullptr;
  find(shutdown, "nvmlShutdown");
  if (initialized_ && shutdown != nullptr) shutdown();
  dlclose(handle_);
}

template <typename F>
void Library::find(F& function, const char* name) {
  if (function == nullptr) function = reinterpret_cast<F>(dlsym(handle_, name));
}

void Library::find_functions() {
  find(error_string_, "nvmlErrorString");
  find(handle_by_pci, "nvmlDeviceGetHandleByPciBusId_v2");
  find(handle_by_uuid, "nvmlDeviceGetHandleByUUID");
  find(driver_version, "nvmlSystemGetDriverVersion");
  find(utilization, "nvmlDeviceGetUtilizationRates");
  find(memory, "nvmlDeviceGetMemoryInfo");
  find(temperature, "nvmlDeviceGetTemperature");
  find(temperature_threshold, "nvmlDeviceGetTemperatureThreshold");
  find(field_values, "nvmlDeviceGetFieldValues");
  find(power, "nvmlDeviceGetPowerUsage");
  find(power_limit, "nvmlDeviceGetEnforcedPowerLimit");
  find(energy, "nvmlDeviceGetTotalEnergyConsumption");
  find(clock, "nvmlDeviceGetClockInfo");
  find(fan, "nvmlDeviceGetFanSpeed");
  find(event_reasons, "nvmlDeviceGetCurrentClocksEventReasons");
  find(event_reasons, "nvmlDeviceGetCurrentClocksThrottleReasons");  // its name before driver 535
  find(ecc_errors, "nvmlDeviceGetTotalEccErrors");
  find(remapped_rows, "nvmlDeviceGetRemappedRows");
  find(pcie_replay, "nvmlDeviceGetPcieReplayCounter");
  find(pcie_generation, "nvmlDeviceGetCurrPcieLinkGeneration");
  find(pcie_width, "nvmlDeviceGetCurrPcieLinkWidth");
  find(pcie_max_generation, "nvmlDeviceGetMaxPcieLinkGeneration");
  find(pcie_max_width, "nvmlDeviceGetMaxPcieLinkWidth");
  find(pci_info, "nvmlDeviceGetPciInfo_v3");
  find(nvlink_state, "nvmlDeviceGetNvLinkState");
  find(nvlink_errors, "nvmlDeviceGetNvLinkErrorCounter");
  find(nvlink_version, "nvmlDeviceGetNvLinkVersion");
  find(nvlink_remote_type, "nvmlDeviceGetNvLinkRemoteDeviceType");
  find(nvlink_remote_pci, "nvmlDeviceGetNvLinkRemotePciInfo_v2");
  find(p2p_status, "nvmlDeviceGetP2PStatus");
  find(event_set_create, "nvmlEventSetCreate");
  find(event_set_free, "nvmlEventSetFree");
  find(register_events, "nvmlDeviceRegisterEvents");
  find(event_set_wait, "nvmlEventSetWait_v2");
}

std::string Library::error_text(Code code) const {
  return error_string_ != nullptr ? error_string_(code) : fmt::format("NVML error {}", code);
}

}  // namespace egt::nvml
