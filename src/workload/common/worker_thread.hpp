#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <stop_token>
#include <string>
#include <thread>

#include "egt/core/status.hpp"

namespace egt {

/// A workload's own thread and its final status. The destructor requests a stop and joins. If `stop` returned
/// timeout, the thread is stuck in a system call, and the process must exit without the destructor. Only the
/// owner's thread may call it, unless noted otherwise.
class WorkerThread {
 public:
  using Work = std::function<Status(std::stop_token)>;

  /// `name` is used in messages.
  explicit WorkerThread(std::string name) : name_(std::move(name)) {}
  ~WorkerThread() { ask_to_stop(); }
  WorkerThread(const WorkerThread&) = delete;
  WorkerThread& operator=(const WorkerThread&) = delete;

  /// Call once. `work` must return soon after a stop request. `unavailable`: no thread created.
  Status start(Work work);
  bool started() const { return thread_.joinable(); }
  /// True if the work returned within `seconds`, or was never started.
  bool ended_within(double seconds);
  /// Requests a stop without waiting; a thread started later stops at once. Any thread.
  void ask_to_stop() { stop_.request_stop(); }
  /// Requests a stop and waits at most `seconds`, else timeout. Ok if it was never started.
  Status stop(double seconds);
  /// Error of the work; ok while it runs, after success and after a stop.
  Status failure() const;

 private:
  void run(const Work& work, const std::stop_token& stop);

  const std::string name_;
  std::stop_source stop_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool ended_ = false;
  Status failure_;
  std::jthread thread_;  ///< last, so that it is joined before the other members are destroyed
};

}  // namespace egt
