#include "device/host/worker_pool.hpp"

#include <utility>

#include "egt/core/process_limits.hpp"
#include "egt/core/wait.hpp"
#include "egt/device/device.hpp"

namespace egt {

Status HostHold::wait() const {
  if (!is_held_) return {};
  return wait_until([this]() -> Result<bool> { return !is_held_; },
                    {.seconds = Device::longest_hold_seconds, .what = "work that is held back"});
}

WorkerPool::WorkerPool(int threads, std::shared_ptr<const HostHold> hold) : hold_(std::move(hold)) {
  for (int i = 1; i < threads && status_.ok(); ++i) {
    auto thread = start_thread("the host device's share of the cores", [this] { serve(); });
    status_ = thread.status();
    if (thread.ok()) threads_.push_back(std::move(thread.value()));
  }
}

WorkerPool::~WorkerPool() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  started_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void WorkerPool::run(std::int64_t chunks, const std::function<void(std::int64_t)>& body) {
  if (threads_.empty() || chunks <= 1) {
    for (std::int64_t i = 0; i < chunks; ++i) take_chunk(i, body);
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    body_ = &body;
    chunks_ = chunks;
    next_ = 0;
    open_ = true;
  }
  started_.notify_all();
  take_chunks();
  // Threads that wake up after this point find no chunk left and are not waited for.
  std::unique_lock lock(mutex_);
  open_ = false;
  finished_.wait(lock, [this] { return busy_ == 0; });
}

void WorkerPool::serve() {
  std::unique_lock lock(mutex_);
  for (;;) {
    started_.wait(lock, [&] { return ending_ || (open_ && next_ < chunks_); });
    if (ending_) return;
    ++busy_;
    lock.unlock();
    take_chunks();
    lock.lock();
    if (--busy_ == 0) finished_.notify_one();
  }
}

/// Waits while work is held. If that times out, the chunk is still computed, and the next task fails.
void WorkerPool::take_chunk(std::int64_t chunk, const std::function<void(std::int64_t)>& body) const {
  if (hold_) static_cast<void>(hold_->wait());
  body(chunk);
}

void WorkerPool::take_chunks() {
  for (std::int64_t i = next_++; i < chunks_; i = next_++) take_chunk(i, *body_);
}

}  // namespace egt
