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

/// Plans the trials of `bench` and their timing. Pure functions, the same on all ranks.
namespace egt {

/// One job of a trial in which ranks run different jobs.
struct BenchTask {
  BenchWorkload workload = BenchWorkload::voxelize;
  std::int64_t size = 0;
  std::string name;             ///< of the test of this job alone
  std::vector<int> ranks = {};  ///< assigned ranks, once decided
};

/// One measured configuration.
struct BenchTrial {
  BenchWorkload workload = BenchWorkload::mlp;
  std::int64_t size = 0;  ///< of one device's batch: samples or points
  BenchMode mode = BenchMode::single;
  std::vector<int> ranks;                 ///< ranks in the trial: one, or the first ones
  Precision precision = Precision::fp32;  ///< of mlp
  std::string name;                       ///< of the test: the same in all modes
  ParallelPlan plan = {};                 ///< division of `ranks`
  int micro_batches = 1;                  ///< micro-batches per replica
  GradientCompression compression = {};   ///< of `compressed`
  std::int64_t compared_steps = 0;        ///< number of steps before the loss is reported; 0: not reported
  std::vector<BenchTask> tasks = {};      ///< of `task`: one for all ranks, or one per group
  bool fuses = false;                     ///< of mlp: FusedInput fuses its input from robots' streams

  int devices() const { return static_cast<int>(ranks.size()); }
  /// Whether the trial trains a network by SplitMlp, possibly in one part.
  bool is_divided() const { return plan.is_split() || fuses; }
  /// Shares of a load are multiples of this.
  std::int64_t unit() const { return workload == BenchWorkload::mlp ? samples_unit({precision}) : 1; }
  bool has(int rank) const { return std::find(ranks.begin(), ranks.end(), rank) != ranks.end(); }
};

/// Powers of two from 2 below `ranks`, and `ranks` itself; none for one rank.
std::vector<int> device_counts(int ranks);

/// Ranks 0 to count - 1.
std::vector<int> first_ranks(int count);

/// Ordered by workload, then by size: every device alone, then growing groups of devices. `precisions` are
/// those of mlp, in order; `mlp_batch` is in samples per device.
std::vector<BenchTrial> plan_trials(const BenchOptions& options, std::int64_t mlp_batch,
                                    const std::vector<Precision>& precisions, int ranks);

/// Per pipeline stage and step without --micro-batches; gives a bubble below 20 %.
constexpr int micro_batches_a_stage = 4;

/// The mode, or the division if it has several dimensions: "pipeline 2 x data 2".
std::string mode_text(const BenchTrial& trial);

/// "voxelize 1000000 points: 4 devices, p2p"; for one device alone with its rank.
std::string describe(const BenchTrial& trial);
/// The workload, or "task" for trials with several workloads.
std::string_view workload_text(const BenchTrial& trial);
/// "samples" or "points"; "batches" for several workloads.
const char* items_of(BenchWorkload workload);
const char* items_of(const BenchTrial& trial);

/// Divides `total` into multiples of `unit` in proportion to `speeds` (above 0). `total` must be a multiple
/// too; the shares sum to it. Each is within one unit of its exact value, and at least one unit if possible.
std::vector<std::int64_t> share_load(std::int64_t total, const std::vector<double>& speeds,
                                     std::int64_t unit = 1);

/// How a trial of about `trial_seconds` is divided.
struct LoopPlan {
  std::int64_t per_chunk = 1;  ///< iterations timed together
  int chunks = 1;
  int per_burst = 1;  ///< chunks between two stop checks
};

/// Usual and min number of chunks per trial. Longer trials have more chunks, so that none exceeds a burst,
/// because mpirun gives a stopped program one second.
constexpr int usual_chunks = 20, fewest_chunks = 4;
constexpr double burst_seconds = 0.1;

/// For iterations of `step_ms`; per_chunk is a multiple of `multiple`.
LoopPlan plan_loop(double step_ms, double trial_seconds, std::int64_t multiple);

/// Milliseconds per iteration over a trial's chunks. Not rounded: scaling is judged by 1 %.
struct ScalingTimes {
  double min = 0, p50 = 0, p95 = 0, max = 0;

  /// Relative range: max minus min over the median, in percent.
  double spread_percent() const { return p50 > 0 ? 100 * (max - min) / p50 : 0; }
};

/// Time of one all-reduce.
struct AllReduceTime {
  double bytes = 0;  ///< per rank
  double ms = 0;
};

/// `ms`: milliseconds per iteration of each chunk, one or more. p50 is the median. p95 is the lowest value
/// that 95 % do not exceed.
ScalingTimes step_times(std::vector<double> ms);

/// Untimed rounds before a measurement, each longer than the previous one up to a chunk's length. Ends when
/// two such rounds agree, or after a time limit. The same times give the same decisions.
class WarmUp {
 public:
  static constexpr double agreement = 0.02, max_seconds = 0.3;
  static constexpr int fewest_rounds = 2;
  /// Growth limit from round to round, because a few iterations on a busy CPU may have been lucky.
  static constexpr std::int64_t growth = 8;

  /// Iterations are multiples of `multiple`.
  WarmUp(double trial_seconds, std::int64_t multiple) : trial_seconds_(trial_seconds), multiple_(multiple) {}

  /// Iterations of the next round.
  std::int64_t iterations() const { return iterations_.value_or(multiple_); }
  /// `step_ms`: time per iteration on the slowest device.
  void add(double step_ms);
  bool is_over() const { return over_; }
  /// Time per iteration in the last round.
  double step_ms() const { return step_ms_; }

 private:
  const double trial_seconds_;
  const std::int64_t multiple_;
  std::optional<std::int64_t> iterations_;
  double step_ms_ = 0, spent_ms_ = 0;
  int rounds_ = 0;
  bool over_ = false;
};

/// Batches moved together, a power of two. Deliveries start about every 200 us, which hides their launch
/// cost. They hold a few megabytes or less unless one batch is larger. On two H200s a million points took 106
/// us per batch with 48 MB deliveries, and 103 us with single batches (12 MB).
std::int64_t batches_per_delivery(double step_ms, std::size_t bytes_per_batch);

constexpr std::int64_t max_batches_per_delivery = 16;
constexpr std::size_t max_delivery_bytes = std::size_t{8} << 20;

}  // namespace egt
