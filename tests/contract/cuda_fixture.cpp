#include "device/cuda/cuda_device.hpp"
#include "device/cuda/cuda_dnn.hpp"
#include "device_contract.hpp"
#include "dnn/dnn_contract.hpp"

namespace egt::contract {
namespace {

std::string name_of(const testing::TestParamInfo<DeviceUnderTest>& info) {
  return info.param.name;
}

const DeviceUnderTest device_0{"device_0", [] { return open_cuda_device(0); }, open_cuda_dnn};

INSTANTIATE_TEST_SUITE_P(Cuda, DeviceContract, testing::Values(device_0), name_of);
INSTANTIATE_TEST_SUITE_P(Cuda, DnnContract, testing::Values(device_0), name_of);

}  // namespace
}  // namespace egt::contract
