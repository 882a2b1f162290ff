#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace egt {

/// Accepted number of new corrected memory errors (ECC) of a device, in the run or in each hour of it.
struct CorrectedLimit {
  std::uint64_t errors = 0;
  bool per_hour = false;
  bool operator==(const CorrectedLimit&) const = default;
};

/// Limits above which the limiter warns, reduces load or reports a finding. Shares are fractions of 1.
struct GuardOptions {
  double temperature_limit_c = 85;  ///< in degrees Celsius; above it, the limiter warns and reduces load
  double memory_limit = 0.95;       ///< share of memory in use, on device or host; above it, less is filled
  double throttle_limit = 0.05;     ///< max share of the run with throttled clocks (heat, brake, hardware)
  std::optional<CorrectedLimit> corrected_limit;  ///< unset: any number, unless peers have far fewer
};

/// Square wave of the load on all devices, between idle and full load.
struct PulseShape {
  double hertz = 1;
  double duty = 0.5;  ///< share of each period at full load
  /// Seconds of steady load before the first edge: loading GPU code at a first launch waits for held work.
  double warm_up_seconds = 3;
};

/// Timeout of waits for peers, and the max number of restarts after such timeouts.
struct WatchOptions {
  double collective_timeout_seconds = 30;
  int max_restarts = 1;
};

}  // namespace egt
