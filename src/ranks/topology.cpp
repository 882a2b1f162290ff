#include "egt/ranks/topology.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdlib>

#include <fmt/format.h>

#include "egt/ranks/agreement.hpp"

namespace egt {

std::string host_id_of(const std::vector<RankHost>& hosts, int rank, const char* nccl_hostid) {
  if (nccl_hostid && *nccl_hostid) return nccl_hostid;
  const RankHost& own = hosts[static_cast<std::size_t>(rank)];
  const bool shared_name = std::any_of(hosts.begin(), hosts.end(), [&](const RankHost& host) {
    return host.hostname == own.hostname && host.first_rank != own.first_rank;
  });
  return shared_name ? fmt::format("{}:{}", own.hostname, own.first_rank) : own.hostname;
}

Result<std::vector<RankPlace>> gather_places(Control& control) {
  const RankPlace& own = control.place();
  EGT_TRY_ASSIGN(const auto local_ranks, all_gather(control, std::to_string(own.local_rank)));
  EGT_TRY_ASSIGN(const auto local_sizes, all_gather(control, std::to_string(own.local_size)));
  EGT_TRY_ASSIGN(const auto hostnames, all_gather(control, own.hostname));
  EGT_TRY_ASSIGN(const auto host_ids, all_gather(control, own.host_id));
  std::vector<RankPlace> places;
  for (std::size_t rank = 0; rank < hostnames.size(); ++rank)
    places.push_back({.rank = static_cast<int>(rank),
                      .size = own.size,
                      .local_rank = std::atoi(local_ranks[rank].c_str()),
                      .local_size = std::atoi(local_sizes[rank].c_str()),
                      .hostname = hostnames[rank],
                      .host_id = host_ids[rank]});
  return places;
}

}  // namespace egt
