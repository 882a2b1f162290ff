#pragma once

#include <optional>
#include <string>

#include "egt/core/record.hpp"
#include "workload/links/link_endpoint.hpp"

/// What joins two devices, from what is known of both ends; and what such a link carries at best.
namespace egt {

enum class LinkKind {
  memory,   ///< two ranks of the host backend on one host
  nvlink,   ///< directly or through NVSwitches
  pcie,     ///< through PCIe switches, or the host
  network,  ///< between hosts
  unknown,  ///< two GPUs of one host of which NVML tells nothing
};
const char* to_string(LinkKind kind);

struct LinkType {
  LinkKind kind = LinkKind::unknown;
  int generation = 0;                                     ///< of NVLink or PCIe; 0: none, or not told
  int width = 0;                                          ///< NVLinks, or PCIe lanes; 0: none, or not told
  std::optional<double> line_rate_bytes_per_second = {};  ///< one way; none: not known
  std::string text = {};  ///< "NVLink 4 x18 through NVSwitch", "PCIe 5 x16", "network, 25 Gb/s"
};

/// Bytes a second and direction of one NVLink; nothing for a generation that is not known.
std::optional<double> nvlink_rate(int generation);
/// Bytes a second and direction of PCIe lanes, after their encoding; likewise.
std::optional<double> pcie_rate(int generation, int width);

/// Between the devices of two ranks. A network's line rate is known where all ports of an end that may carry
/// it (those of InfiniBand, if there are any) have the same speed, and the ends are on two machines.
LinkType classify(const LinkEndpoint& a, const LinkEndpoint& b);
/// Between a rank's device and its host.
LinkType classify_to_host(const LinkEndpoint& end);

/// {"kind","generation","width","text","line_rate_gb_per_second"}; null: not known.
Json to_json(const LinkType& type);

}  // namespace egt
