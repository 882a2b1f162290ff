#pragma once

#include <cstdint>
#include <string>

#include "egt/core/status.hpp"

namespace egt {

/// What of its node one rank may use: an equal share.
struct HostShare {
  int cores = 1;
  std::uint64_t memory_bytes = 0;
  int numa_node = -1;  ///< -1: the rank may run on several
  std::string cpu_model;
};

/// The share of one of `local_size` ranks of this node. Cores: those that the process may run on (mpirun may
/// have bound it), at most an equal part of all that the node or its container gives, at least 1. Memory: an
/// equal part of the installed memory or of the container's limit.
Result<HostShare> find_host_share(int local_size);

/// Bytes that the node (or the container's limit) still has for new pages; shared by all processes.
Result<std::uint64_t> available_host_memory();

}  // namespace egt
