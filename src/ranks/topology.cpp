#include "egt/ranks/topology.hpp"

#include <algorithm>
#include <cstddef>
#include <sstream>

#include <fmt/format.h>

#include "egt/ranks/agreement.hpp"

namespace egt {

namespace {

/// Behind the numbers each name ends with a zero byte, which no name of a host contains.
std::string encode(const RankPlace& place) {
  return fmt::format("{} {} ", place.local_rank, place.local_size) + place.hostname + '\0' + place.host_id +
         '\0';
}

}  // namespace

std::string host_id_of(const std::vector<RankHost>& hosts, int rank, const char* nccl_hostid) {
  if (nccl_hostid && *nccl_hostid) return nccl_hostid;
  const RankHost& own = hosts[static_cast<std::size_t>(rank)];
  const bool shared_name = std::any_of(hosts.begin(), hosts.end(), [&](const RankHost& host) {
    return host.hostname == own.hostname && host.first_rank != own.first_rank;
  });
  return shared_name ? fmt::format("{}:{}", own.hostname, own.first_rank) : own.hostname;
}

Result<std::vector<RankPlace>> gather_places(Control& control) {
  EGT_TRY_ASSIGN(const auto texts, gather_for_all(control, encode(control.place())));
  std::vector<RankPlace> places;
  for (const std::string& text : texts) {
    RankPlace& place = places.emplace_back();
    place.rank = static_cast<int>(places.size()) - 1;
    place.size = control.place().size;
    std::istringstream fields(text);
    fields >> place.local_rank >> place.local_size;
    fields.get();
    std::getline(fields, place.hostname, '\0');
    std::getline(fields, place.host_id, '\0');
  }
  return places;
}

}  // namespace egt
