#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "egt/core/status.hpp"

namespace egt {

/// Flag of a device: while it is set, work that has not started waits.
class HostHold {
 public:
  void set(bool is_held) { is_held_ = is_held; }
  /// Waits while the flag is set. timeout: for longer than Device::longest_hold_seconds.
  Status wait() const;

 private:
  std::atomic<bool> is_held_{false};
};

/// Threads that share the chunks of one piece of work. The caller fixes the chunks, so results do not depend
/// on the number of threads. `run` must not be called concurrently.
class WorkerPool {
 public:
  /// `threads` includes the caller of `run`, so 1 starts none. New threads inherit the caller's nice value.
  /// `hold`: checked before each chunk; null: none.
  explicit WorkerPool(int threads, std::shared_ptr<const HostHold> hold = {});
  ~WorkerPool();
  /// unavailable: not all threads could be started. Those that run share the work.
  const Status& status() const { return status_; }
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  /// Calls body(0) .. body(chunks - 1), each once, in any order on any thread. Returns when all are done.
  void run(std::int64_t chunks, const std::function<void(std::int64_t)>& body);

 private:
  void serve();
  void take_chunks();
  void take_chunk(std::int64_t chunk, const std::function<void(std::int64_t)>& body) const;

  const std::shared_ptr<const HostHold> hold_;
  std::mutex mutex_;
  std::condition_variable started_, finished_;
  const std::function<void(std::int64_t)>* body_ = nullptr;
  std::int64_t chunks_ = 0;
  std::atomic<std::int64_t> next_{0};
  bool open_ = false;     ///< `run` still accepts threads
  std::size_t busy_ = 0;  ///< threads that process chunks
  bool ending_ = false;
  Status status_;
  std::vector<std::thread> threads_;
};

}  // namespace egt
