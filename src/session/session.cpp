#include "egt/session/session.hpp"

#include <algorithm>

#include "egt/model/mlp_trainer.hpp"
#include "egt/report/bodies.hpp"
#include "egt/session/stop_signal.hpp"

namespace egt {

namespace {

constexpr double progress_period_s = 1.0;
constexpr double hurried_telemetry_s = 0.1;

}  // namespace

Session::Session(RecordQueue& records, RecordRoute& route, Telemetry& telemetry, Workloads& workloads)
    : records_(records), route_(route), telemetry_(telemetry), workloads_(workloads) {}

Status Session::run(const SessionPlan& plan) {
  started_ = last_progress_ = Clock::now();
  Status failure;
  const auto keep_first = [&](const Status& status) {
    if (failure.ok()) failure = status;
  };
  for (auto& workload : workloads_) keep_first(workload->start());
  if (failure.ok()) keep_first(run_steps(plan));
  // A rank that failed leaves its peers behind: nothing that needs them may be begun any more.
  const bool hurry = !failure.ok() || decision_ == StopVote::interrupted;
  if (hurry) stop_background();
  for (auto& workload : workloads_) keep_first(workload->finish(hurry));
  telemetry_.stop(hurry ? hurried_telemetry_s : Telemetry::stop_seconds);
  // A rank whose journal was cut short lacks its evidence, which is told like any other failure.
  records_.emit(RecordKind::end, retired_ - 1,
                end_body(plan, failure.ok() ? route_.journal_failure() : failure));
  return failure;
}

Status Session::run_steps(const SessionPlan& plan) {
  std::int64_t step = 0;
  for (bool last = false; !last; ++step) {
    const StopVote vote = own_vote(plan, step);
    if (vote == StopVote::interrupted) stop_background();
    for (auto& workload : workloads_) EGT_TRY(workload->enqueue({.index = step, .vote = vote}));
    if (step >= MlpTrainer::depth) EGT_TRY(retire(step - MlpTrainer::depth));
    report_progress();
    EGT_TRY(route_.pump());
    // Every rank learns the votes of a step when it retires it, at the same distance from what it has
    // enqueued.
    last = decision_ != StopVote::none || (plan.steps && step + 1 >= *plan.steps);
  }
  while (retired_ < step) EGT_TRY(retire(retired_));
  return {};
}

Status Session::retire(std::int64_t step) {
  StepOutcome outcome;
  for (auto& workload : workloads_) EGT_TRY(workload->retire(step, outcome));
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
  if (is_over(plan) || (plan.is_done && plan.is_done(step))) return StopVote::finished;
  return StopVote::none;
}

void Session::report_progress() {
  if (seconds_since(last_progress_) < progress_period_s) return;
  last_progress_ = Clock::now();
  records_.emit(RecordKind::progress, retired_ - 1, body());
}

Json Session::body() const {
  Json parts = Json::array();
  for (const auto& workload : workloads_)
    for (const PartReport& part : workload->reports()) parts.push_back(part_to_json(part));
  return {{"elapsed_seconds", seconds_since(started_)},
          {"steps", retired_},
          {"parts", parts},
          {"telemetry", telemetry_.summary()},
          {"counters", telemetry_.counters()},
          {"fault_repeats", records_.repeats()}};
}

Json Session::end_body(const SessionPlan& plan, const Status& failure) const {
  Json end = body();
  const bool interrupted = decision_ == StopVote::interrupted, done = plan.is_done && !is_over(plan);
  end["reason"] = !failure.ok()                     ? "error"
                  : interrupted                     ? "signal"
                  : decision_ != StopVote::finished ? "steps"
                  : done                            ? "done"
                                                    : "duration";
  end["signal"] =
      interrupted && StopSignal::received() ? Json(signal_name(StopSignal::received())) : Json(nullptr);
  end["error"] =
      failure.ok()
          ? Json(nullptr)
          : Json{{"code", to_string(failure.code())}, {"what", failure.what()}, {"where", failure.where()}};
  return end;
}

}  // namespace egt
