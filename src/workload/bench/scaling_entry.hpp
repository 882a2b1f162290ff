#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "egt/workload/workload.hpp"
#include "workload/bench/scaling_plan.hpp"

namespace egt {

/// Result of a `bench` trial: one entry of `results[]`. Unmeasured values are empty.
struct BenchEntry {
  BenchTrial trial;
  std::string not_possible;          ///< why it was skipped without a failure
  std::string failure;               ///< the error or fault
  std::vector<std::int64_t> shares;  ///< items per device and step
  std::optional<ScalingTimes> step;  ///< of all devices together
  double own_ms = 0;  ///< time per step of mode `single`, without other processes' use of a host's cores
  std::optional<double> speedup;  ///< relative to the mean of its devices running alone
  std::optional<double> exposed_communication_ms;
  std::optional<double> memory_bytes;  ///< max over the devices
  std::optional<double> gpu_utilization_percent, power_w;
  std::optional<double> sm_clock_mhz;   ///< min over the devices
  std::optional<double> tflops;         ///< of all devices
  std::optional<double> gb_per_second;  ///< necessary reads and writes, of one device alone
  std::optional<double> ratio_copy_bandwidth;
  std::optional<double> moved_bytes;            ///< per step, from the first device to each other
  std::optional<double> even_items_per_second;  ///< of hetero: with equal shares
  /// Throughput relative to the slowest device alone times the number of devices. Not for single and hetero.
  std::optional<double> efficiency_slowest;
  std::optional<double> compute_ms;      ///< max over the devices, without waits for peers
  std::optional<double> sigma_ms;        ///< max over the devices
  std::vector<AllReduceTime> sums = {};  ///< see RankFigures; times of the slowest rank
  /// For tasks: the same batches one job after the other, each on all devices.
  std::optional<double> sequence_ms;
  // For mlp.
  std::optional<double> sent_bytes;  ///< MlpTrainer::sent_bytes
  std::optional<double> loss;        ///< after BenchOptions::compared_steps
  // With uncompressed gradients, for comparison with a compressed entry.
  std::optional<double> whole_step_ms, whole_sent_bytes, whole_loss;
  std::optional<double> state_bytes;    ///< planned max over the devices (see egt::state_bytes)
  std::vector<LayerRange> stages = {};  ///< of a pipeline
  std::optional<double> bubble_share;   ///< share of a step that a device waits, mean over devices
  std::string recommendation;           ///< if this mode is best for its test: see recommend
  std::string verified_against;         ///< reference of the gradients, next to their own repetition

  std::int64_t items() const;
  std::optional<double> items_per_second() const;
  std::optional<double> efficiency() const;
  std::optional<double> exposed_communication_share() const;
  /// Speedup over running one job after the other.
  std::optional<double> sequence_speedup() const;
  /// Excess of the loss over that with uncompressed gradients, in percent.
  std::optional<double> loss_excess_percent() const;
  bool success() const { return failure.empty(); }
  /// Whether it is a valid measurement of one device alone.
  bool tells_of_one() const { return trial.mode == BenchMode::single && step && success(); }
};

/// The single-device entries of the trial's test, in rank order. Empty if one of its devices has none.
std::vector<const BenchEntry*> each_alone(const std::vector<BenchEntry>& entries, const BenchTrial& trial);

/// Min over all tests of a rank's standalone time relative to the median of other ranks of its model.
/// `models`: by rank. Empty with fewer than `fewest_tests` comparable tests.
std::optional<double> slowness(const std::vector<BenchEntry>& entries, int rank,
                               const std::vector<int>& models, int fewest_tests);

/// Fills in the values that depend on the single-device entries among the earlier `entries`.
void complete(BenchEntry& entry, const std::vector<BenchEntry>& entries);

/// For each test that was also split by tensor or pipeline: finds the fastest entry on the max number of
/// devices. Its `recommendation` becomes one sentence with the mode and the reason.
void recommend(std::vector<BenchEntry>& entries);

PartReport report_of(const BenchEntry& entry);
/// For example "voxelize 1000000 points: 2 devices, p2p: 0.103 ms per step, ..".
std::string line_of(const BenchEntry& entry);

}  // namespace egt
