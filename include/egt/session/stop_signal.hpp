#pragma once

namespace egt {

/// Takes SIGINT, SIGTERM and SIGUSR1 (which mpirun forwards) as the wish to stop cleanly, for as long as it
/// lives; ignores SIGPIPE and SIGXFSZ. One at a time in a process: signal handlers are the process's.
class StopSignal {
 public:
  StopSignal();
  ~StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;

  /// The number of the first signal received, 0: none yet. Safe from any thread.
  static int received();
};

/// "SIGTERM".
const char* signal_name(int number);

}  // namespace egt
