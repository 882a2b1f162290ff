#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "egt/workload/workload.hpp"
#include "model/mlp_trainer.hpp"
#include "workload/bench/bench_operation.hpp"
#include "workload/bench/input_pipeline.hpp"
#include "workload/bench/scaling_plan.hpp"
#include "workload/common/digest_exchange.hpp"
#include "workload/common/digest_vote.hpp"
#include "workload/common/fault_reporter.hpp"
#include "workload/options.hpp"

namespace egt {

/// What a job found out beside its times.
struct JobReport {
  std::string failure;  ///< what is wrong, in one line; a fault was told by its own record. Empty: nothing
  VerifiedWork work;    ///< checked since the report before
  std::optional<double> copy_ms;  ///< for a copy that reads and writes as many bytes as an iteration must
  /// All-reduces alone, with nothing beside them: of a step's gradients, and of parts of them.
  std::vector<SumTime> sums = {};
  std::optional<double> loss = {};        ///< after MlpJobConfig::compared_steps: mean of the last few
  std::optional<double> sent_bytes = {};  ///< MlpTrainer::sent_bytes
  // Of networks that are divided among devices
  std::optional<double> communication_ms = {};  ///< of a step, alone
  std::optional<double> outside_share = {};     ///< of a step: exchanges, sums, and waits for them
  std::optional<bool> compared = {};            ///< with one device's gradients; false: no room for that
};

/// How long a burst took.
struct BurstTimes {
  std::vector<double> chunk_ms;  ///< each chunk, as the device's events tell
  double busy_ms = 0;  ///< all of them, without waits and what others took of a host (Device::busy_ms)
  std::vector<double> step_ms = {};  ///< each iteration's, where they are told apart
};

/// What one device does in a trial. One thread, which is the same on all ranks; those of a trial make the
/// same calls. Where a call fails, give_up follows, or the end of the program.
class BenchJob {
 public:
  virtual ~BenchJob() = default;
  /// Digests of what the device makes of known input; waits. All ranks' are compared by the caller.
  virtual Result<Answers> answers() = 0;
  /// Iterations are made in multiples of this; the same on all devices.
  virtual std::int64_t multiple() const { return 1; }
  /// Makes `chunks` chunks of `per_chunk` iterations, behind some to begin with that are not timed, and waits
  /// for them.
  virtual Result<BurstTimes> burst(int chunks, std::int64_t per_chunk) = 0;
  /// Iterations that are still to be made before `check`; the same on all devices.
  virtual std::int64_t missing() const { return 0; }
  /// After the last burst: holds the results against what they must be.
  virtual Result<JobReport> check() = 0;
  /// The communicator was given up: waits until nothing of the job is enqueued, at most `seconds`. The job is
  /// of no more use; its memory may still be.
  virtual Status give_up(double seconds) = 0;
};

/// A device that is slow on purpose does so many percent more than its work; 0: none.
double slow_percent(const std::optional<Injection>& slow);

/// Repeats an operation on batches that the feed brings. The work added for a slow device is the operation
/// itself. `environment` outlives it.
Result<std::unique_ptr<BenchJob>> make_stream_job(Environment& environment,
                                                  std::unique_ptr<BenchOperation> operation,
                                                  std::unique_ptr<InputPipeline> feed, const FeedShape& shape,
                                                  const std::optional<Injection>& slow);

struct MlpJobConfig {
  TrainOptions train;
  Precision precision = Precision::fp32;
  BatchShare batch;
  GradientCompression compression = {};
  std::int64_t compared_steps = 0;  ///< after which the loss is told; 0: it is not
};
/// Trains; gradients are summed over `communicator`, which outlives it, as do `environment` and `reporter`.
Result<std::unique_ptr<BenchJob>> make_mlp_job(Environment& environment, Communicator& communicator,
                                               const MlpJobConfig& config,
                                               const std::optional<Injection>& slow, FaultReporter& reporter);

}  // namespace egt
