#include "device/host/host_device.hpp"
#include "device/host/onednn/host_dnn.hpp"
#include "device_contract.hpp"
#include "dnn/dnn_contract.hpp"

namespace egt::contract {
namespace {

/// Memory is limited, so that a test exceeds the share before the machine's memory.
DeviceUnderTest host_with(const char* name, int cores) {
  return {name,
          [cores] {
            HostDeviceConfig config;
            config.cores = cores;
            config.memory_total_bytes = std::uint64_t{1} << 30;
            return open_host_device(config);
          },
          open_host_dnn};
}

std::string name_of(const testing::TestParamInfo<DeviceUnderTest>& info) {
  return info.param.name;
}

INSTANTIATE_TEST_SUITE_P(Host, DeviceContract,
                         testing::Values(host_with("one_core", 1), host_with("three_cores", 3)), name_of);
INSTANTIATE_TEST_SUITE_P(Host, DnnContract,
                         testing::Values(host_with("one_core", 1), host_with("three_cores", 3)), name_of);

}  // namespace
}  // namespace egt::contract
