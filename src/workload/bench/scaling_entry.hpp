#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "egt/workload/workload.hpp"
#include "workload/bench/scaling_plan.hpp"
#include "workload/bench/scaling_statistics.hpp"

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

  std::int64_t items() const;
  std::optional<double> items_per_second() const;
  std::optional<double> efficiency() const;
  bool success() const { return failure.empty(); }
};

/// Items a second of all devices together.
double items_per_second(std::int64_t items, const ScalingTimes& step);

/// What each device did alone, and what follows for several together.
class SingleSpeeds {
 public:
  void add(const BenchEntry& single);
  /// Items a second of a rank alone in that test; empty: not measured.
  std::optional<double> of(const std::string& test, int rank) const;
  /// Of these ranks, in their order; empty where one's is not known.
  std::vector<double> of(const BenchTrial& trial) const;
  /// What their devices do by themselves: batches per millisecond of their own time; empty likewise.
  std::vector<double> powers_of(const BenchTrial& trial) const;
  /// Milliseconds a step of these ranks alone, in the mean.
  std::optional<double> mean_step_ms(const BenchTrial& trial) const;
  /// Of the fastest of them.
  std::optional<double> least_step_ms(const BenchTrial& trial) const;

  /// How many times as long as the other ranks of its model (their median) a rank took at least, in every
  /// test; `models`: by rank. Empty: there are not `fewest_tests` in which it can be compared.
  std::optional<double> slowness(int rank, const std::vector<int>& models, int fewest_tests) const;

 private:
  struct Single {
    std::string test;
    int rank;
    double items_per_second, step_ms, own_ms;
  };
  std::vector<double> steps_of(const BenchTrial& trial) const;

  std::vector<Single> all_;
};

/// Puts in what follows from the devices alone.
void complete(BenchEntry& entry, const SingleSpeeds& singles);

PartReport report_of(const BenchEntry& entry);
/// "voxelize 1000000 points: 2 devices, p2p: 0.103 ms a batch, .."
std::string line_of(const BenchEntry& entry);

}  // namespace egt
