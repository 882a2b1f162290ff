#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "egt/core/histogram.hpp"
#include "egt/model/mlp_trainer.hpp"
#include "egt/workload/options.hpp"
#include "egt/workload/workload.hpp"

namespace egt {

/// The samples of this rank when `global` are shared as evenly as can be, the first ranks taking one more.
BatchShare share_batch(std::int64_t global, int rank, int size);

/// Trains the network, an epoch a precision, and holds the replicas of its weights against each other.
/// Carries the ranks' votes to stop. Reports the parts `train` and `extreme`.
class TrainWorkload : public Workload {
 public:
  TrainWorkload(const Environment& environment, const TrainOptions& options, const BatchShare& batch);

  std::string name() const override { return "train"; }
  Status prepare() override;
  Status enqueue(const Step& step) override;
  Status retire(std::int64_t step, StepOutcome& outcome) override;
  Status finish(bool hurry) override;
  PartReport report() const override;
  std::vector<PartReport> reports() const override;

  /// After prepare: where every collective of the run's communicator goes.
  Stream& communication_stream() { return trainer_->communication_stream(); }

 private:
  Precision precision_of(std::int64_t step) const;
  bool ends_epoch(std::int64_t step) const { return (step + 1) % options_.epoch_steps == 0; }
  bool checks_replicas(std::int64_t step) const {
    const std::int64_t every = options_.check_every > 0 ? options_.check_every : 10;
    return (step + 1) % every == 0;
  }
  double step_flops() const;
  void look_at_loss(std::int64_t step, double loss);
  Status look_at_times();
  Status look_at_replicas(std::int64_t step);
  void report_divergence(std::int64_t step, const std::vector<std::vector<Digest>>& ranks, std::size_t layer);
  void close_epoch(std::int64_t step);
  PartReport extreme_report() const;

  Environment environment_;
  TrainOptions options_;
  BatchShare batch_;
  std::unique_ptr<MlpTrainer> trainer_;
  std::optional<Precision> precision_;

  std::int64_t retired_ = 0;
  std::optional<double> loss_first_, loss_last_;
  bool loss_was_finite_ = true;
  bool rate_is_ours_ = true;  // not given with --learning-rate
  Histogram step_ms_;
  double device_ms_ = 0;
  double epoch_ms_ = 0;
  std::int64_t epoch_timed_steps_ = 0, epoch_steps_ = 0;
  std::optional<double> all_reduce_gb_per_s_, activation_ms_;

  std::uint64_t replica_checks_ = 0, replica_mismatches_ = 0;
  std::int64_t steps_proven_ = 0;  // covered by a replica check that found all ranks alike
  std::string weight_digest_;
};

}  // namespace egt
