#include "egt/workload/link_timing.hpp"

#include <algorithm>
#include <cstddef>

namespace egt {

LinkTiming timing_of(std::vector<double> seconds) {
  if (seconds.empty()) return {};
  std::sort(seconds.begin(), seconds.end());
  const std::size_t middle = seconds.size() / 2;
  const double median = seconds.size() % 2 ? seconds[middle] : (seconds[middle - 1] + seconds[middle]) / 2;
  return {.median = median, .least = seconds.front(), .most = seconds.back()};
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
