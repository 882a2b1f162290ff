#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "egt/workload/workload.hpp"
#include "workload/common/value_exchange.hpp"

namespace egt {

/// Does a failure with this code concern the trial only, so that the ranks can go on with the next one?
bool is_of_trial(StatusCode code);

/// A workload that measures instead of loading: one trial a step, which all ranks make together and which is
/// over on this rank when its step was enqueued. In between the ranks exchange their votes and figures, which
/// is a barrier. Where the ranks lose touch in a trial, that trial has failed, and after the restart they go
/// on with the next one.
class MeasurementWorkload : public Workload {
 public:
  explicit MeasurementWorkload(Environment& environment);

  /// How many there are, the same on all ranks; known after `prepare`.
  virtual std::int64_t trials() const = 0;

  Status prepare() final;
  Status enqueue(const Step& step) final;
  Status retire(std::int64_t step, StepOutcome& outcome) final;
  Status give_up_steps(double timeout_seconds) final;
  Status resume(RestartInfo& restart) final;
  Status finish(const Ending& ending) override;

 protected:
  /// Figures that a rank may bring to `share` at once.
  static constexpr std::size_t most_figures = 64;

  /// Takes memory, lists the trials.
  virtual Status prepare_trials() = 0;
  /// For the board: who does what to whom, "links: 0 -> 2".
  virtual std::string phase_of(std::int64_t trial) const = 0;
  /// Makes it, on all ranks at the same time; ranks that have nothing to do in it return at once. An error
  /// that the ranks cannot go on after is returned on its rank; one that concerns the trial only is kept as
  /// its result. Waits for peers are told on `line()`.
  virtual Status make_trial(std::int64_t trial) = 0;
  /// Was the trial that was made last left undone, since somebody was told to stop? No other may follow whose
  /// step would tell of that.
  virtual bool was_interrupted() const { return false; }
  /// The communicator was given up in it, on all ranks.
  virtual void lose_trial(std::int64_t trial) = 0;
  /// After the communicator was given up: waits until the workload's own streams are empty (see
  /// Device::forget_failure), at most `timeout_seconds`.
  virtual Status recover(double timeout_seconds) = 0;
  /// All ranks are there again, with a new communicator: opens again what was made of the old one.
  virtual Status reconnect() { return {}; }

  /// What the ranks tell each other of a piece of a trial.
  struct Meeting {
    double ms = 0;             ///< of the slowest rank
    bool interrupted = false;  ///< somebody was told to stop
    std::string failure;       ///< of the trial, on some rank; this rank's own is told in full

    bool goes_on() const { return failure.empty() && !interrupted; }
  };
  /// `own`: of this rank, or why it has none; an error that is not of the trial is relayed. A barrier.
  Result<Meeting> meet(const Status& own, double ms, bool stopping, const char* phase);

  /// Figures of all ranks for all: [rank * own.size() + i]; a barrier. `phase`: a literal, for the board,
  /// which tells it as of the next trial: who waits here has done its part, so that those in the trial are
  /// named.
  Result<std::vector<double>> share(std::span<const double> own, const char* phase);

  Environment& environment() const { return environment_; }
  ProgressBoard::Line& line() const { return line_; }
  std::int64_t trial() const { return trial_; }
  int rank() const { return environment_.place.rank; }
  int ranks() const { return environment_.place.size; }

 private:
  Environment& environment_;
  ProgressBoard::Line& line_;
  ValueExchange figures_;
  std::int64_t trial_ = -1;                     ///< that is being made, or was made last
  std::map<std::int64_t, StopVote> decisions_;  ///< of steps that were not retired yet
};

}  // namespace egt
