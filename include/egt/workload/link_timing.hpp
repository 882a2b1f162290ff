#pragma once

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

/// {gb_per_second, gbit_per_second, lowest_gb_per_second, highest_gb_per_second, spread_percent} of `bytes`
/// in such times; the spread is (highest - lowest) / median of the times. Null: not measured.
Json bandwidth_json(double bytes, const LinkTiming& timing);

}  // namespace egt
