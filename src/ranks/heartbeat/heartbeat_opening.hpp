#pragma once

#include <string>
#include <vector>

#include "egt/core/status.hpp"
#include "egt/ranks/control.hpp"
#include "ranks/heartbeat/heartbeat_link.hpp"

namespace egt {

/// A connection to another rank, which proved that it knows the run's token.
struct HeartbeatConnection {
  int rank = 0;
  int pid = 0;
  std::string hostname;
  HeartbeatLink link;
};

/// Connects every rank with every other one, as `open_tcp_heartbeat` tells. In rank order. `own`: whether
/// this rank has all else that it needs; where one has not, none opens.
Result<std::vector<HeartbeatConnection>> open_heartbeat_connections(Control& control, const Status& own,
                                                                    double timeout_seconds);

}  // namespace egt
