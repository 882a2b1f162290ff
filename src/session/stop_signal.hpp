#pragma once

#include <memory>
#include <string>
#include <utility>

#include "egt/core/status.hpp"

namespace egt {

/// The first request to stop this process cleanly: a stop file or a signal. Signals are SIGINT, SIGTERM,
/// SIGQUIT, SIGUSR1, SIGUSR2, and SIGHUP unless it was ignored. mpirun forwards some of them, depending on
/// its version. Signal handlers are per process, so all members are static.
class StopSignal {
 public:
  /// Value of `received` for a stop file; no signal has this number.
  static constexpr int stop_file = -1;

  /// Call it first in the process. From here on these signals are recorded and do not end the process, even
  /// if the parent process had blocked them. SIGPIPE and SIGXFSZ are ignored, so that writes fail with an
  /// error. Until `end_start` a library or a driver may hang: a second signal, or the first one after some
  /// seconds, exits with exit_code::interrupted. A start of ten minutes exits with no_environment.
  static void take();
  /// From here on the program handles signals itself. Call it before the program writes anything, and before
  /// ranks agree whether one was stopped. Then no rank exits alone after another has started to write.
  static void end_start();
  /// Installs the handlers again after libraries started, since MPI may have replaced or blocked some. Main
  /// thread.
  static void keep();
  /// Restores the previous actions for commands that need no clean stop. A pending signal is raised at once.
  static void give_back();
  /// Requests a stop by another way than a signal. Any thread.
  static void ask(int number);
  /// The number of the first signal received, or stop_file; 0: none yet. Any thread.
  static int received();
  /// True once a signal arrived, even after a stop file. Its sender may end the process soon (mpirun: after a
  /// second). Any thread.
  static bool leaves_little_time();
  /// True after SIGINT, SIGTERM, SIGQUIT and SIGHUP. Their sender wants the process to end and may kill it
  /// soon.
  static bool wants_the_end();
};

/// What stopped a run, as its records show it: "SIGTERM", "the file stop".
const char* signal_name(int number);

/// Treats the file `stop` in a run's directory as a stop request, which needs no signal. A thread checks
/// about five times per second and removes the file once read. In the directory of a resumed run, a file
/// older than this process belongs to the previous run and is only removed. If the disk hangs, the thread is
/// abandoned.
class StopFile {
 public:
  /// unavailable if the thread cannot be created.
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
