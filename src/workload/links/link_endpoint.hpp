#pragma once

#include <optional>
#include <string>
#include <vector>

#include "device/system/network_ports.hpp"
#include "egt/core/record.hpp"
#include "egt/device/device_links.hpp"

namespace egt {

/// Known properties of one rank's end of its links.
struct LinkEndpoint {
  int rank = 0;
  std::string hostname;
  std::string host_id;  ///< equal for ranks that share a node's data paths; see RankPlace
  std::string machine;  ///< boot ID: equal for containers on one node; empty: unknown
  bool is_gpu = false;
  std::string device_name;
  std::string pci_id;     ///< as pci_id_text; empty: none
  int numa_node = -1;     ///< next to its device; -1: unknown or several
  std::vector<int> cpus;  ///< CPUs on which the rank may run; empty: unknown
  DeviceLinks links;
  std::string untold;  ///< why `links` is empty; else empty
  std::vector<NetworkPort> ports;
};

/// The hostname for display, or the host id if another node has the same hostname.
std::string host_name(const LinkEndpoint& end, const std::vector<LinkEndpoint>& all);

/// For the host backend: whether more ranks run on this rank's cores than there are cores. If so, a transfer
/// waits for a core, and its time does not measure a link.
bool shares_cores(const LinkEndpoint& end, const std::vector<LinkEndpoint>& all);

Json to_json(const LinkEndpoint& end);
/// Inverse of to_json; missing fields stay empty.
LinkEndpoint link_end_from(const Json& json);

}  // namespace egt
