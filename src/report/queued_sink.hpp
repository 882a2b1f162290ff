#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "egt/report/sink.hpp"
#include "report/console/console.hpp"

namespace egt {

/// A sink that may block for ever (a stopped terminal, a pipe that nobody reads), on a thread of its own
/// behind a bounded queue: nobody waits for it. While the queue is full, progress, epochs and notices are
/// dropped; where the sink goes on, a line tells how many. All else is kept. Any thread.
class QueuedSink : public Sink {
 public:
  static constexpr std::size_t capacity = 1024;  ///< records, above which some are dropped

  /// `name`: of the sink, for messages ("the log file"). The sink is used by the new thread alone.
  static Result<std::unique_ptr<QueuedSink>> open(std::string name, std::shared_ptr<Sink> sink);
  /// Waits a second at most; a thread that the sink holds then is left behind, with all that it uses.
  ~QueuedSink() override;
  QueuedSink(const QueuedSink&) = delete;
  QueuedSink& operator=(const QueuedSink&) = delete;

  /// Enqueues it. What the sink failed with last, if it did.
  Status write(const Record& record) override;
  /// Likewise; the sink is flushed by its thread.
  Status flush() override;
  /// Is called on the sink's thread, after all that is enqueued.
  void post(std::function<void()> task);
  /// Takes nothing any more; does not wait for what is enqueued.
  void close();
  /// Has all that was enqueued so far been written and flushed, or failed to be?
  bool settled() const;
  /// Has all been written, after `close`?
  bool ended() const;

 private:
  struct State;
  QueuedSink(std::shared_ptr<State> state, std::thread thread);

  const std::shared_ptr<State> state_;
  std::thread thread_;  ///< owns a share of `state_`
};

/// The console of this process's standard output and error, on its thread.
class QueuedConsole {
 public:
  static Result<std::unique_ptr<QueuedConsole>> open(const ConsoleStyle& style);
  QueuedSink& sink() { return *sink_; }
  /// Is called with the console on its thread, after all that is enqueued.
  void show(std::function<void(Console&)> what);

 private:
  QueuedConsole(std::shared_ptr<Console> console, std::unique_ptr<QueuedSink> sink)
      : console_(std::move(console)), sink_(std::move(sink)) {}

  const std::shared_ptr<Console> console_;
  const std::unique_ptr<QueuedSink> sink_;
};

}  // namespace egt
