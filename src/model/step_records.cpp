#include "model/step_records.hpp"

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

// Layout of a tail in floats: the sum of squared errors, the sum of votes, each rank's own sum of squared
// errors, then the time of each rank's pass.
constexpr std::size_t votes_at = 1, own_losses_at = 2;

std::size_t own_times_at(int ranks) {
  return own_losses_at + static_cast<std::size_t>(ranks);
}

std::size_t tail_floats(int ranks) {
  return own_losses_at + 2 * static_cast<std::size_t>(ranks);
}

/// Per layer in the forward pass: GEMM, activation and the following phase. Others: wait and update of the
/// first layer; update, wait and update of the second; backward and the end.
constexpr std::size_t marks_per_layer = 3, marks_beside = 7;

}  // namespace

Status StepTails::allocate(Device& device, int ranks, std::size_t slots) {
  tails_.resize(slots);
  constexpr std::size_t line = 64;  // floats: 256 bytes
  const std::size_t stride = (tail_floats(ranks) + line - 1) / line * line;
  EGT_TRY_ASSIGN(memory_, device.allocate(tails_.size() * stride * sizeof(float)));
  EGT_TRY_ASSIGN(pinned_, device.allocate_pinned(tails_.size() * (stride + line) * sizeof(float)));
  for (std::size_t i = 0; i < tails_.size(); ++i) {
    StepTail& tail = tails_[i];
    tail.device_ = memory_.as<float>() + i * stride;
    tail.result_ = pinned_.as<float>() + i * (stride + line);
    tail.reported_ = tail.result_ + stride;
    for (EventHandle* event : {&tail.done, &tail.compute_begin, &tail.wait_begin, &tail.wait_end,
                               &tail.compute_end, &tail.second_end}) {
      EGT_TRY_ASSIGN(*event, device.create_event(EventUse::timing));
    }
  }
  return {};
}

Status StepTail::close(Device& device, Communicator& communicator, float vote, float compute_ms,
                       Stream& stream) {
  reported_[0] = vote;
  reported_[1] = compute_ms;
  EGT_TRY(device.copy(device_ + votes_at, reported_, sizeof(float), stream));
  const int ranks = communicator.size();
  float* const own_losses = device_ + own_losses_at;
  float* const own_times = device_ + own_times_at(ranks);
  EGT_TRY(device.set_zero(own_losses, 2 * static_cast<std::size_t>(ranks) * sizeof(float), stream));
  EGT_TRY(device.copy(own_losses + communicator.rank(), device_, sizeof(float), stream));
  EGT_TRY(device.copy(own_times + communicator.rank(), reported_ + 1, sizeof(float), stream));
  EGT_TRY(communicator.all_reduce(device_, tail_floats(ranks), ElementType::f32, stream));
  EGT_TRY(device.copy(result_, device_, tail_floats(ranks) * sizeof(float), stream));
  return device.record(*done, stream);
}

StepResult StepTail::read(int ranks, double outputs) const {
  StepResult result;
  result.loss = static_cast<double>(result_[0]) / outputs;
  result.votes = result_[votes_at];
  result.own_losses.assign(result_ + own_losses_at, result_ + own_losses_at + ranks);
  const float* const times = result_ + own_times_at(ranks);
  result.all_compute_ms.assign(times, times + ranks);
  return result;
}

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
