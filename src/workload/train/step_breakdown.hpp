#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <optional>

#include "egt/core/record.hpp"
#include "model/mlp_trainer.hpp"

namespace egt {

/// Breakdown of the measured steps, one per epoch, as means. Not thread-safe.
class StepBreakdown {
 public:
  /// `pass_ms`: StepResult::pass_ms of the same step. It includes all phases, so their shares are at most 100
  /// %.
  void add(const StepTimes& times, std::optional<double> pass_ms) {
    if (!pass_ms) return;
    for (std::size_t phase = 0; phase < step_phases; ++phase) sum_.phase_ms[phase] += times.phase_ms[phase];
    sum_.sum_ms.resize(times.sum_ms.size());
    for (std::size_t b = 0; b < times.sum_ms.size(); ++b) sum_.sum_ms[b] += times.sum_ms[b];
    step_ms_ += *pass_ms;
    ++steps_;
  }

  /// {measured_steps, step_ms, forward_ms, activation_ms, backward_ms, update_ms, wait_ms, checks_ms: share
  /// `checks_fraction` of a mean step; other_ms: time between the phases of a measured step; sum_ms: [one per
  /// bucket], overlapping with these phases}; null: no step was measured.
  Json figures(std::optional<double> checks_fraction) const {
    if (steps_ == 0) return nullptr;
    const auto steps = static_cast<double>(steps_);
    Json figures = {{"measured_steps", steps_}, {"step_ms", step_ms_ / steps}};
    for (std::size_t phase = 0; phase < step_phases; ++phase)
      figures[std::string(to_string(static_cast<StepPhase>(phase))) + "_ms"] = sum_.phase_ms[phase] / steps;
    const double in_phases = std::accumulate(sum_.phase_ms.begin(), sum_.phase_ms.end(), 0.0);
    figures["other_ms"] = std::max(0.0, step_ms_ - in_phases) / steps;
    figures["checks_ms"] = checks_fraction ? Json(*checks_fraction * step_ms_ / steps) : Json(nullptr);
    Json& sums = figures["sum_ms"] = Json::array();
    for (const double ms : sum_.sum_ms) sums.push_back(ms / steps);
    return figures;
  }

 private:
  StepTimes sum_;
  double step_ms_ = 0;
  std::int64_t steps_ = 0;
};

/// Loss decay rate: a least-squares line through log(loss) over the steps.
class LossTrend {
 public:
  void add(std::int64_t step, double loss) {
    if (!std::isfinite(loss) || loss <= 0) return;
    const double x = static_cast<double>(step), y = std::log(loss);
    if (count_ == 0) {
      first_step_ = step;
      first_y_ = lowest_y_ = y;
    }
    last_y_ = y;
    lowest_y_ = std::min(lowest_y_, y);
    ++count_;
    // Welford's updates of the means and of the centered sums of products (1962).
    const double from_mean = x - mean_x_;
    mean_x_ += from_mean / count_;
    mean_y_ += (y - mean_y_) / count_;
    xx_ += from_mean * (x - mean_x_);
    xy_ += from_mean * (y - mean_y_);
  }
  /// Number of steps that halve the loss; none: it does not fall, or too few steps.
  std::optional<double> halving_steps() const {
    if (count_ < 3 || xx_ <= 0 || xy_ >= 0 || last_y_ >= first_y_) return std::nullopt;
    return -std::log(2.0) * xx_ / xy_;
  }
  /// True if training from random weights does not learn: after 50 steps no loss is 5 % below the first.
  bool stands_still() const {
    return first_step_ == 0 && count_ >= 50 && lowest_y_ > first_y_ + std::log(0.95);
  }
  double lowest() const { return std::exp(lowest_y_); }

 private:
  double count_ = 0, mean_x_ = 0, mean_y_ = 0, xx_ = 0, xy_ = 0;
  double first_y_ = 0, last_y_ = 0, lowest_y_ = 0;
  std::int64_t first_step_ = 0;
};

}  // namespace egt
