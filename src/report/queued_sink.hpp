#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "egt/report/sink.hpp"
#include "report/console/console.hpp"

namespace egt {

/// Runs a sink that may block forever (a stopped terminal, an unread pipe) on its own thread behind a bounded
/// queue, so that no caller waits. A full queue drops progress, epoch and notice records; a later line
/// reports how many. All other records are kept. Callable from any thread.
class QueuedSink : public Sink {
 public:
  static constexpr std::size_t capacity = 1024;  ///< max records; a full queue drops droppable ones

  /// `name`: name of the sink for messages ("the log file"). Only the new thread uses the sink.
  static Result<std::unique_ptr<QueuedSink>> open(std::string name, std::shared_ptr<Sink> sink);
  /// Waits at most one second. A thread that the sink still blocks is abandoned, with all that it uses.
  ~QueuedSink() override;
  QueuedSink(const QueuedSink&) = delete;
  QueuedSink& operator=(const QueuedSink&) = delete;

  /// Enqueues the record. Returns the last failure of the sink, if any.
  Status write(const Record& record) override;
  /// Returns the last failure of the sink, if any. The sink's thread flushes on its own.
  Status flush() override;
  /// Runs `task` on the sink's thread, after everything enqueued so far.
  void post(std::function<void()> task);
  /// Rejects further records; does not wait for those already enqueued.
  void close();
  /// Whether everything enqueued so far was written and flushed, or failed.
  bool settled() const;
  /// Whether everything was written after `close`.
  bool ended() const;

 private:
  struct State;
  QueuedSink(std::shared_ptr<State> state, std::thread thread);

  const std::shared_ptr<State> state_;
  std::thread thread_;  ///< shares ownership of `state_`
};

/// The console on this process's stdout and stderr, with its own thread.
class QueuedConsole {
 public:
  static Result<std::unique_ptr<QueuedConsole>> open(const ConsoleStyle& style);
  QueuedSink& sink() { return *sink_; }
  /// Calls `what` with the console on its thread, after everything enqueued so far.
  void show(std::function<void(Console&)> what);

 private:
  QueuedConsole(std::shared_ptr<Console> console, std::unique_ptr<QueuedSink> sink)
      : console_(std::move(console)), sink_(std::move(sink)) {}

  const std::shared_ptr<Console> console_;
  const std::unique_ptr<QueuedSink> sink_;
};

}  // namespace egt
