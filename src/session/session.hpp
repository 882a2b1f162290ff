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

/// End conditions of a run. The first one that occurs ends it, so one or more must be set.
struct SessionPlan {
  std::optional<double> duration_seconds;
  std::optional<std::int64_t> steps;
  /// Called before each step with its index. True on any rank means that all work is done.
  std::function<bool(std::int64_t)> is_done;
  bool fail_fast = false;       ///< a fault on any rank also ends the run
  bool is_interrupted = false;  ///< same on all ranks: start no workload, end as stopped
  /// Called before each step is enqueued, with its index. Injected stalls take place there.
  std::function<void(std::int64_t)> before_step;
  /// Called after all workloads have finished without a failure or a request to stop, before the end record.
  std::function<void()> before_end = {};
  Json expected = {};           ///< of the values under load, see judge/expectations.hpp; empty: none
  std::string light_load = {};  ///< why the expected power is not judged; empty: it is
};

/// Recovery after ranks lost communication. Called by the main thread.
class Recovery {
 public:
  virtual ~Recovery() = default;
  /// Called after `failure` ended the steps. Returns the number of the restart once all ranks have joined it
  /// and have a new communicator. Returns std::nullopt if there is no restart and the run ends. `drain` is
  /// called after the communicator was aborted. A rank whose device does not become idle does not join the
  /// restart.
  virtual std::optional<int> meet(const Status& failure, const std::function<Status()>& drain) = 0;
  /// Reports that this rank continues at `next_step`. `given_up_step`: the first step that was not completed.
  virtual void resumed(int number, std::int64_t given_up_step, std::int64_t next_step) = 0;
  /// Reports that this rank has completed all its steps and joins no further restart.
  virtual void end_steps() = 0;
  /// Returns whether the run ends because of other ranks.
  virtual bool lost_peers() const = 0;
};

/// The run loop. It runs the same steps on every rank, calls the workloads in their given order and routes
/// records to their sinks. All ranks stop after the same step. Main thread only.
class Session {
 public:
  using Workloads = std::vector<std::unique_ptr<Workload>>;

  /// All references outlive the session. The workloads are prepared.
  struct Context {
    MonitoredDevice monitored;
    const Device& device;
    RecordQueue& records;
    RecordRouter& route;
    Telemetry& telemetry;
    ProgressBoard& board;
    const LoadControl& load;
    Recovery& recovery;
    Pulse* pulse = nullptr;  ///< starts with the first step; null: steady load
  };
  Session(const Context& context, Workloads& workloads);

  /// Runs until the plan's end, a stop signal or a failure. Then it finishes all workloads and emits the end
  /// record. Returns the failure that ended the run, if any.
  Status run(const SessionPlan& plan);
  /// After `run`: the body of the fault's record if the device failed, else null.
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
  void check_expected(const SessionPlan& plan, Json& end);

  const MonitoredDevice monitored_;
  const Device& device_;
  RecordQueue& records_;
  RecordRouter& route_;
  Telemetry& telemetry_;
  ProgressBoard::Line& line_;
  const LoadControl& load_;
  Recovery& recovery_;
  Pulse* const pulse_;
  Workloads& workloads_;
  Clock::time_point started_ = Clock::now(), last_progress_ = Clock::now();
  Clock::time_point loaded_ = Clock::now();  ///< when all workloads but the first had started
  std::int64_t next_step_ = 0, retired_ = 0;
  StopVote decision_ = StopVote::none;
  bool reached_end_ = false;  ///< the plan's end, or a stop request, as seen by this rank
  Json device_fault_;         ///< body of the fault's record, once the device failed
};

}  // namespace egt
