#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "egt/core/clock.hpp"
#include "egt/core/status.hpp"
#include "egt/session/record_route.hpp"
#include "egt/session/telemetry.hpp"
#include "egt/workload/workload.hpp"

namespace egt {

/// When a run ends by itself: at whichever comes first; at least one is set.
struct SessionPlan {
  std::optional<double> duration_seconds;
  std::optional<std::int64_t> steps;
  /// Asked before each step (the argument); true on any rank: all there was to do is done.
  std::function<bool(std::int64_t)> is_done;
};

/// The run loop: the same steps on every rank, every workload in the table's order, records carried to their
/// sinks, and a stop after the same step everywhere. Main thread only.
class Session {
 public:
  using Workloads = std::vector<std::unique_ptr<Workload>>;

  /// All arguments outlive the session; the workloads are prepared.
  Session(RecordQueue& records, RecordRoute& route, Telemetry& telemetry, Workloads& workloads);

  /// Runs to the plan's end, a stop signal, or a failure, ends all workloads and emits the end record. The
  /// Status is the failure that ended it, if one did.
  Status run(const SessionPlan& plan);

 private:
  Status run_steps(const SessionPlan& plan);
  Status retire(std::int64_t step);
  void stop_background();
  bool is_over(const SessionPlan& plan) const;
  StopVote own_vote(const SessionPlan& plan, std::int64_t step) const;
  void report_progress();
  Json body() const;
  Json end_body(const SessionPlan& plan, const Status& failure) const;

  RecordQueue& records_;
  RecordRoute& route_;
  Telemetry& telemetry_;
  Workloads& workloads_;
  Clock::time_point started_ = Clock::now(), last_progress_ = Clock::now();
  std::int64_t retired_ = 0;
  StopVote decision_ = StopVote::none;
};

}  // namespace egt
