#include "device/host/host_event.hpp"

#include <time.h>

#include <algorithm>

namespace egt {
namespace {

double thread_cpu_ms() {
  timespec used{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
  return static_cast<double>(used.tv_sec) * 1e3 + static_cast<double>(used.tv_nsec) * 1e-6;
}

}  // namespace

void HostEvent::State::reach(std::uint64_t number, const Status& stream_status) {
  const double used_ms = thread_cpu_ms();
  {
    const std::lock_guard lock(mutex);
    reached = std::max(reached, number);
    time = Clock::now();
    cpu_ms = used_ms;
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
    state_->stream = &stream;
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

Status HostEvent::check_reached() const {
  if (state_->recorded == 0) return Status(StatusCode::invalid_argument, "the event was never recorded");
  if (state_->reached < state_->recorded)
    return Status(StatusCode::invalid_argument, "the event is not reached yet");
  return {};
}

Result<Clock::time_point> HostEvent::reached_at() const {
  const std::lock_guard lock(state_->mutex);
  EGT_TRY(check_reached());
  return state_->time;
}

Result<double> HostEvent::cpu_ms() const {
  const std::lock_guard lock(state_->mutex);
  EGT_TRY(check_reached());
  return state_->cpu_ms;
}

bool HostEvent::same_stream(const HostEvent& other) const {
  const std::scoped_lock lock(state_->mutex, other.state_->mutex);
  return state_->stream == other.state_->stream;
}

}  // namespace egt
