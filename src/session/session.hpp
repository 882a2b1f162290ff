#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "egt/core/clock.hpp"
#include "egt/core/status.hpp"
#include "egt/workload/workload.hpp"
#include "session/health/pulse.hpp"
#include "session/health/telemetry.hpp"
#include "session/record_router.hpp"

namespace egt {

/// When a run ends by itself: at whichever comes first; at least one is set.
struct SessionPlan {
  std::optional<double> duration_seconds;
  std::optional<std::int64_t> steps;
  /// Asked before each step (the argument); true on any rank: all there was to do is done.
  std::function<bool(std::int64_t)> is_done;
  bool fail_fast = false;       ///< a fault on any rank ends it too
  bool is_interrupted = false;  ///< all ranks know already: nothing is started, and the run ends as stopped
  /// Called before each step is enqueued (the argument): stalls on purpose strike there.
  std::function<void(std::int64_t)> before_step;
};

/// What a run does when its ranks lose touch. Called by the main thread.
class Rejoin {
 public:
  virtual ~Rejoin() = default;
  /// `failure` ended the steps. The number of the restart for which all ranks have met and have a new
  /// communicator; nothing: there is none, and the run ends. `drain`: called once the communicator is given
  /// up; a rank whose device does not come to rest does not come to the meeting.
  virtual std::optional<int> meet(const Status& failure, const std::function<Status()>& drain) = 0;
  /// This rank goes on at `next_step`, after `given_up_step` was not reached.
  virtual void resumed(int number, std::int64_t given_up_step, std::int64_t next_step) = 0;
  /// This rank has done all its steps, and comes to no restart any more.
  virtual void end_steps() = 0;
  /// Does the run end because of other ranks?
  virtual bool lost_peers() const = 0;
};

/// The run loop: the same steps on every rank, every workload in the table's order, records carried to their
/// sinks, and a stop after the same step everywhere. Main thread only.
class Session {
 public:
  using Workloads = std::vector<std::unique_ptr<Workload>>;

  /// All outlive the session; the workloads are prepared.
  struct Surroundings {
    MonitoredDevice monitored;
    const Device& device;
    RecordQueue& records;
    RecordRouter& route;
    Telemetry& telemetry;
    ProgressBoard& board;
    const LoadControl& load;
    Rejoin& rejoin;
    Pulse* pulse = nullptr;  ///< starts with the first step; null: the load is steady
  };
  Session(const Surroundings& surroundings, Workloads& workloads);

  /// Runs to the plan's end, a stop signal, or a failure, ends all workloads and emits the end record. The
  /// Status is the failure that ended it, if one did.
  Status run(const SessionPlan& plan);
  /// After `run`: the body of the fault's record, if the device failed; else null.
  const Json& device_fault() const { return device_fault_; }

 private:
  Status run_steps(const SessionPlan& plan);
  Status make_steps(const SessionPlan& plan);
  void rest(double worked_seconds);
  Status drain();
  Status resume(int number);
  Status retire(std::int64_t step);
  Status report_device_error(const Status& failure);
  void stop_background();
  bool is_over(const SessionPlan& plan) const;
  StopVote own_vote(const SessionPlan& plan, std::int64_t step) const;
  void report_progress();
  Json body() const;
  Json end_body(const SessionPlan& plan, const Status& failure) const;

  const MonitoredDevice monitored_;
  const Device& device_;
  RecordQueue& records_;
  RecordRouter& route_;
  Telemetry& telemetry_;
  ProgressBoard::Line& line_;
  const LoadControl& load_;
  Rejoin& rejoin_;
  Pulse* const pulse_;
  Workloads& workloads_;
  Clock::time_point started_ = Clock::now(), last_progress_ = Clock::now();
  Clock::time_point loaded_ = Clock::now();  ///< when all but the first one were started
  std::int64_t next_step_ = 0, retired_ = 0;
  StopVote decision_ = StopVote::none;
  Json device_fault_;  ///< the body of its record, once the device failed
};

}  // namespace egt
