#include "workload/bench/parallel/learning_check.hpp"

#include <cmath>
#include <numeric>

#include <fmt/format.h>

namespace egt {

void LearningCheck::add(double loss) {
  if (!std::isfinite(loss) && not_finite_ < 0) not_finite_ = steps_;
  ++steps_;
  if (first_.size() < compared) first_.push_back(loss);
  last_.push_back(loss);
  if (last_.size() > compared) last_.pop_front();
}

double LearningCheck::recent() const {
  return std::accumulate(last_.begin(), last_.end(), 0.0) / static_cast<double>(last_.size());
}

std::string LearningCheck::failure(bool must_fall) const {
  if (not_finite_ >= 0)
    return fmt::format(
        "the loss of step {} is not finite: training diverges, or a device is wrong; burn repeats the steps "
        "and identifies it",
        not_finite_);
  if (steps_ < fewest_steps || !must_fall) return "";
  const double first =
      std::accumulate(first_.begin(), first_.end(), 0.0) / static_cast<double>(first_.size());
  const double last = recent();
  if (last < first) return "";
  return fmt::format("the loss did not fall in {} steps: {:.6g} at first, {:.6g} at last", steps_, first,
                     last);
}

}  // namespace egt
