#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <stop_token>
#include <string>
#include <thread>

#include "egt/core/status.hpp"

namespace egt {

/// A workload's own thread, and the status that it ended with. Its destructor asks it to stop and waits; a
/// thread for which `stop` said timeout is stuck in a system call, and then the process must be left instead.
/// Called by one thread, the owner's, but for what says otherwise.
class WorkerThread {
 public:
  using Work = std::function<Status(std::stop_token)>;

  /// `name` is for messages: "the memory patrol".
  explicit WorkerThread(std::string name) : name_(std::move(name)) {}
  ~WorkerThread() { ask_to_stop(); }
  WorkerThread(const WorkerThread&) = delete;
  WorkerThread& operator=(const WorkerThread&) = delete;

  /// Once. `work` returns soon after a stop is asked for. unavailable: there is no thread for it.
  Status start(Work work);
  bool started() const { return thread_.joinable(); }
  /// Has it returned by itself within `seconds`? True where it was never started.
  bool ended_within(double seconds);
  /// Asks it to stop, without waiting; one that is started later stops at once. Any thread.
  void ask_to_stop() { stop_.request_stop(); }
  /// Asks it to stop and waits for it at most `seconds`, else timeout. Ok where it was never started.
  Status stop(double seconds);
  /// What it failed with; ok while it runs, when it ended well and when it was stopped.
  Status failure() const;

 private:
  void run(const Work& work, const std::stop_token& stop);

  const std::string name_;
  std::stop_source stop_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool ended_ = false;
  Status failure_;
  std::jthread thread_;  ///< last, so that it is joined before the rest goes
};

}  // namespace egt
