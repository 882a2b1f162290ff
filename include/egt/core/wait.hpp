#pragma once

#include <functional>
#include <stop_token>

#include "egt/core/clock.hpp"
#include "egt/core/status.hpp"

namespace egt {

/// Limits of a wait: no wait is unbounded.
struct WaitLimits {
  double seconds;             ///< deadline, in seconds from now
  std::stop_token stop = {};  ///< ends the wait with StatusCode::stopped
  const char* what = "";      ///< subject of the wait, for the message: "the all-reduce of step 7"
};

/// Polls `done` until it returns true or an error, the deadline passes (timeout), or a stop is requested
/// (stopped). Spins for some microseconds, then sleeps with growing intervals up to 1 ms. Waits of more than
/// 16 ms sleep for a sixteenth of the elapsed time, up to 4 ms, to leave a shared core to the work.
Status wait_until(const std::function<Result<bool>()>& done, const WaitLimits& limits);

}  // namespace egt
