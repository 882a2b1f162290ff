#include "workload/bench/scaling_model.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace egt {
namespace {

constexpr int fitted_ranks = 2;
constexpr double normal_quantile_95 = 1.6448536269514722;

/// Of the standard normal distribution.
double normal_cdf(double x) {
  return 0.5 * std::erfc(-x / std::numbers::sqrt2);
}

Status no_model(const char* why) {
  return {StatusCode::invalid_argument, why};
}

}  // namespace

double Fabric::ring_ms(int ranks, double bytes, double sums) const {
  const double n = ranks, passes = 2 * (n - 1);
  return sums * passes * alpha_ms + passes / n * bytes * beta_ms_per_byte;
}

/// t = base + slope * bytes, each error weighed by 1 / t.
Result<Fabric> fit_fabric(const std::vector<SumTime>& of_two) {
  double w = 0, wx = 0, wt = 0, wxx = 0, wxt = 0;
  for (const SumTime& sum : of_two) {
    if (!(sum.ms > 0)) return no_model("an all-reduce was not measured");
    const double weight = 1 / (sum.ms * sum.ms);
    w += weight;
    wx += weight * sum.bytes;
    wt += weight * sum.ms;
    wxx += weight * sum.bytes * sum.bytes;
    wxt += weight * sum.bytes * sum.ms;
  }
  const auto is_first = [&](const SumTime& sum) { return sum.bytes == of_two.front().bytes; };
  if (std::all_of(of_two.begin(), of_two.end(), is_first))
    return no_model("all-reduces of two sizes were not measured");
  double slope = (w * wxt - wx * wt) / (w * wxx - wx * wx);
  double base = (wt - slope * wx) / w;
  if (base < 0) {
    base = 0;
    slope = wxt / wxx;
  }
  if (slope < 0) {
    slope = 0;
    base = wt / w;
  }
  return Fabric{.alpha_ms = base / 2, .beta_ms_per_byte = slope};  // a ring of 2: 2 alpha + bytes * beta
}

double expected_maximum(int n) {
  constexpr double end = 12, dx = 1.0 / 256;  // beyond it F is 1 in a double
  double sum = 0;
  for (double x = 0; x < end; x += dx) {
    const double height = 1 - std::pow(normal_cdf(x), n) - std::pow(normal_cdf(-x), n);
    sum += x == 0 ? height / 2 : height;
  }
  return sum * dx;
}

double normal_sigma(double p50, double p95) {
  return std::max(0.0, p95 - p50) / normal_quantile_95;
}

Result<ScalingModel> ScalingModel::fit(const ScalingInputs& inputs) {
  if (!(inputs.alone_ms > 0 && inputs.two_ms > 0 && inputs.batch > 0))
    return no_model("1 and 2 devices were not both measured");
  EGT_TRY_ASSIGN(const Fabric fabric, fit_fabric(inputs.sums));
  return ScalingModel(inputs, fabric);
}

ScalingModel::ScalingModel(const ScalingInputs& inputs, const Fabric& fabric)
    : inputs_(inputs), fabric_(fabric) {
  const double alone = inputs_.alone_ms;
  const double more = inputs_.two_ms - alone - jitter_ms(alone, fitted_ranks);
  pair_ms_ = std::max(0.0, more) - exposed_ms(alone, fitted_ranks);
  // Neither a share of a batch for nothing, nor one that takes longer than the whole.
  const double half = std::clamp(inputs_.half_share.value_or(0.5), 0.5, 1.0);
  fixed_ms_ = alone * (2 * half - 1);
  sample_ms_ = (alone - fixed_ms_) / inputs_.batch;
}

double ScalingModel::ring_ms(int ranks) const {
  return fabric_.ring_ms(ranks, inputs_.summed_bytes, inputs_.sums_per_step);
}

double ScalingModel::jitter_ms(double compute_ms, int ranks) const {
  return inputs_.sigma_ms * compute_ms / inputs_.alone_ms * expected_maximum(ranks);
}

double ScalingModel::exposed_ms(double compute_ms, int ranks) const {
  return std::max(0.0, ring_ms(ranks) - inputs_.overlap_share * compute_ms);
}

double ScalingModel::step_ms(double compute_ms, int ranks) const {
  return compute_ms + jitter_ms(compute_ms, ranks) + std::max(0.0, exposed_ms(compute_ms, ranks) + pair_ms_);
}

std::optional<double> ScalingModel::step_ms(Growth growth, int ranks) const {
  if (growth == Growth::weak) return step_ms(inputs_.alone_ms, ranks);
  if (!inputs_.half_share || ranks > inputs_.batch) return std::nullopt;
  return step_ms(fixed_ms_ + sample_ms_ * std::ceil(inputs_.batch / ranks), ranks);
}

}  // namespace egt
