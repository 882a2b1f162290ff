#pragma once

#include <string>
#include <vector>

#include "egt/core/status.hpp"
#include "egt/ranks/control.hpp"

namespace egt {

/// Where MPI sees a rank.
struct RankHost {
  std::string hostname;
  int first_rank = 0;  ///< the lowest of the ranks that MPI lets share memory with it
};

/// RankPlace::host_id of `rank`: `nccl_hostid`, the environment's NCCL_HOSTID, where it is neither null nor
/// empty; else the hostname, and behind a ':' its first rank where other ranks with that hostname are on
/// another host for MPI (machines of one name, network namespaces of one machine). `hosts`: of all ranks.
std::string host_id_of(const std::vector<RankHost>& hosts, int rank, const char* nccl_hostid);

/// Every rank gets the places of all, in rank order. Collective.
Result<std::vector<RankPlace>> gather_places(Control& control);

}  // namespace egt
