#pragma once

#include <span>
#include <vector>

#include "egt/core/record.hpp"

namespace egt {

/// Time per transfer in seconds, over the repeats of a measurement.
struct LinkTiming {
  double median = 0;
  double least = 0;
  double most = 0;

  bool is_measured() const { return median > 0; }
};

/// `seconds`: one value per repeat; empty: not measured.
LinkTiming timing_of(std::vector<double> seconds);
/// Combines two ranks' times of concurrent transfers. The longer time applies to the bytes of both.
LinkTiming longer_of(const LinkTiming& a, const LinkTiming& b);

/// One repeat of a measurement.
struct LinkRepeat {
  double seconds = 0;  ///< per transfer
  bool led = true;     ///< all work was enqueued before the device began: no host time is included
};
std::vector<double> seconds_of(std::span<const LinkRepeat> repeats);

/// Latency of a small transfer in seconds: median and quartiles over many blocks.
struct LinkLatency {
  double median = 0, low = 0, high = 0;

  bool is_measured() const { return median > 0; }
  /// Unstable: the interquartile range exceeds 20 % of the median, so another measurement may differ.
  bool scatters() const { return high - low > 0.2 * median; }
};

/// Uses only blocks that led; not measured if these are fewer than a third.
LinkLatency latency_of(std::span<const LinkRepeat> blocks);

/// {latency_us, latency_quartiles_us: [low, high], latency_scatters}; null if not measured.
Json latency_json(const LinkLatency& latency);

/// {gb_per_second, gbit_per_second, lowest_gb_per_second, highest_gb_per_second, spread_percent} for `bytes`.
/// The spread is (max - min) / median of the times. Null if not measured.
Json bandwidth_json(double bytes, const LinkTiming& timing);

}  // namespace egt
