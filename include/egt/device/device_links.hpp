#pragma once

#include <map>
#include <string>
#include <vector>

#include "egt/core/status.hpp"
#include "egt/device/sensor.hpp"

namespace egt {

/// One NVLink of a GPU that is up.
struct NvLink {
  enum class End { unknown, gpu, nvswitch };
  int generation = 0;  ///< 4: NVLink 4; 0: not told
  End end = End::unknown;
  std::string remote_pci;  ///< of the GPU at its other end, as pci_id_text; empty: none, or not told
};

/// How a GPU is joined to the rest of its node.
struct DeviceLinks {
  PcieLink pcie;
  std::vector<NvLink> nvlinks;            ///< those that are up
  std::map<std::string, bool> nvlink_to;  ///< other GPUs that were asked for: are they reached over NVLink?
};

/// A PCI bus id in one form, "00000000:18:00.0", whatever the form (and case) of the text; empty: it is none.
std::string pci_id_text(const std::string& id);

/// As NVML tells it of the GPU `pci_id`; `others`: bus ids of GPUs of this node to be asked about. What NVML
/// does not tell is left empty. The library is loaded in this call only. `unavailable`: no NVML, no such GPU.
Result<DeviceLinks> read_nvml_links(const std::string& pci_id, const std::vector<std::string>& others,
                                    const char* library = "libnvidia-ml.so.1");

}  // namespace egt
