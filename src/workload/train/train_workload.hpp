#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "egt/core/clock.hpp"
#include "egt/core/histogram.hpp"
#include "egt/workload/workload.hpp"
#include "workload/common/standalone_rate.hpp"
#include "workload/options.hpp"
#include "workload/train/batch_balance.hpp"
#include "workload/train/step_breakdown.hpp"
#include "workload/train/training_checks.hpp"
#include "workload/train/training_steps.hpp"

namespace egt {

/// Trains the network, one epoch per precision, verified by TrainingChecks. Transfers the ranks' stop votes.
/// Reports the parts `train` and `extreme`.
class TrainWorkload : public Workload {
 public:
  /// `max_samples`: see BatchBalance. `golden` must outlive the workload.
  TrainWorkload(Environment& environment, const TrainOptions& options, const BatchShare& batch,
                std::vector<std::int64_t> max_samples, GoldenBook& golden);

  std::string name() const override { return "train"; }
  Status prepare() override;
  /// Computes the first answers in every precision; collective.
  Status start() override;
  Status enqueue(const Step& step) override;
  Status retire(std::int64_t step, StepOutcome& outcome) override;
  Status give_up_steps(double timeout_seconds) override;
  Status resume(RestartInfo& restart) override;
  Status finish(const Shutdown& ending) override;
  PartReport report() const override;
  std::vector<PartReport> reports() const override;

  /// Valid after `prepare`. Every collective of the run's communicator uses this stream.
  Stream& communication_stream() { return steps_->trainer().communication_stream(); }
  /// Gradient bytes that a step all-reduces; valid after `prepare`.
  double summed_bytes() const;
  /// Standalone rates of the training precisions; valid after `prepare`.
  const ProductRates& product_rates() const { return product_rates_; }

 private:
  bool ends_epoch(std::int64_t step) const { return (step + 1) % options_.epoch_steps == 0; }
  double flops_of(std::int64_t samples) const;
  std::int64_t activations_of(std::int64_t samples) const;
  double turns_of(std::int64_t samples) const;
  std::int64_t samples_of(std::int64_t step) const {
    return balance_.share_of(step, environment_.place.rank).local;
  }
  /// Samples of both passes.
  std::int64_t computed_of(std::int64_t step) const;
  Status measure_rates();
  Status correct_rates();
  LoadFigures load_figures() const;
  Status wait_for_pass(std::int64_t step);
  Status look_at_times(std::int64_t step, const StepResult& result);
  void close_epoch(std::int64_t step);
  void add_compute_times(std::int64_t step, const StepResult& result);
  std::string failure_of(const CheckFigures& checks) const;
  std::string left_undone(const CheckFigures& checks) const;
  std::string divergence(std::int64_t step, const std::optional<LossApart>& first) const;
  void note_checks_not_run(const CheckFigures& checks, PartReport& part) const;
  PartReport extreme_report() const;

  Environment& environment_;
  TrainOptions options_;
  bool is_default_rate_ = false;  ///< learning rate
  BatchShare batch_;              ///< initial share
  BatchBalance balance_;
  GoldenBook& golden_;
  std::unique_ptr<TrainingSteps> steps_;
  std::unique_ptr<TrainingChecks> checks_;  ///< declared after the trainer, whose streams it uses

  ProductRates product_rates_;
  std::optional<double> extreme_rate_;  ///< standalone, iterations/s
  double long_chain_rate_ = 0;          ///< standalone, for longer chains; 0: not measured
  struct Computed {
    std::map<Precision, double> flops = {};
    std::int64_t samples = 0;
  };
  Computed uncompared(std::int64_t compared_steps) const;
  std::vector<WorkShare> shares(const CheckFigures& checks) const;

  std::map<Precision, double> flops_;  ///< of the training steps
  Clock::time_point started_ = Clock::now();

  std::int64_t retired_ = 0;
  std::int64_t samples_ = 0;        ///< of all passes computed on this rank
  std::int64_t timed_samples_ = 0;  ///< of this rank, in timed steps
  std::optional<double> loss_first_, loss_last_;
  LossTrend loss_trend_;
  StepBreakdown breakdown_;
  Histogram step_ms_;
  double device_ms_ = 0, products_led_ms_ = 0;
  struct Epoch {
    std::int64_t steps = 0, timed_steps = 0, samples = 0;  ///< of this rank, in timed steps
    double ms = 0;
  } epoch_;
  Clock::time_point epoch_told_;
  double compute_ms_ = 0;               ///< of this rank's passes, without waits for peers
  std::int64_t computed_samples_ = 0;   ///< in these passes
  std::vector<double> all_compute_ms_;  ///< per rank, over the steps with values of all ranks
  std::int64_t all_compute_steps_ = 0;
  std::optional<double> epoch_all_reduce_gb_per_s_;  ///< last measurement
  Histogram all_reduce_gb_per_s_, activation_ms_;    ///< one per epoch; the latter scaled to `batch_`
};

}  // namespace egt
