#include "workload/common/link_timing.hpp"

#include <algorithm>
#include <cstddef>

#include "egt/core/histogram.hpp"

namespace egt {

LinkTiming timing_of(std::vector<double> seconds) {
  if (seconds.empty()) return {};
  std::sort(seconds.begin(), seconds.end());
  return {.median = median_of(seconds), .least = seconds.front(), .most = seconds.back()};
}

LinkTiming longer_of(const LinkTiming& a, const LinkTiming& b) {
  return {.median = std::max(a.median, b.median),
          .least = std::max(a.least, b.least),
          .most = std::max(a.most, b.most)};
}

std::vector<double> seconds_of(std::span<const LinkRepeat> repeats) {
  std::vector<double> seconds;
  for (const LinkRepeat& repeat : repeats) seconds.push_back(repeat.seconds);
  return seconds;
}

LinkLatency latency_of(std::span<const LinkRepeat> blocks) {
  std::vector<double> seconds;
  for (const LinkRepeat& block : blocks)
    if (block.led) seconds.push_back(block.seconds);
  if (seconds.empty() || 3 * seconds.size() < blocks.size()) return {};
  std::sort(seconds.begin(), seconds.end());
  const std::size_t last = seconds.size() - 1;
  return {.median = timing_of(seconds).median, .low = seconds[last / 4], .high = seconds[last - last / 4]};
}

Json latency_json(const LinkLatency& latency) {
  if (!latency.is_measured())
    return {{"latency_us", nullptr}, {"latency_quartiles_us", nullptr}, {"latency_scatters", nullptr}};
  constexpr double micro = 1e6;
  return {{"latency_us", latency.median * micro},
          {"latency_quartiles_us", {latency.low * micro, latency.high * micro}},
          {"latency_scatters", latency.scatters()}};
}

Json bandwidth_json(double bytes, const LinkTiming& timing) {
  const auto rate = [&](double seconds, double unit) {
    return seconds > 0 ? Json(bytes / seconds * unit) : Json();
  };
  return {{"gb_per_second", rate(timing.median, 1e-9)},
          {"gbit_per_second", rate(timing.median, 8e-9)},
          {"lowest_gb_per_second", rate(timing.most, 1e-9)},
          {"highest_gb_per_second", rate(timing.least, 1e-9)},
          {"spread_percent",
           timing.is_measured() ? Json((timing.most - timing.least) / timing.median * 100) : Json()}};
}

}  // namespace egt
