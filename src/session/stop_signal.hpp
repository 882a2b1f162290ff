#pragma once

#include <memory>
#include <string>
#include <utility>

#include "egt/core/status.hpp"

namespace egt {

/// The wish that this process stops cleanly, of which the first one counts: SIGINT, SIGTERM, SIGQUIT,
/// SIGUSR1 or SIGUSR2 (which of them an mpirun hands on depends on its version), SIGHUP unless it was
/// ignored, or a stop file. Handlers are the process's, so all is static.
class StopSignal {
 public:
  /// `received` where a stop file asked: no signal has this number.
  static constexpr int stop_file = -1;

  /// Before all else in the process: from here on these signals are remembered and end nothing, also those
  /// that whoever started the process had blocked. SIGPIPE and SIGXFSZ are ignored: the write then fails, and
  /// says why. Until `end_start`, a second signal, or the first after some seconds, ends the process with
  /// exit_code::interrupted: a library or a driver hangs. A start of ten minutes ends with no_environment.
  static void take();
  /// The program answers signals from here on, and it has written nothing before. Call it before ranks agree
  /// whether one was stopped: then no rank ends by itself after another has begun to write.
  static void end_start();
  /// Once more, behind the start of libraries: MPI's may have taken or blocked some of them for themselves.
  /// Main thread.
  static void keep();
  /// For what needs no clean stop: signals end the process again, one that has come meanwhile at once.
  static void give_back();
  /// A wish that came by another way than a signal. Any thread.
  static void ask(int number);
  /// The number of the first signal received, or stop_file; 0: none yet. Any thread.
  static int received();
  /// A signal came, be it behind a stop file: whoever sent it may end the process soon (mpirun: after a
  /// second). Any thread.
  static bool leaves_little_time();
  /// True after SIGINT, SIGTERM, SIGQUIT and SIGHUP: who sends these wants the process to end, and may kill
  /// it soon.
  static bool wants_the_end();
};

/// "SIGTERM", "the file stop": what stopped a run, as its records show.
const char* signal_name(int number);

/// Takes the file `stop` in a run's folder as the wish to stop, for as long as it lives: the way that needs
/// no signal. A thread of its own looks about five times a second, and removes the file when it took it. In
/// the folder of a run that goes on, one that is older than this process was meant for the run before, and is
/// removed only. A disk that hangs holds nobody: the thread is then left behind.
class StopFile {
 public:
  /// unavailable: there is no thread for it.
  static Result<std::unique_ptr<StopFile>> open(const std::string& directory, bool is_resumed);
  ~StopFile();
  StopFile(const StopFile&) = delete;
  StopFile& operator=(const StopFile&) = delete;

 private:
  struct Watch;
  explicit StopFile(std::shared_ptr<Watch> watch) : watch_(std::move(watch)) {}

  std::shared_ptr<Watch> watch_;  ///< shared with the thread
};

}  // namespace egt
