#pragma once

#include <string>
#include <vector>

#include "egt/core/status.hpp"
#include "egt/ranks/control.hpp"
#include "ranks/heartbeat/heartbeat_link.hpp"

namespace egt {

/// A connection to a rank that proved that it knows the run's token.
struct HeartbeatConnection {
  int rank = 0;
  int pid = 0;
  std::string hostname;
  HeartbeatLink link;
};

/// Connects every pair of ranks as described at `open_tcp_heartbeat`, and returns the connections in rank
/// order. `own`: whether this rank has all other resources. If any rank lacks one, no rank connects.
Result<std::vector<HeartbeatConnection>> open_heartbeat_connections(Control& control, const Status& own,
                                                                    double timeout_seconds);

}  // namespace egt
