#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
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

/// Values of a rank and its device in a trial. NaN: unknown, or the rank took no part.
struct RankFigures {
  static constexpr double unknown = std::numeric_limits<double>::quiet_NaN();
  static constexpr std::size_t sum_sizes = 3;

  // Measured around the job.
  double failures = 0;            ///< 1: wrong results detected
  double busy_ms = unknown;       ///< per iteration, in its fastest burst
  double memory_bytes = unknown;  ///< in use at the end of the trial
  double sigma_ms = unknown;      ///< standard deviation per iteration, from p50 and p95
  // Means of the sensor's readings during the measurement.
  double gpu_utilization_percent = unknown, power_w = unknown, sm_clock_mhz = unknown;

  // Reported by the job.
  double copy_ms = unknown;     ///< time of a plain copy that moves the bytes an iteration must move
  double loss = unknown;        ///< after MlpJobConfig::compared_steps: mean of the last losses
  double sent_bytes = unknown;  ///< MlpTrainer::sent_bytes
  /// All-reduces without concurrent work: of a step's gradients, and of parts of them.
  AllReduceTime sums[sum_sizes] = {{unknown, unknown}, {unknown, unknown}, {unknown, unknown}};
  // For networks that are divided among devices.
  double communication_ms = unknown;  ///< per step, without concurrent work
  double outside_share = unknown;     ///< share of a step in exchanges and all-reduces, with waits
  double compared = unknown;          ///< 1: gradients compared with one device's; 0: no memory
};

/// Results of a job other than its times.
struct JobReport {
  std::string failure;       ///< one line; faults have their own records; empty: none
  VerifiedWork work;         ///< verified since the previous report
  RankFigures figures = {};  ///< those that the job reports
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
