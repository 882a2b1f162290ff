#include "session/session.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "judge/expectations.hpp"
#include "judge/load_report.hpp"
#include "judge/record_schema.hpp"
#include "model/mlp_trainer.hpp"
#include "session/stop_signal.hpp"

namespace egt {

namespace {

constexpr double progress_period_s = 1.0;
constexpr double hurried_telemetry_s = 0.1;
constexpr double failure_telemetry_s = 2;  // for a failed device, whose counters may show the cause
constexpr double start_patience_s = 120;   // for the first results in every precision
constexpr double finish_patience_s = 300;  // for the last memory test pass, and for a file cycle to end
constexpr double drain_timeout_s = 20;     // for work enqueued before the communicator was aborted

}  // namespace

Session::Session(const Context& context, Workloads& workloads)
    : monitored_(context.monitored),
      device_(context.device),
      records_(context.records),
      route_(context.route),
      telemetry_(context.telemetry),
      line_(context.board.line("main")),
      load_(context.load),
      recovery_(context.recovery),
      pulse_(context.pulse),
      workloads_(workloads) {}

Status Session::run(const SessionPlan& plan) {
  started_ = last_progress_ = Clock::now();
  Status failure;
  const auto keep_first = [&](const Status& status) {
    if (failure.ok()) failure = status;
  };
  if (plan.is_interrupted) {
    decision_ = StopVote::interrupted;
  } else {
    line_.begin("start", 0, start_patience_s);
    for (std::size_t i = 1; i < workloads_.size(); ++i) keep_first(workloads_[i]->start());
    loaded_ = Clock::now();
    if (!workloads_.empty()) keep_first(workloads_.front()->start());
    if (failure.ok() && pulse_) keep_first(pulse_->start());
    if (failure.ok()) keep_first(run_steps(plan));
  }
  if (failure.ok()) recovery_.end_steps();
  failure = report_device_error(failure);
  // After a failure peers may not participate any more, so no work that needs them may start.
  const Shutdown ending(!failure.ok() || decision_ == StopVote::interrupted);
  if (ending.hurry) stop_background();
  const bool is_hurried = decision_ == StopVote::interrupted || recovery_.lost_peers();
  if (!device_fault_.is_null())
    telemetry_.stop(failure_telemetry_s);  // first, since the workloads may hang on the device
  std::string failed_in;
  for (auto& workload : workloads_) {  // the last phase of one part must not be blamed for the next part
    const std::string phase = fmt::format("finish: {}", workload->name());
    line_.begin(phase, retired_ - 1, finish_patience_s);
    const Status finished = workload->finish(ending);
    if (failure.ok() && !finished.ok()) failed_in = phase;
    keep_first(finished);
  }
  if (!failed_in.empty()) line_.begin(failed_in, retired_ - 1, finish_patience_s);
  if (failure.ok() && !ending.hurry && plan.before_end) {
    line_.begin("reproducers", retired_ - 1, finish_patience_s);
    plan.before_end();
  }
  telemetry_.stop(!ending.hurry ? Telemetry::stop_seconds
                  : is_hurried  ? hurried_telemetry_s
                                : failure_telemetry_s);
  failure = report_device_error(failure);  // a background thread may have been the first to detect it
  // A truncated journal means missing evidence, which is reported like any other failure.
  Json end = end_body(plan, failure.ok() ? route_.journal_failure() : failure);
  if (failure.ok() && !ending.hurry && !plan.expected.empty()) check_expected(plan, end);
  records_.emit(RecordKind::end, retired_ - 1, std::move(end));
  return failure;
}

/// Rank 0 reports what no rank measured: it has the values that belong to all ranks.
void Session::check_expected(const SessionPlan& plan, Json& end) {
  Json not_run = Json::array();
  for (const Deviation& one : check_under_load(plan.expected, end, plan.light_load, not_run))
    records_.emit(monitored_.finding("expectation", one.key, one.text, one.expected, one.actual));
  if (monitored_.rank == 0) end["not_run"] = std::move(not_run);
}

Status Session::run_steps(const SessionPlan& plan) {
  Status status = make_steps(plan);
  while (!status.ok()) {
    status = report_device_error(status);
    if (!device_fault_.is_null()) break;  // its context is unusable, so the rank cannot restart
    const auto number = recovery_.meet(status, [this] { return drain(); });
    if (!number) break;
    status = resume(*number);
    // Peers cause timeouts and aborts, so the rank joins the next restart. Any other failure would recur in
    // an endless loop, since the watchdog's restart order stays valid until the rank has resumed.
    if (!status.ok() && status.code() != StatusCode::timeout && status.code() != StatusCode::aborted) break;
    if (status.ok()) status = make_steps(plan);
  }
  return status;
}

Status Session::make_steps(const SessionPlan& plan) {
  const std::int64_t first = next_step_;
  for (bool last = plan.steps && next_step_ >= *plan.steps; !last; ++next_step_) {
    const auto begun = Clock::now();
    line_.begin("step", next_step_);
    if (plan.before_step) plan.before_step(next_step_);
    const StopVote vote = own_vote(plan, next_step_);
    if (vote == StopVote::interrupted) stop_background();
    for (auto& workload : workloads_) EGT_TRY(workload->enqueue({.index = next_step_, .vote = vote}));
    if (next_step_ >= first + MlpTrainer::depth) EGT_TRY(retire(next_step_ - MlpTrainer::depth));
    report_progress();
    EGT_TRY(route_.pump());
    rest(seconds_since(begun));
    // Every rank learns the votes of a step when it retires that step. The distance to the newest enqueued
    // step is the same on all ranks, so all of them stop after the same step.
    last = decision_ != StopVote::none || (plan.steps && next_step_ + 1 >= *plan.steps);
  }
  reached_end_ = own_vote(plan, next_step_) != StopVote::none || (plan.steps && next_step_ >= *plan.steps);
  while (retired_ < next_step_) EGT_TRY(retire(retired_));
  return {};
}

/// Returns the device's error if it caused `failure`. Libraries and communicators return errors of their own,
/// but every call of a failed device returns the device's. The error becomes a fault on disk before anything
/// waits for the device. A hanging device is not queried.
Status Session::report_device_error(const Status& failure) {
  if (!device_fault_.is_null() || failure.code() == StatusCode::timeout) return failure;
  const Status error = failure.code() == StatusCode::device_error ? failure : device_.memory().status();
  if (error.code() != StatusCode::device_error) return failure;
  const Activity activity = line_.read();
  const Fault fault = make_device_fault(monitored_, error, activity.step, activity.phase);
  device_fault_ = to_json(fault);
  records_.emit(fault);
  static_cast<void>(route_.pump());
  return error;
}

/// Reports the pause, so that the failure detector does not treat this rank as stuck. A stop request ends the
/// pause at once, since mpirun leaves a second.
void Session::rest(double worked_seconds) {
  if (load_.rest_after(worked_seconds) <= 0) return;
  line_.begin("rest: the duty is lowered", next_step_, 2 * LoadControl::longest_rest_seconds);
  load_.rest(worked_seconds, [] { return StopSignal::received() != 0; });
}

/// Called after the communicator was aborted. Ends the work that hangs on it.
Status Session::drain() {
  for (auto& workload : workloads_) EGT_TRY(workload->give_up_steps(drain_timeout_s));
  return {};
}

/// Called after all ranks have met. Returns to the step that they agree on.
Status Session::resume(int number) {
  const std::int64_t given_up = retired_;
  RestartInfo restart{.number = number, .next_step = next_step_};
  line_.begin("restart", given_up, start_patience_s);
  for (auto& workload : workloads_) EGT_TRY(workload->resume(restart));
  next_step_ = retired_ = restart.next_step;
  decision_ = StopVote::none;
  line_.begin("step", next_step_);
  recovery_.resumed(number, given_up, next_step_);
  return {};
}

Status Session::retire(std::int64_t step) {
  StepOutcome outcome;
  for (auto& workload : workloads_) {
    EGT_TRY(workload->retire(step, outcome));
    line_.go_on("step");  // the workload's wait has ended
  }
  decision_ = std::max(decision_, outcome.decision);
  ++retired_;
  return {};
}

void Session::stop_background() {
  for (auto& workload : workloads_) workload->stop_background();
}

bool Session::is_over(const SessionPlan& plan) const {
  return plan.duration_seconds && seconds_since(started_) >= *plan.duration_seconds;
}

StopVote Session::own_vote(const SessionPlan& plan, std::int64_t step) const {
  if (StopSignal::received() != 0) return StopVote::interrupted;
  if (plan.fail_fast && records_.has_fault()) return StopVote::finished;
  if (is_over(plan) || (plan.is_done && plan.is_done(step))) return StopVote::finished;
  return StopVote::none;
}

void Session::report_progress() {
  if (seconds_since(last_progress_) < progress_period_s) return;
  last_progress_ = Clock::now();
  telemetry_.ask_overdue();
  records_.emit(RecordKind::progress, retired_ - 1, body());
}

Json Session::body() const {
  std::vector<PartReport> reports;
  for (const auto& workload : workloads_)
    for (PartReport& part : workload->reports()) reports.push_back(std::move(part));
  const Json telemetry = telemetry_.summary();
  const auto is_load = [](const PartReport& part) { return !part.load.mix.is_null(); };
  if (std::any_of(reports.begin(), reports.end(), is_load)) {
    reports.push_back(load_report(reports, seconds_since(loaded_), telemetry));
    reports.back().figures["pulse"] = pulse_ ? pulse_->figures() : Json(nullptr);
  }
  Json parts = Json::array();
  for (const PartReport& part : reports) parts.push_back(part_to_json(part));
  return {{"elapsed_seconds", seconds_since(started_)},
          {"steps", retired_},
          {"phase", line_.read().phase},
          {"parts", parts},
          {"telemetry", telemetry},
          {"counters", telemetry_.counters()},
          {"fault_repeats", records_.repeats()}};
}

Json Session::end_body(const SessionPlan& plan, const Status& failure) const {
  Json end = body();
  const bool interrupted = decision_ == StopVote::interrupted,
             done = plan.is_done && !is_over(plan) && plan.is_done(next_step_);
  end["reason"] = !failure.ok()                            ? (recovery_.lost_peers() ? "peer lost" : "error")
                  : interrupted                            ? "signal"
                  : plan.fail_fast && records_.has_fault() ? "fault"
                  : decision_ != StopVote::finished        ? "steps"
                  : done                                   ? "done"
                                                           : "duration";
  // If no rank voted for the end, a vote was corrupted in transit, and the run has ended too early.
  if (failure.ok() && decision_ == StopVote::finished && !reached_end_) end["before_planned_end"] = true;
  end["signal"] =
      interrupted && StopSignal::received() ? Json(signal_name(StopSignal::received())) : Json(nullptr);
  end["error"] =
      failure.ok()
          ? Json(nullptr)
          : Json{{"code", to_string(failure.code())}, {"what", failure.what()}, {"where", failure.where()}};
  return end;
}

}  // namespace egt
