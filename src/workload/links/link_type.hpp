#pragma once

#include <optional>
#include <string>

#include "egt/core/record.hpp"
#include "workload/links/link_endpoint.hpp"

/// Classifies the link between two devices from the properties of both ends, with its line rate.
namespace egt {

enum class LinkKind {
  memory,   ///< two ranks of the host backend on one node
  nvlink,   ///< direct or through NVSwitches
  pcie,     ///< through PCIe switches or the host
  network,  ///< between nodes
  unknown,  ///< two GPUs of one node without data from NVML
};
const char* to_string(LinkKind kind);

struct LinkType {
  LinkKind kind = LinkKind::unknown;
  int generation = 0;                                     ///< of NVLink or PCIe; 0: none or unknown
  int width = 0;                                          ///< NVLinks, or PCIe lanes; 0: none or unknown
  std::optional<double> line_rate_bytes_per_second = {};  ///< per direction; none: unknown
  std::string text = {};  ///< "NVLink 4 x18 through NVSwitch", "PCIe 5 x16", "network, 25 Gb/s"
};

/// Bytes per second and direction of one NVLink; std::nullopt for an unknown generation.
std::optional<double> nvlink_rate(int generation);
/// Bytes per second and direction of PCIe lanes, net of encoding; std::nullopt for an unknown generation.
std::optional<double> pcie_rate(int generation, int width);

/// Classifies the link between two ranks' devices. A network's line rate is known between two nodes if all
/// usable ports of an end have one speed. If an end has InfiniBand ports, only those count.
LinkType classify(const LinkEndpoint& a, const LinkEndpoint& b);
/// The link between a rank's device and its host.
LinkType classify_to_host(const LinkEndpoint& end);

/// {"kind","generation","width","text","line_rate_gb_per_second"}; null: unknown.
Json to_json(const LinkType& type);

}  // namespace egt
