#include "device/cuda/cuda_device_info.hpp"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <cstddef>
#include <fstream>
#include <string>
#include <utility>

#include "device/cuda/cuda_device.hpp"
#include "device/cuda/cuda_native.hpp"
#include "kernels/launch.hpp"

namespace egt {
namespace {

/// Example: "GPU-5fd4f087-86f3-7a43-b711-4771313afc50", the format of nvidia-smi.
std::string uuid_text(const cudaUUID_t& uuid) {
  std::string text = "GPU";
  for (int i = 0; i < 16; ++i) {
    if (i == 0 || i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += fmt::format("{:02x}", static_cast<unsigned char>(uuid.bytes[i]));
  }
  return text;
}

/// The NUMA node of the PCI device according to the kernel; -1: none or unknown.
int numa_node_of(const cudaDeviceProp& properties) {
  std::ifstream file(fmt::format("/sys/bus/pci/devices/{:04x}:{:02x}:{:02x}.0/numa_node",
                                 properties.pciDomainID, properties.pciBusID, properties.pciDeviceID));
  int node = -1;
  return file >> node ? node : -1;
}

DeviceInfo info_of(int index, const cudaDeviceProp& properties) {
  DeviceInfo info;
  info.backend = "cuda";
  info.index = index;
  info.name = properties.name;
  info.uuid = uuid_text(properties.uuid);
  info.pci_bus_id = fmt::format("{:08X}:{:02X}:{:02X}.0", properties.pciDomainID, properties.pciBusID,
                                properties.pciDeviceID);
  info.compute_capability = fmt::format("{}.{}", properties.major, properties.minor);
  info.multiprocessors = properties.multiProcessorCount;
  info.numa_node = numa_node_of(properties);
  info.libraries = fmt::format("CUDA {}, cuBLAS {}", cuda_runtime_version(), cublas_version());
  return info;
}

}  // namespace

Result<CudaDeviceInfo> inspect_cuda_device(int index) {
  EGT_TRY_ASSIGN(const int count, cuda_device_count());
  if (count == 0) return Status(StatusCode::unavailable, cuda_unavailable_reason());
  if (index < 0 || index >= count)
    return Status(StatusCode::unavailable, fmt::format("there is no GPU {}: CUDA sees {}", index, count));
  EGT_TRY(select_cuda_device(index));
  cudaDeviceProp properties{};
  EGT_TRY(cuda_status(cudaGetDeviceProperties(&properties, index), "ask what the GPU is"));
  std::size_t free = 0, total = 0;
  EGT_TRY(cuda_status(cudaMemGetInfo(&free, &total), "ask for free memory"));
  DeviceInfo info = info_of(index, properties);
  info.memory_total_bytes = total;
  if (!cuda_status(static_cast<cudaError_t>(kernels::probe()), "load a kernel").ok())
    return Status(
        StatusCode::unavailable,
        fmt::format("this program was built without code for GPU {} ({}, compute capability {}); build "
                    "it with -DEGT_CUDA_ARCHITECTURES={}{}",
                    index, info.name, info.compute_capability, properties.major, properties.minor));
  return CudaDeviceInfo{.info = std::move(info), .capability = 10 * properties.major + properties.minor};
}

Support supported_by(const CudaDeviceInfo& device, Precision precision) {
  const int least = precision == Precision::fp8                                    ? 89
                    : precision == Precision::int8                                 ? 75
                    : precision == Precision::bf16 || precision == Precision::tf32 ? 80
                                                                                   : 0;
  if (device.capability >= least) return {};
  return {fmt::format("{} needs compute capability {}.{}, and this GPU has {}", to_string(precision),
                      least / 10, least % 10, device.info.compute_capability)};
}

}  // namespace egt
