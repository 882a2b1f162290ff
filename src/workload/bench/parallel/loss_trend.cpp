#include "workload/bench/parallel/loss_trend.hpp"

#include <cmath>
#include <numeric>

#include <fmt/format.h>

namespace egt {

void LossTrend::add(double loss) {
  if (!std::isfinite(loss) && not_finite_ < 0) not_finite_ = steps_;
  ++steps_;
  if (first_.size() < compared) first_.push_back(loss);
  last_.push_back(loss);
  if (last_.size() > compared) last_.pop_front();
}

std::string LossTrend::failure() const {
  if (not_finite_ >= 0)
    return fmt::format(
        "the loss of step {} is not finite: training diverges, or a device is wrong; burn repeats the steps "
        "and tells which",
        not_finite_);
  if (steps_ < fewest_steps) return "";
  const auto mean = [](const auto& losses) {
    return std::accumulate(losses.begin(), losses.end(), 0.0) / static_cast<double>(losses.size());
  };
  const double first = mean(first_), last = mean(last_);
  if (last < first) return "";
  return fmt::format("the loss did not fall in {} steps: {:.6g} at first, {:.6g} at last", steps_, first,
                     last);
}

}  // namespace egt
