#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "egt/core/status.hpp"

namespace egt {

/// What of its node one rank may use: an equal share.
struct HostShare {
  int cores = 1;
  std::uint64_t memory_bytes = 0;
  std::uint64_t available_bytes = 0;  ///< an equal part of what was available when the share was determined
  int numa_node = -1;                 ///< -1: the rank may run on several
  std::string cpu_model;
};

/// The share of one of `local_size` ranks of this node. Cores: those that the process may run on (mpirun may
/// have bound it), at most an equal part of all that the node or its container gives, at least 1. Memory: an
/// equal part of `node_memory`; below a control group's limit, less what the process itself needs. `root`:
/// the folder that holds `proc` and `sys`.
Result<HostShare> find_host_share(int local_size, const std::filesystem::path& root = "/");

}  // namespace egt
