#include "workload/common/worker_thread.hpp"

#include <chrono>
#include <exception>

#include <fmt/format.h>

#include "egt/core/process_limits.hpp"

namespace egt {
namespace {

/// A standard library exception (such as no host memory) must not terminate the process silently.
Status guarded(const WorkerThread::Work& work, const std::stop_token& stop, const std::string& name) {
  try {
    return work(stop);
  } catch (const std::exception& error) {
    return {StatusCode::internal, fmt::format("{} ended by an exception: {}", name, error.what())};
  }
}

}  // namespace

Status WorkerThread::start(Work work) {
  EGT_TRY_ASSIGN(thread_, start_thread<std::jthread>(
                              name_, [this, work = std::move(work)] { run(work, stop_.get_token()); }));
  return {};
}

void WorkerThread::run(const Work& work, const std::stop_token& stop) {
  const Status status = guarded(work, stop, name_);
  const std::lock_guard lock(mutex_);
  ended_ = true;
  if (status.code() != StatusCode::stopped) failure_ = status;
  changed_.notify_all();
}

bool WorkerThread::ended_within(double seconds) {
  if (!started()) return true;
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, std::chrono::duration<double>(seconds), [this] { return ended_; });
}

Status WorkerThread::stop(double seconds) {
  ask_to_stop();
  if (ended_within(seconds)) return {};
  return {StatusCode::timeout, fmt::format("{} did not stop within {:g} s", name_, seconds)};
}

Status WorkerThread::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

}  // namespace egt
