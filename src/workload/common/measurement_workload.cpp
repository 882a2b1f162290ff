#include "workload/common/measurement_workload.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

namespace egt {
namespace {

constexpr std::size_t figures_of_meeting = 2;  ///< status code and stop request

}  // namespace

bool is_of_trial(StatusCode code) {
  using enum StatusCode;
  return code == out_of_memory || code == unsupported || code == unavailable || code == invalid_argument ||
         code == no_space || code == io_error;
}

double Meeting::max(std::size_t index) const {
  double most = 0;
  for (const std::vector<double>& of_rank : figures) most = std::max(most, of_rank[index]);
  return most;
}

std::int64_t next_count(std::int64_t count, double ms, double burst_seconds, std::int64_t growth,
                        std::int64_t most) {
  const double wanted = static_cast<double>(count) * burst_seconds * 1e3 / std::max(ms, 1e-6);
  const double bounded = std::clamp(wanted, 1.0, static_cast<double>(std::min(growth * count, most)));
  return static_cast<std::int64_t>(bounded);
}

MeasurementWorkload::MeasurementWorkload(Environment& environment, std::function<bool()> stopping)
    : environment_(environment),
      stopping_(std::move(stopping)),
      line_(environment.board.line("main")),
      figures_(environment.device, environment.communicator, line_, environment.peer_timeout_seconds) {}

Status MeasurementWorkload::prepare() {
  EGT_TRY(figures_.prepare(max_figures + figures_of_meeting));
  return prepare_trials();
}

Status MeasurementWorkload::enqueue(const Step& step) {
  if (step.index >= trials()) return {};  // the session enqueues some steps ahead
  trial_ = step.index;
  line_.begin(phase_of(trial_), trial_);
  met_ = {};
  EGT_TRY(make_trial(trial_));
  const StopVote vote = met_.interrupted ? StopVote::interrupted : step.vote;
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
  if (trial_ >= 0) lose_trial(trial_);
  EGT_TRY(reconnect());
  decisions_.clear();
  restart.next_step = trial_ + 1;
  return {};
}

Status MeasurementWorkload::finish(const Shutdown&) {
  return {};
}

Status MeasurementWorkload::meet(const Status& own, std::span<const double> figures, const char* phase) {
  if (!own.ok() && !is_of_trial(own.code())) return own;
  std::vector<double> message(figures.begin(), figures.end());
  message.push_back(static_cast<double>(own.code()));
  message.push_back(stopping_() ? 1 : 0);
  EGT_TRY_ASSIGN(const auto all, share(message, phase));
  met_ = {};
  for (int r = 0; r < ranks(); ++r) {
    const double* const of_rank = all.data() + static_cast<std::size_t>(r) * message.size();
    const double* const end = of_rank + figures.size();
    met_.figures.emplace_back(of_rank, end);
    const auto code = static_cast<StatusCode>(static_cast<int>(end[0]));
    met_.interrupted = met_.interrupted || end[1] > 0;
    met_.lacks_memory = met_.lacks_memory || code == StatusCode::out_of_memory;
    if (code != StatusCode::ok && (met_.failure.empty() || r == rank()))
      met_.failure = fmt::format("rank {}: {}", r, r == rank() ? own.what() : to_string(code));
  }
  return {};
}

Result<std::vector<double>> MeasurementWorkload::share(std::span<const double> own, const char* phase) {
  return figures_.all(own, trial_ + 1, phase);
}

}  // namespace egt
