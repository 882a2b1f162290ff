#include "egt/ranks/topology.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdlib>

#include <fmt/format.h>

namespace egt {

namespace {

/// Each field ends with a zero byte, which no name of a host contains.
std::string encode(const RankPlace& place) {
  std::string text;
  for (const std::string& field :
       {std::to_string(place.local_rank), std::to_string(place.local_size), place.hostname, place.host_id})
    text += field + '\0';
  return text;
}

/// Takes the next field off `text` at `at`.
std::string take_field(const std::string& text, std::size_t& at) {
  const std::size_t end = text.find('\0', at);
  std::string field = text.substr(at, end - at);
  at = end + 1;
  return field;
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
  EGT_TRY_ASSIGN(const auto texts, control.gather(encode(control.place())));
  std::string all;
  for (const std::string& text : texts) all += text;
  EGT_TRY_ASSIGN(all, control.broadcast(all));
  std::vector<RankPlace> places(static_cast<std::size_t>(control.place().size));
  std::size_t at = 0;
  for (std::size_t rank = 0; rank < places.size(); ++rank) {
    RankPlace& place = places[rank];
    place.rank = static_cast<int>(rank);
    place.size = control.place().size;
    place.local_rank = std::atoi(take_field(all, at).c_str());
    place.local_size = std::atoi(take_field(all, at).c_str());
    place.hostname = take_field(all, at);
    place.host_id = take_field(all, at);
  }
  return places;
}

}  // namespace egt
