#include "model/step_tail.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>

namespace egt {

std::vector<int> StepResult::not_finite() const {
  std::vector<int> ranks;
  for (std::size_t rank = 0; rank < own_losses.size(); ++rank)
    if (!std::isfinite(own_losses[rank])) ranks.push_back(static_cast<int>(rank));
  return ranks;
}

}  // namespace egt

namespace egt::mlp {

namespace {

// Layout of a tail in floats: the sum of squared errors, the notes, each rank's own sum of squared errors,
// then the time of each rank's pass.
constexpr std::size_t notes_at = 1, notes = 3, own_losses_at = notes_at + notes;

std::size_t own_times_at(int ranks) {
  return own_losses_at + static_cast<std::size_t>(ranks);
}

std::size_t tail_floats(int ranks) {
  return own_losses_at + 2 * static_cast<std::size_t>(ranks);
}

}  // namespace

Status StepTails::allocate(Device& device, int ranks) {
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

Status StepTail::close(Device& device, Communicator& communicator, const StepMessage& note, float compute_ms,
                       Stream& stream) {
  const float reported[] = {note.vote, note.check_ms, note.step_ms, compute_ms};
  std::copy(std::begin(reported), std::end(reported), reported_);
  EGT_TRY(device.copy(device_ + notes_at, reported_, notes * sizeof(float), stream));
  const int ranks = communicator.size();
  float* const own_losses = device_ + own_losses_at;
  float* const own_times = device_ + own_times_at(ranks);
  EGT_TRY(device.set_zero(own_losses, 2 * static_cast<std::size_t>(ranks) * sizeof(float), stream));
  EGT_TRY(device.copy(own_losses + communicator.rank(), device_, sizeof(float), stream));
  EGT_TRY(device.copy(own_times + communicator.rank(), reported_ + notes, sizeof(float), stream));
  EGT_TRY(communicator.all_reduce(device_, tail_floats(ranks), ElementType::f32, stream));
  EGT_TRY(device.copy(result_, device_, tail_floats(ranks) * sizeof(float), stream));
  return device.record(*done, stream);
}

StepResult StepTail::read(int ranks, double outputs) const {
  StepResult result;
  result.loss = static_cast<double>(result_[0]) / outputs;
  const float* const reported = result_ + notes_at;
  result.notes = {.vote = reported[0], .check_ms = reported[1], .step_ms = reported[2]};
  result.own_losses.assign(result_ + own_losses_at, result_ + own_losses_at + ranks);
  const float* const times = result_ + own_times_at(ranks);
  result.all_compute_ms.assign(times, times + ranks);
  return result;
}

}  // namespace egt::mlp
