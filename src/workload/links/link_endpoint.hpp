#pragma once

#include <optional>
#include <string>
#include <vector>

#include "device/system/network_ports.hpp"
#include "egt/core/record.hpp"
#include "egt/device/device_links.hpp"

namespace egt {

/// What is known of one rank's end of its links.
struct LinkEndpoint {
  int rank = 0;
  std::string hostname;
  std::string host_id;  ///< ranks with the same one share a host's data paths; see RankPlace
  std::string machine;  ///< its boot; the same for what only looks like several hosts; empty: not known
  bool is_gpu = false;
  std::string device_name;
  std::string pci_id;     ///< as pci_id_text; empty: none
  int numa_node = -1;     ///< near its device; -1: not known, or several
  std::vector<int> cpus;  ///< that the rank may run on; empty: unknown
  DeviceLinks links;
  std::string untold;  ///< why `links` is empty; else empty
  std::vector<NetworkPort> ports;
};

/// For people: the hostname, or where another host has the same one the id.
std::string host_name(const LinkEndpoint& end, const std::vector<LinkEndpoint>& all);

/// On the host backend: do more ranks of its machine run on its cores than it has? Then a transfer waits for
/// a core, and its time does not measure a link.
bool shares_cores(const LinkEndpoint& end, const std::vector<LinkEndpoint>& all);

Json to_json(const LinkEndpoint& end);
/// The reverse; what is missing is left empty.
LinkEndpoint link_end_from(const Json& json);

}  // namespace egt
