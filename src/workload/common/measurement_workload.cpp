#include "workload/common/measurement_workload.hpp"

#include <algorithm>
#include <array>

#include <fmt/format.h>

namespace egt {

bool is_of_trial(StatusCode code) {
  using enum StatusCode;
  return code == out_of_memory || code == unsupported || code == unavailable || code == invalid_argument ||
         code == no_space || code == io_error;
}

MeasurementWorkload::MeasurementWorkload(Environment& environment)
    : environment_(environment),
      line_(environment.board.line("main")),
      figures_(environment.device, environment.communicator, line_, environment.peer_timeout_seconds) {}

Status MeasurementWorkload::prepare() {
  EGT_TRY(figures_.prepare(max_figures));
  return prepare_trials();
}

Status MeasurementWorkload::enqueue(const Step& step) {
  if (step.index >= trials()) return {};  // the session enqueues some steps ahead
  trial_ = step.index;
  line_.begin(phase_of(trial_), trial_);
  EGT_TRY(make_trial(trial_));
  const StopVote vote = was_interrupted() ? StopVote::interrupted : step.vote;
  const std::array own = {static_cast<double>(vote)};
  EGT_TRY_ASSIGN(const auto votes, share(own, "waits for all ranks' next trial"));
  const double strongest = *std::max_element(votes.begin(), votes.end());
  decisions_[trial_] = static_cast<StopVote>(static_cast<int>(strongest));
  return {};
}

Status MeasurementWorkload::retire(std::int64_t step, StepOutcome& outcome) {
  if (const auto decision = decisions_.find(step); decision != decisions_.end()) {
    outcome.decision = std::max(outcome.decision, decision->second);
    decisions_.erase(decision);
  }
  return {};
}

Status MeasurementWorkload::give_up_steps(double timeout_seconds) {
  EGT_TRY(figures_.recover(timeout_seconds));
  return recover(timeout_seconds);
}

/// The trial of the rank that is furthest ahead counts as lost, because some ranks may have passed the
/// barrier after the trial while others still waited in it.
Status MeasurementWorkload::resume(RestartInfo& restart) {
  const std::array own = {static_cast<double>(trial_)};
  EGT_TRY_ASSIGN(const auto furthest, share(own, "restart: agrees on the next trial"));
  trial_ = static_cast<std::int64_t>(*std::max_element(furthest.begin(), furthest.end()));
  lose_trial(trial_);
  EGT_TRY(reconnect());
  decisions_.clear();
  restart.next_step = trial_ + 1;
  return {};
}

Status MeasurementWorkload::finish(const Shutdown&) {
  return {};
}

Result<MeasurementWorkload::Meeting> MeasurementWorkload::meet(const Status& own, double ms, bool stopping,
                                                               const char* phase) {
  if (!own.ok() && !is_of_trial(own.code())) return own;
  const std::array figures = {ms, static_cast<double>(own.code()), stopping ? 1.0 : 0.0};
  EGT_TRY_ASSIGN(const auto all, share(figures, phase));
  Meeting met;
  for (int r = 0; r < ranks(); ++r) {
    const double* const of_rank = all.data() + static_cast<std::size_t>(r) * figures.size();
    met.ms = std::max(met.ms, of_rank[0]);
    met.interrupted = met.interrupted || of_rank[2] > 0;
    const auto code = static_cast<StatusCode>(static_cast<int>(of_rank[1]));
    if (code != StatusCode::ok && (met.failure.empty() || r == rank()))
      met.failure = fmt::format("rank {}: {}", r, r == rank() ? own.what() : to_string(code));
  }
  return met;
}

Result<std::vector<double>> MeasurementWorkload::share(std::span<const double> own, const char* phase) {
  return figures_.all(own, trial_ + 1, phase);
}

}  // namespace egt
