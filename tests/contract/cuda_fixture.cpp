#include "device_contract.hpp"
#include "egt/device/cuda/cuda_device.hpp"

namespace egt::contract {
namespace {

std::string why_no_device() {
  return cuda_device_count() > 0 ? "" : "no CUDA device answers on this machine";
}

std::string name_of(const testing::TestParamInfo<DeviceUnderTest>& info) {
  return info.param.name;
}

INSTANTIATE_TEST_SUITE_P(Cuda, DeviceContract,
                         testing::Values(DeviceUnderTest{"device_0", [] { return open_cuda_device(0); },
                                                         why_no_device}),
                         name_of);

}  // namespace
}  // namespace egt::contract
