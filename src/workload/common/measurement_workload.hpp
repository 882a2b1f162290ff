#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "egt/workload/workload.hpp"
#include "workload/common/value_exchange.hpp"

namespace egt {

/// True if a failure with this code affects only the trial, so that the ranks can continue with the next one.
bool is_of_trial(StatusCode code);

/// All ranks' results of one measurement of a trial.
struct Meeting {
  std::vector<std::vector<double>> figures;  ///< by rank
  bool interrupted = false;                  ///< a stop was requested on some rank
  bool lacks_memory = false;                 ///< a rank had no memory
  std::string failure;                       ///< trial error on some rank; another rank's has only its code

  bool goes_on() const { return failure.empty() && !interrupted; }
  /// Max of the ranks' values with this index; 0 or more.
  double max(std::size_t index) const;
};

/// Operations of the next burst for about `burst_seconds`, after `count` of them took `ms` on the slowest
/// rank. The result grows by a factor of `growth` or less, up to `most`.
std::int64_t next_count(std::int64_t count, double ms, double burst_seconds, std::int64_t growth = 8,
                        std::int64_t most = 1 << 16);

/// Mean of sensor readings; std::nullopt without readings.
class Mean {
 public:
  void add(const std::optional<double>& figure) {
    sum_ += figure.value_or(0);
    count_ += figure.has_value();
  }
  std::optional<double> value() const { return count_ > 0 ? std::optional(sum_ / count_) : std::nullopt; }

 private:
  double sum_ = 0;
  int count_ = 0;
};

/// A workload that measures instead of loading. It runs one trial per step on all ranks; the trial is
/// complete on this rank when its step was enqueued. Between trials the ranks exchange votes and values,
/// which is a barrier. If communication fails, the trial fails, and the ranks continue with the next one
/// after the restart.
class MeasurementWorkload : public Workload {
 public:
  /// `stopping`: whether this process was asked to stop. Ends a trial early at its next meeting.
  MeasurementWorkload(Environment& environment, std::function<bool()> stopping);

  /// Number of trials, equal on all ranks; known after `prepare`.
  virtual std::int64_t trials() const = 0;

  Status prepare() final;
  Status enqueue(const Step& step) final;
  Status retire(std::int64_t step, StepOutcome& outcome) final;
  Status give_up_steps(double timeout_seconds) final;
  Status resume(RestartInfo& restart) final;
  Status finish(const Shutdown& ending) override;

 protected:
  /// Max number of values per rank in one `share` or `meet`.
  static constexpr std::size_t max_figures = 64;

  /// Allocates memory and lists the trials.
  virtual Status prepare_trials() = 0;
  /// Text for the board with the ranks involved: "links: 0 -> 2".
  virtual std::string phase_of(std::int64_t trial) const = 0;
  /// Runs the trial on all ranks concurrently; ranks without work in it return at once. An error that ends
  /// the run is returned on its rank. An error of the trial only is stored as its result. `line()` reports
  /// waits for peers.
  virtual Status make_trial(std::int64_t trial) = 0;
  /// Stores the trial as failed, after the communicator was aborted on all ranks during it.
  virtual void lose_trial(std::int64_t trial) = 0;
  /// After the communicator was aborted: waits until the workload's own streams are empty (see
  /// Device::forget_failure), at most `timeout_seconds`.
  virtual Status recover(double timeout_seconds) = 0;
  /// Called once all ranks have a new communicator. Reopens whatever used the old one.
  virtual Status reconnect() { return {}; }

  /// All-gathers the values of one measurement and stores them in `met_`; acts as a barrier. `own`: this
  /// rank's status. A status that ends more than the trial (see is_of_trial) is returned at once, without
  /// waiting for the others.
  Status meet(const Status& own, std::span<const double> figures, const char* phase);

  /// All-gathers values: [rank * own.size() + i]; acts as a barrier. `phase`: a string literal for the board,
  /// which shows it with the next trial. A rank waiting here has done its part, so the board identifies the
  /// ranks still in the trial.
  Result<std::vector<double>> share(std::span<const double> own, const char* phase);

  Environment& environment() const { return environment_; }
  ProgressBoard::Line& line() const { return line_; }
  std::int64_t trial() const { return trial_; }
  int rank() const { return environment_.place.rank; }
  int ranks() const { return environment_.place.size; }

  /// The last meeting of the trial. If it is `interrupted`, the trial was skipped, and no further trial
  /// starts.
  Meeting met_;

 private:
  Environment& environment_;
  const std::function<bool()> stopping_;
  ProgressBoard::Line& line_;
  ValueExchange figures_;
  std::int64_t trial_ = -1;                     ///< in progress, or the last one
  std::map<std::int64_t, StopVote> decisions_;  ///< of steps not yet retired
};

}  // namespace egt
