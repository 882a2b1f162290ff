#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "device/host/worker_pool.hpp"
#include "egt/core/status.hpp"
#include "egt/device/handles.hpp"

namespace egt {

/// Reports progress of the work that one thread enqueues.
struct HostProgress {
  std::function<void()> report;  ///< called on any thread
  std::thread::id owner = std::this_thread::get_id();
};

/// A host stream: a thread that runs tasks in order. After the first error, later tasks are skipped. Events
/// are still reached, so that no wait hangs.
class HostStream final : public Stream {
 public:
  using Task = std::function<Status()>;
  /// Receives the stream's status so far and returns the new one.
  using StatusTask = std::function<Status(const Status&)>;

  /// `cores`: threads that a task may use through `workers`. Low-priority and background streams run at nice
  /// 19. `hold`: the device's, checked before each task and chunk. `progress`: reported after each task and
  /// chunk of its owner; null: not. unavailable: no thread could be started.
  static Result<std::unique_ptr<HostStream>> create(StreamPriority priority, int cores,
                                                    StreamUse use = StreamUse::all,
                                                    std::shared_ptr<const HostHold> hold = {},
                                                    std::shared_ptr<const HostProgress> progress = {});
  /// Waits for all enqueued work.
  ~HostStream() override;
  HostStream(const HostStream&) = delete;
  HostStream& operator=(const HostStream&) = delete;

  /// Enqueues the task. Thread-safe.
  void enqueue(Task task);
  /// As `enqueue`, for a task that also runs after an error.
  void enqueue_always(StatusTask task);

  /// The first error of the work done so far.
  Status status() const;
  /// Accepts tasks again after an error.
  void forget_failure();
  /// Whether the destructor is waiting for the work.
  bool is_ending() const;
  /// Waits until nothing is enqueued; false after `timeout_seconds`.
  bool wait_idle(double timeout_seconds);

  /// Scratch memory of the current task, 64-byte aligned, on the stream's own thread only.
  Result<std::byte*> scratch(std::size_t bytes);
  /// As WorkerPool::run, on threads started at first use. Only within tasks. If fewer threads can be started,
  /// they complete the task, but it fails.
  void share(std::int64_t chunks, const std::function<void(std::int64_t)>& body);

 private:
  struct Entry {
    StatusTask run;
    bool is_owners;  ///< enqueued by the owner of `progress_`
  };

  HostStream(int cores, StreamUse use, std::shared_ptr<const HostHold> hold,
             std::shared_ptr<const HostProgress> progress)
      : Stream(use), cores_(cores), hold_(std::move(hold)), progress_(std::move(progress)) {}
  void serve(StreamPriority priority);

  const int cores_;
  const std::shared_ptr<const HostHold> hold_;          ///< null: no holds
  const std::shared_ptr<const HostProgress> progress_;  ///< null: not reported
  mutable std::mutex mutex_;
  std::condition_variable changed_, idle_;
  std::deque<Entry> tasks_;
  bool running_ = false;           ///< a task is running
  bool reports_progress_ = false;  ///< for the running task; changed between tasks
  bool ending_ = false;
  Status status_;

  struct Free {
    void operator()(std::byte* data) const;
  };
  std::unique_ptr<std::byte, Free> scratch_;
  std::size_t scratch_bytes_ = 0;
  std::optional<WorkerPool> workers_;
  std::thread thread_;  ///< last: it uses all of the above
};

/// Downcasts a stream that a host device created.
HostStream& as_host_stream(Stream& stream);

}  // namespace egt
