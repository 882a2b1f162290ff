#pragma once

#include <functional>
#include <stop_token>

#include "egt/core/clock.hpp"
#include "egt/core/status.hpp"

namespace egt {

/// What bounds a wait: nothing waits for ever.
struct WaitLimits {
  double seconds;             ///< the deadline, from now
  std::stop_token stop = {};  ///< ends the wait with StatusCode::stopped
  const char* what = "";      ///< what is waited for, for the message: "the all-reduce of step 7"
};

/// Polls `done` (true: done; an error ends the wait) until it is true, the deadline passes (timeout) or a
/// stop is asked for (stopped). Spins for some microseconds, then sleeps longer and longer, up to 1 ms, or in
/// a wait of more than 16 ms a sixteenth of it, up to 4 ms: a core shared with the work is not taken from it.
Status wait_until(const std::function<Result<bool>()>& done, const WaitLimits& limits);

}  // namespace egt
