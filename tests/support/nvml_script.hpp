#pragma once

#include <dlfcn.h>

#include <memory>
#include <string>

#include "device/nvml/nvml_sensor.hpp"

namespace egt {

/// A healthy GPU under load with 18 NVLinks; an appended line overrides its values.
inline const std::string healthy_gpu = R"(
utilization 97
temperature 61
memory_temperature 74
power_w 695.5
power_average_w 600
power_limit_w 700
energy_j 5000.5
sm_clock 1440
memory_clock 3201
memory_used 70
memory_total 100
slowdown 87
shutdown 92
reasons 4
ecc_corrected 3
ecc_uncorrected 0
remapped_corrected 0
remapped_uncorrected 0
remap_pending 0
remap_failure 0
pcie_replay 4
pcie_generation 5
pcie_width 16
pcie_max_generation 5
pcie_max_width 16
time.power_cap 120.5
time.sw_thermal 2
time.hw_thermal 0
time.power_brake 0
links 18
nvlink.up 1
nvlink.crc 0
nvlink.replay 0
nvlink.recovery 0
events 1
)";

/// The fake NVML with a script and a clock set by the test; `open` passes it to the sensor.
class NvmlScript {
 public:
  explicit NvmlScript(const std::string& text) : library_(dlopen(EGT_FAKE_NVML, RTLD_NOW | RTLD_LOCAL)) {
    load(text);
    at(0);
  }
  ~NvmlScript() { dlclose(library_); }
  NvmlScript(const NvmlScript&) = delete;
  NvmlScript& operator=(const NvmlScript&) = delete;

  void load(const std::string& text) { find<void(const char*)>("fake_nvml_load")(text.c_str()); }
  void at(double seconds) { find<void(double)>("fake_nvml_set_time")(seconds); }

  static Result<std::unique_ptr<Sensor>> open(const std::string& device = "00000000:18:00.0",
                                              const std::string& kernel_log = "/no kernel log") {
    return open_nvml_sensor(device, EGT_FAKE_NVML, kernel_log);
  }

 private:
  template <typename F>
  F* find(const char* name) {
    return reinterpret_cast<F*>(dlsym(library_, name));
  }
  void* library_;
};

}  // namespace egt
