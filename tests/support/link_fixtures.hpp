#pragma once

#include <string>
#include <vector>

#include "workload/links/link_endpoint.hpp"

/// Link endpoints as reported on machines that are not available here.
namespace egt::fixtures {

inline std::string pci_of(int rank) {
  return "00000000:" + std::to_string(10 + rank) + ":00.0";
}

inline LinkEndpoint host_end(int rank, const std::string& host = "node1") {
  LinkEndpoint end;
  end.rank = rank;
  end.hostname = end.host_id = host;
  end.machine = "boot of " + host;
  end.device_name = "AMD EPYC";
  return end;
}

/// A GPU in a PCIe 5 slot.
inline LinkEndpoint gpu_end(int rank, const std::string& host = "node1") {
  LinkEndpoint end = host_end(rank, host);
  end.is_gpu = true;
  end.device_name = "NVIDIA H200";
  end.pci_id = pci_of(rank);
  end.links.pcie = {.generation = 1, .width = 16, .max_generation = 5, .max_width = 16};
  return end;
}

/// An H200: 18 NVLinks of generation 4 to switches.
inline LinkEndpoint h200_end(int rank, const std::string& host = "node1") {
  LinkEndpoint end = gpu_end(rank, host);
  end.links.nvlinks.assign(18, {.generation = 4, .end = NvLink::End::nvswitch, .remote_pci = ""});
  return end;
}

inline std::vector<LinkEndpoint> h200_node(int ranks) {
  std::vector<LinkEndpoint> ends;
  for (int rank = 0; rank < ranks; ++rank) ends.push_back(h200_end(rank));
  return ends;
}

}  // namespace egt::fixtures
