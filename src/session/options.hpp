#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace egt {

/// New corrected memory errors (ECC) of a device that are no finding: in the run, or in each hour of it.
struct CorrectedLimit {
  std::uint64_t errors = 0;
  bool per_hour = false;
  bool operator==(const CorrectedLimit&) const = default;
};

/// When the surroundings are no longer as they should be. Shares are of 1.
struct GuardOptions {
  double temperature_limit_c = 85;  ///< above it: a warning, then less load
  double memory_limit = 0.95;       ///< of the device's or the host's memory in use: less fill
  double throttle_limit = 0.05;     ///< of the run that heat, a brake or the hardware may hold clocks down
  std::optional<CorrectedLimit> corrected_limit;  ///< none: any number, unless its peers have far fewer
};

/// How the load of all devices steps between idle and full.
struct PulseShape {
  double hertz = 1;
  double duty = 0.5;  ///< share of the time that it is full
  /// Seconds of steady load before: what is enqueued for the first time makes a GPU load code, which waits
  /// for all that is held.
  double warm_up_seconds = 3;
};

/// How long peers are waited for, and what then.
struct WatchOptions {
  double collective_timeout_seconds = 30;
  int max_restarts = 1;
};

}  // namespace egt
