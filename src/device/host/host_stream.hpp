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

/// A stream of the host: a thread that runs tasks in order. The first error is kept: later tasks are skipped,
/// but events are still reached, so that nobody waits for ever.
class HostStream final : public Stream {
 public:
  using Task = std::function<Status()>;
  /// Gets the stream's status so far and returns the one it has afterwards.
  using StatusTask = std::function<Status(const Status&)>;

  /// `cores`: threads that a task may use by `workers`. A low-priority stream runs at nice 19. `hold`: of its
  /// device, looked at before each task and each of its chunks. unavailable: there is no thread for it.
  static Result<std::unique_ptr<HostStream>> create(StreamPriority priority, int cores,
                                                    StreamUse use = StreamUse::all,
                                                    std::shared_ptr<const HostHold> hold = {});
  /// Waits for all work enqueued.
  ~HostStream() override;
  HostStream(const HostStream&) = delete;
  HostStream& operator=(const HostStream&) = delete;

  /// Enqueues the task. Safe from any thread.
  void enqueue(Task task);
  /// The same for a task that runs after an error too.
  void enqueue_always(StatusTask task);

  /// The first error of the work done so far.
  Status status() const;
  /// Takes tasks again after an error.
  void forget_failure();
  /// Does the destructor wait for the work?
  bool is_ending() const;
  /// Waits until nothing is enqueued; false when `timeout_seconds` passed before.
  bool wait_idle(double timeout_seconds);

  /// For tasks only, on the stream's own thread: memory that is the task's until it ends, 64-byte aligned.
  Result<std::byte*> scratch(std::size_t bytes);
  /// For tasks only: the threads that share a task's work, started when first asked for. Where there are
  /// fewer to be had, the task is done by those, and fails.
  WorkerPool& workers();

 private:
  HostStream(int cores, StreamUse use, std::shared_ptr<const HostHold> hold)
      : Stream(use), cores_(cores), hold_(std::move(hold)) {}
  void serve(StreamPriority priority);

  const int cores_;
  const std::shared_ptr<const HostHold> hold_;  ///< null: there is none
  mutable std::mutex mutex_;
  std::condition_variable changed_, idle_;
  std::deque<StatusTask> tasks_;
  bool running_ = false;  ///< a task was taken and is not over
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

/// The stream as the host's; it must have been made by a host device.
HostStream& as_host_stream(Stream& stream);

}  // namespace egt
