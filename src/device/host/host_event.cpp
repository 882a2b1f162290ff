#include "egt/device/host/host_event.hpp"

#include <algorithm>

namespace egt {

void HostEvent::State::reach(std::uint64_t number, const Status& stream_status) {
  {
    const std::lock_guard lock(mutex);
    reached = std::max(reached, number);
    time = Clock::now();
    status = stream_status;
  }
  changed.notify_all();
}

Status HostEvent::State::wait(std::uint64_t number) {
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return reached >= number; });
  return status;
}

void HostEvent::record(HostStream& stream) {
  std::uint64_t number;
  {
    const std::lock_guard lock(state_->mutex);
    number = ++state_->recorded;
  }
  stream.enqueue_always([state = state_, number](const Status& so_far) {
    state->reach(number, so_far);
    return so_far;
  });
}

void HostEvent::make_wait(HostStream& stream) const {
  std::uint64_t number;
  {
    const std::lock_guard lock(state_->mutex);
    number = state_->recorded;
  }
  if (number > 0) stream.enqueue([state = state_, number] { return state->wait(number); });
}

Result<bool> HostEvent::done() const {
  const std::lock_guard lock(state_->mutex);
  if (state_->reached < state_->recorded) return false;
  if (!state_->status.ok()) return state_->status;
  return true;
}

Result<Clock::time_point> HostEvent::reached_at() const {
  const std::lock_guard lock(state_->mutex);
  if (state_->recorded == 0) return Status(StatusCode::invalid_argument, "the event was never recorded");
  if (state_->reached < state_->recorded)
    return Status(StatusCode::invalid_argument, "the event is not reached yet");
  return state_->time;
}

}  // namespace egt
