#pragma once

#include <string>
#include <utility>
#include <vector>

#include "egt/core/status.hpp"
#include "ranks/heartbeat/heartbeat_link.hpp"

namespace egt {

/// How a rank can be reached.
struct Whereabouts {
  std::string hostname;
  int pid = 0;
  int port = 0;
  std::vector<std::string> addresses;
};

/// What all ranks know before they connect.
struct Directory {
  int self = 0;
  std::string token;
  std::vector<Whereabouts> ranks;

  const Whereabouts& own() const { return ranks[static_cast<std::size_t>(self)]; }
};

using HeartbeatLinks = std::vector<std::pair<int, HeartbeatLink>>;

/// Calls the lower ranks and takes the calls of the higher ones, all at the same time, until each has proved
/// that it knows the token. A rank is called at its addresses one after the other; the next one's turn comes
/// when those before failed or did not answer at once, and none is given up before one of them has led to the
/// rank: so an address that leads nowhere costs a moment, and one that leads to somebody else does no harm.
///
/// `links`: one to each other rank, in no order. Calls that are on `listener`, a listening socket, and come
/// from strangers are dropped.
Status meet_all(const Descriptor& listener, const Directory& directory, double timeout_seconds,
                HeartbeatLinks& links);

}  // namespace egt
