#include "device/host/worker_pool.hpp"

#include "egt/core/process_limits.hpp"

namespace egt {

WorkerPool::WorkerPool(int threads) {
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
    for (std::int64_t i = 0; i < chunks; ++i) body(i);
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    body_ = &body;
    chunks_ = chunks;
    next_ = 0;
    busy_ = threads_.size();
    ++round_;
  }
  started_.notify_all();
  take_chunks();
  std::unique_lock lock(mutex_);
  finished_.wait(lock, [this] { return busy_ == 0; });
}

void WorkerPool::serve() {
  std::unique_lock lock(mutex_);
  for (std::uint64_t served = 0;;) {
    started_.wait(lock, [&] { return ending_ || round_ != served; });
    if (ending_) return;
    served = round_;
    lock.unlock();
    take_chunks();
    lock.lock();
    if (--busy_ == 0) finished_.notify_one();
  }
}

void WorkerPool::take_chunks() {
  for (std::int64_t i = next_++; i < chunks_; i = next_++) (*body_)(i);
}

}  // namespace egt
