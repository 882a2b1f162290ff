#pragma once

#include <map>
#include <string>
#include <vector>

#include "egt/core/status.hpp"
#include "egt/device/sensor.hpp"

namespace egt {

/// One active NVLink of a GPU.
struct NvLink {
  enum class End { unknown, gpu, nvswitch };
  int generation = 0;  ///< 4: NVLink 4; 0: unknown
  End end = End::unknown;
  std::string remote_pci;  ///< of the GPU at its other end, as pci_id_text; empty: none, or unknown
};

/// Links of a GPU to the rest of its node.
struct DeviceLinks {
  PcieLink pcie;
  std::vector<NvLink> nvlinks;            ///< active ones
  std::map<std::string, bool> nvlink_to;  ///< other GPUs that were queried: reachable over NVLink
};

/// Normalizes a PCI bus id of any form and case to "00000000:18:00.0"; empty: it is not a bus id.
std::string pci_id_text(const std::string& id);

/// Reads the links of GPU `pci_id` from NVML. `others`: bus ids of GPUs of this node to be queried. Values
/// that NVML does not report stay empty. Loads the library in this call only. `unavailable`: no NVML or GPU.
Result<DeviceLinks> read_nvml_links(const std::string& pci_id, const std::vector<std::string>& others,
                                    const char* library = "libnvidia-ml.so.1");

}  // namespace egt
