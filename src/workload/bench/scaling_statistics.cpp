#include "workload/bench/scaling_statistics.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "egt/core/histogram.hpp"

#include "workload/bench/scaling_plan.hpp"

namespace egt {

ScalingTimes step_times(std::vector<double> ms) {
  std::sort(ms.begin(), ms.end());
  const std::size_t count = ms.size();
  const auto rank95 = static_cast<std::size_t>(std::ceil(0.95 * static_cast<double>(count)));
  return {.min = ms.front(),
          .p50 = median_of(ms),
          .p95 = ms[std::clamp<std::size_t>(rank95, 1, count) - 1],
          .max = ms.back()};
}

void WarmUp::add(double step_ms) {
  const std::int64_t made = iterations();
  const std::int64_t wanted = plan_loop(step_ms, trial_seconds_, multiple_).per_chunk;
  const bool full = 2 * made >= wanted;  // as long as a chunk, or nearly so
  const bool agrees = std::abs(step_ms - step_ms_) <= agreement * step_ms_;
  ++rounds_;
  spent_ms_ += static_cast<double>(made) * step_ms;
  over_ = rounds_ >= fewest_rounds && ((full && agrees) || spent_ms_ >= most_seconds * 1e3);
  step_ms_ = step_ms;
  iterations_ = std::min(wanted, growth * made);
}

}  // namespace egt
