#include "device/cuda/cuda_device.hpp"
#include "device_contract.hpp"

namespace egt::contract {
namespace {

std::string name_of(const testing::TestParamInfo<DeviceUnderTest>& info) {
  return info.param.name;
}

INSTANTIATE_TEST_SUITE_P(Cuda, DeviceContract,
                         testing::Values(DeviceUnderTest{"device_0", [] { return open_cuda_device(0); }}),
                         name_of);

}  // namespace
}  // namespace egt::contract
