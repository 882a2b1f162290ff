#pragma once

#include <span>
#include <vector>

#include "egt/core/record.hpp"

namespace egt {

/// Seconds of a transfer over the repeats of a measurement.
struct LinkTiming {
  double median = 0;
  double least = 0;
  double most = 0;

  bool is_measured() const { return median > 0; }
};

/// `seconds`: of each repeat; none: nothing was measured.
LinkTiming timing_of(std::vector<double> seconds);
/// Of what two ranks timed of the same transfers: the longer ones, so that the bytes of both have gone in it.
LinkTiming longer_of(const LinkTiming& a, const LinkTiming& b);

/// One repeat of a measurement.
struct LinkRepeat {
  double seconds = 0;  ///< of a transfer
  bool led = true;     ///< all of it was enqueued before the device began: no time of the host is in it
};
std::vector<double> seconds_of(std::span<const LinkRepeat> repeats);

/// Seconds of a small transfer: the median and the quartiles of many blocks.
struct LinkLatency {
  double median = 0, low = 0, high = 0;

  bool is_measured() const { return median > 0; }
  /// Half of the blocks are further apart than a fifth of the median: another measurement may tell otherwise.
  bool scatters() const { return high - low > 0.2 * median; }
};

/// Of the blocks that led; not measured where these are less than a third of all.
LinkLatency latency_of(std::span<const LinkRepeat> blocks);

/// {latency_us, latency_quartiles_us: [low, high], latency_scatters}; null: not measured.
Json latency_json(const LinkLatency& latency);

/// {gb_per_second, gbit_per_second, lowest_gb_per_second, highest_gb_per_second, spread_percent} of `bytes`
/// in such times; the spread is (highest - lowest) / median of the times. Null: not measured.
Json bandwidth_json(double bytes, const LinkTiming& timing);

}  // namespace egt
