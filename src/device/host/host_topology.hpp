#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "egt/core/status.hpp"

namespace egt {

/// One rank's equal share of its node.
struct HostShare {
  int cores = 1;
  int node_cores = 1;  ///< of the node or container
  std::uint64_t memory_bytes = 0;
  std::uint64_t available_bytes = 0;  ///< share of the memory available when the share was determined
  int numa_node = -1;                 ///< -1: the rank may run on several
  std::string cpu_model;
};

/// Computes the share of one of `local_size` ranks of this node. Cores: those that the process may run on
/// (mpirun may have bound it), limited to an equal share of the node or container, at least 1. Memory: an
/// equal share of `node_memory`, less the process's own need if a cgroup limit applies. `root`: the directory
/// that contains `proc` and `sys`.
Result<HostShare> find_host_share(int local_size, const std::filesystem::path& root = "/");

}  // namespace egt
