#include "egt/core/histogram.hpp"

#include <numeric>

#include <cstddef>

#include <algorithm>
#include <cmath>

namespace egt {

namespace {
const double log_step = std::log(1.01);
}

void Histogram::add(double value) {
  const double place = value > lowest_ ? std::log(value / lowest_) / log_step : 0.0;
  ++counts_[static_cast<std::size_t>(std::min(place, static_cast<double>(buckets_ - 1)))];
  ++count_;
  sum_ += value;
  max_ = std::max(max_, value);
}

double Histogram::quantile(double q) const {
  if (count_ == 0) return 0.0;
  const double wanted = q * static_cast<double>(count_);
  std::uint64_t seen = 0;
  for (int i = 0; i < buckets_; ++i) {
    seen += counts_[static_cast<std::size_t>(i)];
    if (static_cast<double>(seen) >= wanted && seen > 0)
      return std::min(max_, lowest_ * std::exp((i + 0.5) * log_step));
  }
  return max_;
}

double median_of(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return values.size() % 2 ? *middle : std::midpoint(*std::max_element(values.begin(), middle), *middle);
}

}  // namespace egt
