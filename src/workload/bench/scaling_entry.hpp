#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "egt/workload/workload.hpp"
#include "workload/bench/scaling_plan.hpp"

namespace egt {

/// What came of a trial of `bench`: one entry of `results[]`. What was not measured is empty.
struct BenchEntry {
  BenchTrial trial;
  std::string not_possible;          ///< why it was not made, though nothing is wrong
  std::string failure;               ///< what went wrong
  std::vector<std::int64_t> shares;  ///< items of each device a step
  std::optional<ScalingTimes> step;  ///< of all devices together
  double own_ms = 0;  ///< a step of a device alone, without what others took of a host's cores; of single
  std::optional<double> speedup;  ///< over one of its devices alone, in the mean
  std::optional<double> exposed_communication_ms;
  std::optional<double> memory_bytes;  ///< of the device that uses most
  std::optional<double> gpu_utilization_percent, power_w;
  std::optional<double> sm_clock_mhz;   ///< of the device with the lowest
  std::optional<double> tflops;         ///< of all devices
  std::optional<double> gb_per_second;  ///< bytes that must be read and written, of one device alone
  std::optional<double> ratio_copy_bandwidth;
  std::optional<double> moved_bytes;            ///< a step, from the first device to each other
  std::optional<double> even_items_per_second;  ///< of hetero: with equal shares
  /// Over the slowest of its devices alone, times their number; not of single and hetero.
  std::optional<double> efficiency_slowest;
  std::optional<double> compute_ms;  ///< of the device that computes longest, without its peers
  std::optional<double> sigma_ms;    ///< of the steps of the device whose time spreads most
  std::vector<SumTime> sums = {};    ///< see JobReport; of the slowest rank
  /// Of tasks: the same batches one job after the other, each on all devices.
  std::optional<double> sequence_ms;
  // Of mlp
  std::optional<double> sent_bytes;  ///< MlpTrainer::sent_bytes
  std::optional<double> loss;        ///< after BenchOptions::compared_steps
  // Of gradients sent whole, beside this one where they are compressed
  std::optional<double> whole_step_ms, whole_sent_bytes, whole_loss;
  std::optional<double> state_bytes;    ///< planned, of the device that holds most (see egt::state_bytes)
  std::vector<LayerRange> stages = {};  ///< of a pipeline
  std::optional<double> bubble_share;   ///< of the step in which a device waits, mean of all devices
  std::string recommendation;           ///< of the mode that is best for its test: see recommend
  std::string verified_against;         ///< what gradients were held against beside their own repetition

  std::int64_t items() const;
  std::optional<double> items_per_second() const;
  std::optional<double> efficiency() const;
  std::optional<double> exposed_communication_share() const;
  /// How many times as fast as one job after the other.
  std::optional<double> sequence_speedup() const;
  /// By how much the loss is above that with gradients sent whole, percent.
  std::optional<double> loss_excess_percent() const;
  bool success() const { return failure.empty(); }
  /// Was one device alone measured, and is its figure to be relied on?
  bool tells_of_one() const { return trial.mode == BenchMode::single && step && success(); }
};

/// Each of the trial's devices alone in its test, in the order of its ranks; empty where one was not measured
/// there.
std::vector<const BenchEntry*> each_alone(const std::vector<BenchEntry>& entries, const BenchTrial& trial);

/// How many times as long as the other ranks of its model (their median) a rank alone took at least, in every
/// test; `models`: by rank. Empty: there are not `fewest_tests` in which it can be compared.
std::optional<double> slowness(const std::vector<BenchEntry>& entries, int rank,
                               const std::vector<int>& models, int fewest_tests);

/// Puts in what follows from the devices alone, which are among the `entries` before it.
void complete(BenchEntry& entry, const std::vector<BenchEntry>& entries);

/// In each test that was divided otherwise than by its batch: tells the fastest entry on the most devices, in
/// one sentence, that its mode is to be used, and why.
void recommend(std::vector<BenchEntry>& entries);

PartReport report_of(const BenchEntry& entry);
/// "voxelize 1000000 points: 2 devices, p2p: 0.103 ms a batch, .."
std::string line_of(const BenchEntry& entry);

}  // namespace egt
