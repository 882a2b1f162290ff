#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "device/nvml/nvml_library.hpp"
#include "device/nvml/nvml_xid.hpp"
#include "egt/device/device_links.hpp"

namespace egt {
namespace {

/// nvmlNvlinkVersion_t counts 1.0, 2.0, 2.2, 3.0, 3.1, 4.0, 5.0, 6.0 from 1; an H200 reports 6.
int generation_of(unsigned version) {
  constexpr int generations[] = {0, 1, 2, 2, 3, 3, 4, 5, 6};
  return version < std::size(generations) ? generations[version] : 0;
}

std::string pci_text(unsigned domain, unsigned bus, unsigned device) {
  return fmt::format("{:08x}:{:02x}:{:02x}.0", domain, bus, device);
}

class LinkReader {
 public:
  LinkReader(const nvml::Library& library, nvml::DeviceHandle device) : library_(library), device_(device) {}

  DeviceLinks read(const std::vector<std::string>& others) const {
    DeviceLinks links;
    links.pcie = {get<unsigned>(library_.pcie_generation), get<unsigned>(library_.pcie_width),
                  get<unsigned>(library_.pcie_max_generation), get<unsigned>(library_.pcie_max_width)};
    for (unsigned link = 0; link < nvml::max_links; ++link)
      if (get<unsigned>(library_.nvlink_state, link).value_or(0) != 0) links.nvlinks.push_back(nvlink(link));
    for (const std::string& other : others)
      if (const auto reached = reaches(other)) links.nvlink_to[pci_id_text(other)] = *reached;
    return links;
  }

 private:
  /// The output argument of an NVML function of the device; std::nullopt if the call fails.
  template <typename T, typename Function, typename... Arguments>
  std::optional<T> get(Function function, Arguments... arguments) const {
    T value{};
    if (function == nullptr || function(device_, arguments..., &value) != nvml::success) return std::nullopt;
    return value;
  }

  NvLink nvlink(unsigned link) const {
    NvLink one;
    one.generation = generation_of(get<unsigned>(library_.nvlink_version, link).value_or(0));
    const auto type = get<unsigned>(library_.nvlink_remote_type, link);
    if (type == nvml::remote_switch) one.end = NvLink::End::nvswitch;
    if (type != nvml::remote_gpu) return one;
    one.end = NvLink::End::gpu;
    if (const auto remote = get<nvml::PciInfo>(library_.nvlink_remote_pci, link))
      one.remote_pci = pci_text(remote->domain, remote->bus, remote->device);
    return one;
  }

  std::optional<bool> reaches(const std::string& other) const {
    nvml::DeviceHandle handle = nullptr;
    if (library_.handle_by_pci == nullptr || library_.handle_by_pci(other.c_str(), &handle) != nvml::success)
      return std::nullopt;
    const auto status = get<unsigned>(library_.p2p_status, handle, nvml::p2p_nvlink);
    return status ? std::optional(*status == nvml::p2p_ok) : std::nullopt;
  }

  const nvml::Library& library_;
  const nvml::DeviceHandle device_;
};

}  // namespace

std::string pci_id_text(const std::string& id) {
  const auto address = nvml::parse_pci_address(id);
  return address ? pci_text(address->domain, address->bus, address->device) : "";
}

Result<DeviceLinks> read_nvml_links(const std::string& pci_id, const std::vector<std::string>& others,
                                    const char* library) {
  EGT_TRY_ASSIGN(const auto nvml, nvml::Library::open(library));
  nvml::DeviceHandle device = nullptr;
  if (nvml->handle_by_pci == nullptr)
    return Status(StatusCode::unavailable, "NVML cannot look a GPU up: update the NVIDIA driver");
  if (const nvml::Code code = nvml->handle_by_pci(pci_id.c_str(), &device); code != nvml::success)
    return Status(StatusCode::unavailable,
                  fmt::format("NVML knows no GPU {}: {}", pci_id, nvml->error_text(code)), code);
  return LinkReader(*nvml, device).read(others);
}

}  // namespace egt
