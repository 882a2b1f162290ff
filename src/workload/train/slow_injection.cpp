#include "workload/train/slow_injection.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace egt {

namespace {

constexpr std::uint64_t scratch_words = 1024;  // one iteration is far below 1 % of a step
constexpr int max_turns = 1 << 22, fastest_growth = 8;
constexpr double weight_of_newest = 0.1;   // in means over steps
constexpr double another_precision = 0.3;  // relative difference that indicates a change of precision

/// Exponential mean that follows a jump at once.
double follow(double mean, double newest) {
  return std::abs(newest - mean) > another_precision * mean ? newest
                                                            : mean + weight_of_newest * (newest - mean);
}

}  // namespace

Status SlowInjection::before_step(std::int64_t step) {
  if (injection_ || !(in_force_ || environment_.injector.waits(InjectionKind::slow, step))) return {};
  if (!pass_ms_) return {};  // a share of it is not known yet
  injection_ = in_force_ ? in_force_ : environment_.injector.take(InjectionKind::slow, step);
  if (!injection_) return {};
  EGT_TRY(prepare());
  trainer_.set_extra_work([this](std::int64_t at, Stream& compute) { return work(at, compute); });
  if (in_force_) return {};
  environment_.injector.report(*injection_, step,
                               fmt::format("every step from {} on, +{:.3g} ms", step, target_ms()));
  return {};
}

Status SlowInjection::prepare() {
  EGT_TRY_ASSIGN(words_, environment_.device.allocate(scratch_words * sizeof(std::uint32_t)));
  EGT_TRY_ASSIGN(digest_, environment_.device.allocate(sizeof(Digest)));
  for (Mark& mark : marks_) {
    EGT_TRY_ASSIGN(mark.begin, environment_.device.create_event(EventUse::timing));
    EGT_TRY_ASSIGN(mark.end, environment_.device.create_event(EventUse::timing));
  }
  return {};
}

double SlowInjection::percent_of(const Injection& injection) {
  return injection.count > 1 ? static_cast<double>(injection.count) : default_percent;
}

double SlowInjection::target_ms() const {
  return injection_->ms.value_or(*pass_ms_ * percent_of(*injection_) / 100);
}

Status SlowInjection::work(std::int64_t step, Stream& compute) {
  Device& device = environment_.device;
  Mark& mark = mark_of(step);
  mark.turns = turns_;
  const WordsView words{words_.as<std::uint32_t>(), scratch_words};
  EGT_TRY(device.record(*mark.begin, compute));
  EGT_TRY(device.set_zero(words.data, words_.bytes(), compute));
  EGT_TRY(device.sine_exponential(words, turns_, digest_.as<Digest>(), compute));
  return device.record(*mark.end, compute);
}

Status SlowInjection::learn(std::int64_t step, const StepResult& result) {
  if (!result.compute_ms || !environment_.injector.plans(InjectionKind::slow)) return {};
  Mark& mark = mark_of(step);
  double extra = 0;
  if (mark.turns > 0) {
    EGT_TRY_ASSIGN(extra, environment_.device.busy_ms(*mark.begin, *mark.end));
    extra_ms_ = extra;
    const double turn_ms = extra / mark.turns;
    turn_ms_ = turn_ms_ > 0 ? follow(turn_ms_, turn_ms) : turn_ms;
    const double wanted = turn_ms_ > 0 ? target_ms() / turn_ms_ : max_turns;
    // A measurement of few iterations is a poor estimate for many.
    const double most = std::min<double>(max_turns, static_cast<double>(mark.turns) * fastest_growth);
    turns_ = static_cast<int>(std::lround(std::clamp(wanted, 1.0, std::max(1.0, most))));
  }
  const double pass = *result.compute_ms - extra;
  if (pass > 0) pass_ms_ = pass_ms_ ? follow(*pass_ms_, pass) : pass;
  return {};
}

}  // namespace egt
