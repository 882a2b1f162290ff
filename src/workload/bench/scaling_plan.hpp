#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "egt/core/types.hpp"
#include "model/mlp_config.hpp"
#include "model/parallel/parallel_plan.hpp"
#include "workload/bench/scaling_options.hpp"

/// What `bench` does, in which order, and how its trials are timed: plain functions, the same on all ranks.
namespace egt {

/// A job of a trial in which ranks do different ones.
struct BenchTask {
  BenchWorkload workload = BenchWorkload::voxelize;
  std::int64_t size = 0;
  std::string name;             ///< of the test of this job alone
  std::vector<int> ranks = {};  ///< that do it, once that is decided
};

/// One configuration that is measured.
struct BenchTrial {
  BenchWorkload workload = BenchWorkload::mlp;
  std::int64_t size = 0;  ///< of one device's batch: samples, or points
  BenchMode mode = BenchMode::single;
  std::vector<int> ranks;                 ///< that take part: one, or the first ones
  Precision precision = Precision::fp32;  ///< of mlp
  std::string name;                       ///< of the test: the same in all modes
  ParallelPlan plan = {};                 ///< of `ranks`
  int micro_batches = 1;                  ///< that each replica's batch is cut into
  GradientCompression compression = {};   ///< of `compressed`
  std::int64_t compared_steps = 0;        ///< after which the loss is told; 0: it is not
  std::vector<BenchTask> tasks = {};      ///< of `task`: all ranks do one, or groups of them one each
  bool fuses = false;                     ///< of mlp: its input is fused from robots' streams (FusedInput)

  int devices() const { return static_cast<int>(ranks.size()); }
  /// Is it a network that is trained by SplitMlp, maybe in one part?
  bool is_divided() const { return plan.is_split() || fuses; }
  /// What shares of a load are multiples of.
  std::int64_t unit() const { return workload == BenchWorkload::mlp ? samples_unit({precision}) : 1; }
  bool has(int rank) const { return std::find(ranks.begin(), ranks.end(), rank) != ranks.end(); }
};

/// 2, 4, 8 .. below `ranks`, and `ranks` itself; none for one rank.
std::vector<int> device_counts(int ranks);

/// 0, 1 .. count - 1
std::vector<int> first_ranks(int count);

/// Workload by workload, size by size: every device alone, then more and more of them together.
/// `precisions`: those of mlp, in turn; `mlp_batch`: samples a device.
std::vector<BenchTrial> plan_trials(const BenchOptions& options, std::int64_t mlp_batch,
                                    const std::vector<Precision>& precisions, int ranks);

/// Of a step, for each stage of a pipeline, where --micro-batches does not say: a bubble of less than 20 %.
constexpr int micro_batches_a_stage = 4;

/// The mode, and of one that divides in several dimensions how: "pipeline 2 x data 2".
std::string mode_text(const BenchTrial& trial);

/// "voxelize: 4 devices, p2p, 1000000 points"; of one device alone which.
std::string describe(const BenchTrial& trial);
/// Who is told beside the workloads: "task", where several are in one trial.
std::string_view workload_text(const BenchTrial& trial);
/// "samples" or "points"; "batches" where they are of several workloads.
const char* items_of(BenchWorkload workload);
const char* items_of(const BenchTrial& trial);

/// `total`, a multiple of `unit`, in parts that are such too, in proportion to `speeds` (above 0): each
/// within a unit of its exact share, and at least one where there are enough; their sum is `total`.
std::vector<std::int64_t> share_load(std::int64_t total, const std::vector<double>& speeds,
                                     std::int64_t unit = 1);

/// How a trial of about `trial_seconds` is divided.
struct LoopPlan {
  std::int64_t per_chunk = 1;  ///< iterations that are timed together
  int chunks = 1;
  int per_burst = 1;  ///< chunks between two looks at whether to go on
};

/// Chunks of a trial that is long enough for them; of a longer one more, so that none takes longer than a
/// burst: mpirun leaves a program that is stopped a second.
constexpr int usual_chunks = 20, fewest_chunks = 4;
constexpr double burst_seconds = 0.1;

/// For iterations that take `step_ms`; `multiple`: what per_chunk is one of.
LoopPlan plan_loop(double step_ms, double trial_seconds, std::int64_t multiple);

/// Milliseconds an iteration, over the chunks of a trial: exact, since 1 % is what scaling is judged by.
struct ScalingTimes {
  double min = 0, p50 = 0, p95 = 0, max = 0;

  /// From the fastest to the slowest chunk, in percent of the middle one.
  double spread_percent() const { return p50 > 0 ? 100 * (max - min) / p50 : 0; }
};

/// One all-reduce, as it was measured.
struct SumTime {
  double bytes = 0;  ///< of one rank's data
  double ms = 0;
};

/// Of each chunk's milliseconds an iteration; at least one. p50 between the two middle ones; p95: the lowest
/// that 95 % do not exceed.
ScalingTimes step_times(std::vector<double> ms);

/// Untimed rounds before a measurement, each longer than the one before up to what a chunk takes: until two
/// of that length agree, or some time has passed. The same decisions from the same times.
class WarmUp {
 public:
  static constexpr double agreement = 0.02, most_seconds = 0.3;
  static constexpr int fewest_rounds = 2;
  /// A round is at most so many times as long as the one before: a few iterations may have been lucky, on a
  /// host that does much else.
  static constexpr std::int64_t growth = 8;

  /// Iterations are in multiples of `multiple`.
  WarmUp(double trial_seconds, std::int64_t multiple) : trial_seconds_(trial_seconds), multiple_(multiple) {}

  /// Of the next round.
  std::int64_t iterations() const { return iterations_.value_or(multiple_); }
  /// What it took, an iteration, on the slowest device.
  void add(double step_ms);
  bool is_over() const { return over_; }
  /// Of the last round.
  double step_ms() const { return step_ms_; }

 private:
  const double trial_seconds_;
  const std::int64_t multiple_;
  std::optional<std::int64_t> iterations_;
  double step_ms_ = 0, spent_ms_ = 0;
  int rounds_ = 0;
  bool over_ = false;
};

/// Batches that are moved together, a power of two: so many that moving begins only about every 200 us, which
/// hides what it takes to begin, and no more than a few megabytes unless one batch is: a million points took
/// two H200s 106 us a batch with deliveries of 48 MB, 103 with those of a batch (12 MB).
std::int64_t batches_per_delivery(double step_ms, std::size_t bytes_per_batch);

constexpr std::int64_t most_batches_per_delivery = 16;
constexpr std::size_t most_delivery_bytes = std::size_t{8} << 20;

}  // namespace egt
