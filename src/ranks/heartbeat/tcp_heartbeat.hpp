#pragma once

#include <memory>

#include "egt/core/status.hpp"
#include "egt/ranks/control.hpp"
#include "egt/ranks/heartbeat.hpp"

namespace egt {

/// Heartbeats over TCP, with one connection per pair of ranks. The remaining ranks can still communicate if
/// rank 0 is lost, and each detects at once that another's process ended. A single rank opens nothing.
///
/// Collective. Every rank listens on a port that the system chooses, and sends the others the addresses of
/// all its interfaces. Ranks on one node connect over 127.0.0.1, others over the first address that reaches
/// the rank. Peers without the run's random token are dropped. `timeout_seconds` bounds the connecting;
/// `control` has its own deadlines. If one rank fails, all fail.
Result<std::unique_ptr<Heartbeat>> open_tcp_heartbeat(Control& control, double timeout_seconds);

}  // namespace egt
