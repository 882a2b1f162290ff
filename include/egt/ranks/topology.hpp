#pragma once

#include <string>
#include <vector>

#include "egt/core/status.hpp"
#include "egt/ranks/control.hpp"

namespace egt {

/// Node of a rank, as MPI reports it.
struct RankHost {
  std::string hostname;
  int first_rank = 0;  ///< lowest rank that shares memory with it according to MPI
};

/// Returns RankPlace::host_id of `rank`: `nccl_hostid` (the environment's NCCL_HOSTID) if neither null nor
/// empty, else the hostname. A ':' and the first rank follow if MPI puts other ranks with that hostname on
/// another node (equal names, or network namespaces of one node). `hosts` has one entry per rank.
std::string host_id_of(const std::vector<RankHost>& hosts, int rank, const char* nccl_hostid);

/// Gathers the places of all ranks on every rank, in rank order. Collective.
Result<std::vector<RankPlace>> gather_places(Control& control);

}  // namespace egt
