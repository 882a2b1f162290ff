#include "model/step_timeline.hpp"

#include <algorithm>

namespace egt {

const char* to_string(StepPhase phase) {
  constexpr const char* names[step_phases] = {"wait",       "update",   "forward",
                                              "activation", "backward", "second"};
  return names[static_cast<std::size_t>(phase)];
}

double StepTimes::all_reduce_gb_per_s() const {
  double fastest = 0;
  for (std::size_t b = 0; b < std::min(sum_ms.size(), sum_bytes.size()); ++b)
    if (sum_ms[b] > 0) fastest = std::max(fastest, sum_bytes[b] / sum_ms[b] / 1e6);
  return fastest;
}

}  // namespace egt

namespace egt::mlp {

namespace {

/// Per layer in the forward pass: GEMM, activation and the following phase. Others: wait and update of the
/// first layer; update, wait and update of the second; backward and the end.
constexpr std::size_t marks_per_layer = 3, marks_beside = 7;

}  // namespace

Status StepTimeline::allocate(Device& device, std::size_t layers, std::size_t buckets) {
  marks_.resize(marks_per_layer * layers + marks_beside);
  sum_begin_.resize(buckets);
  sum_end_.resize(buckets);
  for (Mark& mark : marks_) {
    EGT_TRY_ASSIGN(mark.event, device.create_event(EventUse::timing));
  }
  for (auto* events : {&sum_begin_, &sum_end_})
    for (EventHandle& event : *events) {
      EGT_TRY_ASSIGN(event, device.create_event(EventUse::timing));
    }
  return {};
}

void StepTimeline::begin(bool measures) {
  measures_ = measures;
  if (measures) marked_ = 0;
}

Status StepTimeline::mark(Device& device, std::optional<StepPhase> phase, Stream& compute) {
  if (!measures_) return {};
  if (marked_ == marks_.size()) return {StatusCode::internal, "a step has more phases than its timeline"};
  Mark& mark = marks_[marked_++];
  mark.phase = phase;
  return device.record(*mark.event, compute);
}

Status StepTimeline::sum_begins(Device& device, std::size_t bucket, Stream& communication) {
  return measures_ ? device.record(*sum_begin_[bucket], communication) : Status();
}

Status StepTimeline::sum_ends(Device& device, std::size_t bucket, Stream& communication) {
  return measures_ ? device.record(*sum_end_[bucket], communication) : Status();
}

Result<StepTimes> StepTimeline::times(Device& device) const {
  StepTimes times;
  for (std::size_t i = 1; i < marked_; ++i) {
    const Mark& begin = marks_[i - 1];
    if (!begin.phase) continue;
    EGT_TRY_ASSIGN(const double ms, device.elapsed_ms(*begin.event, *marks_[i].event));
    times.phase_ms[static_cast<std::size_t>(*begin.phase)] += ms;
  }
  for (std::size_t b = 0; b < sum_begin_.size(); ++b) {
    EGT_TRY_ASSIGN(const double ms, device.elapsed_ms(*sum_begin_[b], *sum_end_[b]));
    times.sum_ms.push_back(ms);
  }
  return times;
}

}  // namespace egt::mlp
