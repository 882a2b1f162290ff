#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace egt {

/// Counts positive values in steps of 1 % between 10^-3 and 10^7, so that a run of any length has quantiles
/// in a few kilobytes.
class Histogram {
 public:
  void add(double value);
  std::uint64_t count() const { return count_; }
  double max() const { return max_; }
  double mean() const { return count_ ? sum_ / static_cast<double>(count_) : 0.0; }
  /// The value below which a share `q` (0 to 1) lies, within 1 %; 0 if empty.
  double quantile(double q) const;

 private:
  static constexpr double lowest_ = 1e-3;
  static constexpr int buckets_ = 2320;
  std::array<std::uint32_t, buckets_> counts_{};
  std::uint64_t count_ = 0;
  double sum_ = 0;
  double max_ = 0;
};

/// Mean of the two middle values if their number is even. `values` must not be empty.
double median_of(std::vector<double> values);

}  // namespace egt
