#pragma once

#include <memory>

#include "egt/core/status.hpp"
#include "egt/ranks/control.hpp"
#include "egt/ranks/heartbeat.hpp"

namespace egt {

/// Heartbeats over TCP, one connection between any two ranks: so the survivors can still talk to each other
/// when rank 0 is the one that is lost, and each sees at once that another's process ended. With one rank
/// nothing is opened.
///
/// Collective. Every rank listens on a port that the system chooses, and tells the others the addresses of
/// all its interfaces; ranks of one host meet at 127.0.0.1, others at the first address that leads to the
/// rank. Who does not know the run's random token is dropped. `timeout_seconds` bounds the connecting;
/// `control` has deadlines of its own. Where one rank fails, all fail.
Result<std::unique_ptr<Heartbeat>> open_tcp_heartbeat(Control& control, double timeout_seconds);

}  // namespace egt
