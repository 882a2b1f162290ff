#include "workload/links/link_endpoint.hpp"

#include <algorithm>
#include <iterator>

#include "egt/core/json_access.hpp"

namespace egt {
namespace {

Json to_json(const NvLink& link) {
  return {{"generation", link.generation}, {"end", static_cast<int>(link.end)}, {"remote", link.remote_pci}};
}

NvLink nvlink_from(const Json& json) {
  NvLink link;
  link.generation = value_at<int>(json, "generation").value_or(0);
  const int end = value_at<int>(json, "end").value_or(0);
  if (end == static_cast<int>(NvLink::End::gpu)) link.end = NvLink::End::gpu;
  if (end == static_cast<int>(NvLink::End::nvswitch)) link.end = NvLink::End::nvswitch;
  link.remote_pci = text_at(json, "remote");
  return link;
}

}  // namespace

std::string host_name(const LinkEndpoint& end, const std::vector<LinkEndpoint>& all) {
  const bool is_shared = std::any_of(all.begin(), all.end(), [&](const LinkEndpoint& other) {
    return other.hostname == end.hostname && other.host_id != end.host_id;
  });
  return is_shared ? end.host_id : end.hostname;
}

bool shares_cores(const LinkEndpoint& end, const std::vector<LinkEndpoint>& all) {
  if (end.is_gpu || end.cpus.empty()) return false;
  const auto runs_there = [&](const LinkEndpoint& other) {
    return !other.is_gpu && other.machine == end.machine &&
           std::includes(end.cpus.begin(), end.cpus.end(), other.cpus.begin(), other.cpus.end());
  };
  return std::count_if(all.begin(), all.end(), runs_there) > std::ssize(end.cpus);
}

Json to_json(const LinkEndpoint& end) {
  Json nvlinks = Json::array(), ports = Json::array();
  for (const NvLink& link : end.links.nvlinks) nvlinks.push_back(to_json(link));
  for (const NetworkPort& port : end.ports)
    ports.push_back(
        {{"name", port.name}, {"bits_per_second", port.bits_per_second}, {"infiniband", port.infiniband}});
  const PcieLink& pcie = end.links.pcie;
  return {{"rank", end.rank},
          {"hostname", end.hostname},
          {"host_id", end.host_id},
          {"machine", end.machine},
          {"is_gpu", end.is_gpu},
          {"device_name", end.device_name},
          {"pci_id", end.pci_id},
          {"numa_node", end.numa_node < 0 ? Json() : Json(end.numa_node)},
          {"cpus", end.cpus},
          {"pcie_generation", or_null(pcie.generation)},
          {"pcie_width", or_null(pcie.width)},
          {"pcie_max_generation", or_null(pcie.max_generation)},
          {"pcie_max_width", or_null(pcie.max_width)},
          {"nvlinks", nvlinks},
          {"nvlink_to", end.links.nvlink_to},
          {"untold", end.untold},
          {"network_ports", ports}};
}

LinkEndpoint link_end_from(const Json& json) {
  LinkEndpoint end;
  end.rank = value_at<int>(json, "rank").value_or(-1);
  end.hostname = text_at(json, "hostname");
  end.host_id = text_at(json, "host_id");
  end.machine = text_at(json, "machine");
  end.is_gpu = value_at<bool>(json, "is_gpu").value_or(false);
  end.device_name = text_at(json, "device_name");
  end.pci_id = text_at(json, "pci_id");
  end.numa_node = value_at<int>(json, "numa_node").value_or(-1);
  for (const Json& cpu : member(json, "cpus"))
    if (cpu.is_number_integer()) end.cpus.push_back(cpu.get<int>());
  end.links.pcie = {value_at<unsigned>(json, "pcie_generation"), value_at<unsigned>(json, "pcie_width"),
                    value_at<unsigned>(json, "pcie_max_generation"),
                    value_at<unsigned>(json, "pcie_max_width")};
  for (const Json& link : member(json, "nvlinks")) end.links.nvlinks.push_back(nvlink_from(link));
  for (const auto& [pci, reached] : member(json, "nvlink_to").items())
    if (reached.is_boolean()) end.links.nvlink_to[pci] = reached.get<bool>();
  end.untold = text_at(json, "untold");
  for (const Json& port : member(json, "network_ports"))
    end.ports.push_back({.name = text_at(port, "name"),
                         .bits_per_second = value_at<double>(port, "bits_per_second").value_or(0),
                         .infiniband = value_at<bool>(port, "infiniband").value_or(false)});
  return end;
}

}  // namespace egt
