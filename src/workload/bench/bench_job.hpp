#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "egt/workload/workload.hpp"
#include "model/digest_exchange.hpp"
#include "model/mlp_trainer.hpp"
#include "workload/bench/bench_operation.hpp"
#include "workload/bench/input_pipeline.hpp"
#include "workload/bench/scaling_plan.hpp"
#include "workload/common/digest_vote.hpp"
#include "workload/common/fault_reporter.hpp"
#include "workload/options.hpp"

namespace egt {

/// Results of a job other than its times.
struct JobReport {
  std::string failure;            ///< one line; faults have their own records; empty: none
  VerifiedWork work;              ///< verified since the previous report
  std::optional<double> copy_ms;  ///< time of a plain copy that moves the bytes an iteration must move
  /// All-reduces without concurrent work: of a step's gradients, and of parts of them.
  std::vector<AllReduceTime> sums = {};
  std::optional<double> loss = {};        ///< after MlpJobConfig::compared_steps: mean of the last losses
  std::optional<double> sent_bytes = {};  ///< MlpTrainer::sent_bytes
  // For networks that are divided among devices.
  std::optional<double> communication_ms = {};  ///< per step, without concurrent work
  std::optional<double> outside_share = {};     ///< share of a step in exchanges and all-reduces, with waits
  std::optional<bool> compared = {};            ///< gradients compared with one device's; false: no memory
};

/// Durations of a burst.
struct BurstTimes {
  std::vector<double> chunk_ms;  ///< each chunk, by device events
  double busy_ms = 0;  ///< all chunks, without waits and other processes' use of a host (Device::busy_ms)
  std::vector<double> step_ms = {};  ///< each iteration, if timed separately
};

/// Work of one device in a trial. Used by one thread, the same one on every rank. All ranks of a trial make
/// the same calls. After a failed call, only give_up or the end of the program may follow.
class BenchJob {
 public:
  virtual ~BenchJob() = default;
  /// Digests of the outputs for known inputs, for the caller to compare between ranks. Blocks.
  virtual Result<Answers> answers() = 0;
  /// Iteration counts must be multiples of this value, which is the same on all devices.
  virtual std::int64_t multiple() const { return 1; }
  /// Runs `chunks` chunks of `per_chunk` iterations after some untimed iterations, and waits for them.
  virtual Result<BurstTimes> burst(int chunks, std::int64_t per_chunk) = 0;
  /// Iterations still required before `check`; the same on all devices.
  virtual std::int64_t missing() const { return 0; }
  /// Compares the results with their expected values after the last burst.
  virtual Result<JobReport> check() = 0;
  /// After the communicator was aborted: waits, for `seconds` or less, until no work of the job is enqueued.
  /// The job is then unusable, but its memory may still be in use.
  virtual Status give_up(double seconds) = 0;
};

/// Percent of extra work on a device with an injected slowdown; 0: none.
double slow_percent(const std::optional<Injection>& slow);

/// Repeats an operation on the batches of the feed. An injected slowdown (`slow`) adds operations of its
/// kind. `environment` must outlive the job.
Result<std::unique_ptr<BenchJob>> make_stream_job(Environment& environment,
                                                  std::unique_ptr<BenchOperation> operation,
                                                  std::unique_ptr<InputPipeline> feed, const FeedShape& shape,
                                                  const std::optional<Injection>& slow);

struct MlpJobConfig {
  TrainOptions train;
  Precision precision = Precision::fp32;
  BatchShare batch;
  GradientCompression compression = {};
  std::int64_t compared_steps = 0;  ///< number of steps before the loss is reported; 0: not reported
};
/// Trains with gradients all-reduced over `communicator`. The references must outlive the job.
Result<std::unique_ptr<BenchJob>> make_mlp_job(Environment& environment, Communicator& communicator,
                                               const MlpJobConfig& config,
                                               const std::optional<Injection>& slow, FaultReporter& reporter);

}  // namespace egt
