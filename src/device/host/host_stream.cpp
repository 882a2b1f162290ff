#include "device/host/host_stream.hpp"

#include <sys/resource.h>

#include <chrono>
#include <cstdlib>
#include <new>

#include <fmt/format.h>

#include "egt/core/process_limits.hpp"
#include "egt/core/system_files.hpp"

namespace egt {

void HostStream::Free::operator()(std::byte* data) const {
  std::free(data);
}

Result<std::unique_ptr<HostStream>> HostStream::create(StreamPriority priority, int cores, StreamUse use,
                                                       std::shared_ptr<const HostHold> hold,
                                                       std::shared_ptr<const HostProgress> progress) {
  std::unique_ptr<HostStream> stream(new HostStream(cores, use, std::move(hold), std::move(progress)));
  EGT_TRY_ASSIGN(stream->thread_, start_thread("a stream of the host device",
                                               [one = stream.get(), priority] { one->serve(priority); }));
  return stream;
}

HostStream::~HostStream() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void HostStream::enqueue(Task task) {
  enqueue_always([this, task = std::move(task)](const Status& so_far) {
    if (!so_far.ok()) return so_far;
    if (hold_) EGT_TRY(hold_->wait());
    return task();
  });
}

void HostStream::enqueue_always(StatusTask task) {
  const bool is_owners = progress_ && std::this_thread::get_id() == progress_->owner;
  {
    const std::lock_guard lock(mutex_);
    tasks_.push_back({std::move(task), is_owners});
  }
  changed_.notify_one();
}

Status HostStream::status() const {
  const std::lock_guard lock(mutex_);
  return status_;
}

void HostStream::forget_failure() {
  const std::lock_guard lock(mutex_);
  status_ = {};
}

bool HostStream::is_ending() const {
  const std::lock_guard lock(mutex_);
  return ending_;
}

bool HostStream::wait_idle(double timeout_seconds) {
  std::unique_lock lock(mutex_);
  return idle_.wait_for(lock, std::chrono::duration<double>(timeout_seconds),
                        [this] { return tasks_.empty() && !running_; });
}

Result<std::byte*> HostStream::scratch(std::size_t bytes) {
  if (bytes > scratch_bytes_) {
    constexpr std::size_t alignment = 64;
    const std::size_t rounded = (bytes + alignment - 1) / alignment * alignment;
    scratch_.reset();
    scratch_bytes_ = 0;
    EGT_TRY(check_node_memory("temporary results", bytes));
    scratch_.reset(static_cast<std::byte*>(std::aligned_alloc(alignment, rounded)));
    if (!scratch_)
      return Status(StatusCode::out_of_memory,
                    fmt::format("the node has no {} bytes of memory left for temporary results", bytes));
    scratch_bytes_ = rounded;
  }
  return scratch_.get();
}

void HostStream::share(std::int64_t chunks, const std::function<void(std::int64_t)>& body) {
  if (!workers_) workers_.emplace(cores_, hold_);
  if (!reports_progress_) return workers_->run(chunks, body);
  workers_->run(chunks, [&](std::int64_t chunk) {
    body(chunk);
    progress_->report();
  });
}

void HostStream::serve(StreamPriority priority) {
  // On Linux `who` 0 is the calling thread only. Raising the priority could fail, but it is only lowered.
  if (priority == StreamPriority::background || priority == StreamPriority::low)
    setpriority(PRIO_PROCESS, 0, 19);
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return ending_ || !tasks_.empty(); });
    if (tasks_.empty()) return;
    StatusTask task = std::move(tasks_.front().run);
    reports_progress_ = tasks_.front().is_owners;
    tasks_.pop_front();
    running_ = true;
    const Status so_far = status_;
    lock.unlock();
    Status after = task(so_far);
    if (after.ok() && workers_) after = workers_->status();
    task = nullptr;  // releases its captures before the stream counts as idle
    if (reports_progress_) progress_->report();
    lock.lock();
    running_ = false;
    status_ = so_far.ok() ? std::move(after) : so_far;
    if (tasks_.empty()) idle_.notify_all();
  }
}

HostStream& as_host_stream(Stream& stream) {
  return static_cast<HostStream&>(stream);
}

}  // namespace egt
