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
#include "workload/common/injector.hpp"

namespace egt {

/// What every workload stands in; outlives them all.
struct Environment {
  Device& device;
  Communicator& communicator;
  RecordQueue& records;
  const RankPlace& place;
  std::uint64_t seed;
  Injector& injector;
  /// Ranks with the same text must give the same bits: device name, multiprocessors, driver, libraries.
  std::string device_model;
  ProgressBoard& board;  ///< where every thread tells what it does
  LoadControl& load;     ///< how hard it may work
  /// The last deadline of a wait for peers: long after the watchdog has judged them.
  double peer_timeout_seconds = 60;
  /// Of a window in which training measures a standalone rate; 0: one window of one operation, for tests that
  /// do not look at rates.
  double rate_window_ms = 3;
  /// The newest sample of this rank's sensor; all empty where nothing watches the device. Any thread.
  std::function<SensorReading()> reading = [] { return SensorReading(); };
  /// The same of the node. Any thread.
  std::function<HostLoad()> host_load = [] { return HostLoad(); };
  /// Takes the records emitted so far to the journal, before what may take long or break off. Main thread.
  std::function<Status()> publish = [] { return Status(); };
};

/// What a rank wants of the run; ordered, so that the strongest wish of any rank is everybody's decision.
enum class StopVote { none, finished, interrupted };

/// What the session asks of one step.
struct Step {
  std::int64_t index = 0;
  StopVote vote = StopVote::none;  ///< of this rank
};

/// What became of a step, once it is over on the device.
struct StepOutcome {
  StopVote decision = StopVote::none;  ///< of all ranks: the same on every rank
};

/// The communicator was given up and is new; all ranks go on together at an earlier step.
struct RestartInfo {
  int number = 1;              ///< of the run's restarts
  std::int64_t next_step = 0;  ///< the first one to be enqueued again: told by the one that trains
};

/// How a run ends: in a hurry after a signal, when mpirun leaves a second, and where a rank failed.
struct Ending {
  static constexpr double hurried_seconds = 0.3;  ///< for all workloads together

  Ending(bool is_hurried) : hurry(is_hurried) {}  // NOLINT(google-explicit-constructor): that is all it is
  /// For a wait from now on: `unhurried`, or, in a hurry, what is left.
  double seconds(double unhurried) const {
    return hurry ? std::max(0.0, hurried_seconds - seconds_since(begun)) : unhurried;
  }

  bool hurry;
  Clock::time_point begun = Clock::now();
};

/// One part of the load. All calls come from the main thread, on all ranks in the same order; work that would
/// make others wait runs on streams and threads of the workload's own.
class Workload {
 public:
  virtual ~Workload() = default;
  virtual std::string name() const = 0;
  /// Takes memory and makes ready; workloads prepare in the table's order, so that training is served first.
  virtual Status prepare() = 0;
  /// Starts threads of its own, if any. In the table's order, but the first one last: what training checks of
  /// itself in every precision goes on beside the load of all others, so that the device is full early.
  virtual Status start() { return {}; }
  /// Enqueues this step's work; does not wait for it.
  virtual Status enqueue(const Step&) { return {}; }
  /// Waits (with a deadline) for what step `index` enqueued and looks at its results; called a fixed
  /// number of steps after enqueue.
  virtual Status retire(std::int64_t, StepOutcome&) { return {}; }
  /// The communicator was aborted: waits, at most `timeout_seconds`, until what was enqueued and not retired
  /// is out of the streams. `resume` follows, or the end.
  virtual Status give_up_steps(double) { return {}; }
  /// All ranks have a new communicator; the calls go on with enqueue(restart.next_step). In
  /// the table's order, so that the training one comes first and writes where the others go on.
  virtual Status resume(RestartInfo&) { return {}; }
  /// The run is about to be interrupted: threads begin no more work. Does not wait; may come more than once,
  /// and from any thread once `start` was called.
  virtual void stop_background() {}
  /// No more steps come: ends threads, removes files. In a hurry no more is verified, and what does not end
  /// in time (a thread that a system call holds) is left to the destructor; else finishes what makes the
  /// verdict whole (every byte seen at least once).
  virtual Status finish(const Ending& ending) = 0;
  /// At any time between prepare and destruction.
  virtual PartReport report() const = 0;
  /// The same where a workload stands for several parts.
  virtual std::vector<PartReport> reports() const { return {report()}; }
};

}  // namespace egt
