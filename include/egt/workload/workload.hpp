#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <stop_token>
#include <string>
#include <vector>

#include "egt/core/clock.hpp"
#include "egt/core/load_control.hpp"
#include "egt/core/part_report.hpp"
#include "egt/core/progress_board.hpp"
#include "egt/core/record.hpp"
#include "egt/core/record_queue.hpp"
#include "egt/core/status.hpp"
#include "egt/device/device.hpp"
#include "egt/device/sensor.hpp"
#include "egt/ranks/communicator.hpp"
#include "egt/ranks/control.hpp"
#include "egt/workload/injector.hpp"

namespace egt {

/// Context of every workload; outlives them all.
struct Environment {
  Device& device;
  Communicator& communicator;
  RecordQueue& records;
  const RankPlace& place;
  std::uint64_t seed;
  Injector& injector;
  /// Ranks with the same text must produce the same bits: device name, multiprocessors, driver, libraries.
  std::string device_model;
  ProgressBoard& board;  ///< current activity of every thread
  LoadControl& load;     ///< limits of the load
  /// Time limit of any wait for peers. The watchdog reports a lost peer long before it.
  double peer_timeout_seconds = 60;
  /// Length of a window in which training measures a standalone rate. 0: one window of one operation, for
  /// tests that do not check rates.
  double rate_window_ms = 3;
  /// Newest sample of this rank's sensor; all empty if no sensor monitors the device. Any thread.
  std::function<SensorReading()> reading = [] { return SensorReading(); };
  /// Newest load sample of the node. Any thread.
  std::function<HostLoad()> host_load = [] { return HostLoad(); };
  /// Writes the records emitted so far to the journal, before work that may last long or crash. Main thread.
  std::function<Status()> publish = [] { return Status(); };
  /// The run directory; empty: this run keeps no reproducers.
  std::string directory = {};
  std::string program_version = {};
};

/// A rank's vote on ending the run. Ordered, so that the max over all ranks is the decision.
enum class StopVote { none, finished, interrupted };

/// Input of one step, from the session.
struct Step {
  std::int64_t index = 0;
  StopVote vote = StopVote::none;  ///< of this rank
};

/// Result of a step, after it has finished on the device.
struct StepOutcome {
  StopVote decision = StopVote::none;  ///< of all ranks: the same on every rank
};

/// The communicator was aborted and rebuilt; all ranks continue together at an earlier step.
struct RestartInfo {
  int number = 1;              ///< counts the run's restarts
  std::int64_t next_step = 0;  ///< first step to be enqueued again; set by the training workload
};

/// How a run ends. It is hurried after a rank failed, and after a signal, since mpirun kills ranks 1 s later.
struct Shutdown {
  static constexpr double hurried_seconds = 0.3;  ///< for all workloads together

  Shutdown(bool is_hurried) : hurry(is_hurried) {}  // NOLINT(google-explicit-constructor): that is all it is
  /// Time limit of a wait that starts now: `unhurried`, or in a hurry the remaining time.
  double seconds(double unhurried) const {
    return hurry ? std::max(0.0, hurried_seconds - seconds_since(begun)) : unhurried;
  }

  bool hurry;
  Clock::time_point begun = Clock::now();
};

/// One part of the load. All calls come from the main thread, on all ranks in the same order. Work that would
/// block other workloads runs on the workload's own streams and threads.
class Workload {
 public:
  virtual ~Workload() = default;
  virtual std::string name() const = 0;
  /// Allocates memory and initializes. Called in the run's workload order, so training allocates first.
  virtual Status prepare() = 0;
  /// Starts the workload's own threads, if any. Called in the run's workload order, except that the first
  /// workload starts last: its self-checks in every precision then run while the others load the device.
  virtual Status start() { return {}; }
  /// Enqueues this step's work; does not wait for it.
  virtual Status enqueue(const Step&) { return {}; }
  /// Waits (with a deadline) for the work that step `index` enqueued and checks its results. Called a fixed
  /// number of steps after enqueue.
  virtual Status retire(std::int64_t, StepOutcome&) { return {}; }
  /// The communicator was aborted. Waits up to `timeout_seconds` until work that was enqueued but not retired
  /// has left the streams. The session then calls `resume`, or `finish` if the run ends.
  virtual Status give_up_steps(double) { return {}; }
  /// All ranks have a new communicator, and the calls continue with enqueue(restart.next_step). Called in the
  /// run's workload order, so that training comes first and sets the step at which all continue.
  virtual Status resume(RestartInfo&) { return {}; }
  /// The run is about to be interrupted: threads start no more work. Does not wait. May be called repeatedly,
  /// and from any thread after `start`.
  virtual void stop_background() {}
  /// No more steps follow: ends threads, removes files. In a hurry nothing more is verified, and a thread
  /// that does not end in time (blocked in a system call) is left to the destructor. Otherwise completes the
  /// checks that the verdict needs, for example reads every byte at least once.
  virtual Status finish(const Shutdown& ending) = 0;
  /// Callable at any time between prepare and destruction.
  virtual PartReport report() const = 0;
  /// Reports of a workload that consists of several parts.
  virtual std::vector<PartReport> reports() const { return {report()}; }
};

}  // namespace egt
