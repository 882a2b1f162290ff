#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "egt/device/sensor.hpp"
#include "workload/bench/bench_job.hpp"
#include "workload/bench/scaling_plan.hpp"

namespace egt {

/// What a rank tells of a trial and of its device in it. NaN: not known, or it took no part.
struct RankFigures {
  static constexpr double unknown = std::numeric_limits<double>::quiet_NaN();
  static constexpr std::size_t sum_sizes = 3;

  double failures = 0;            ///< 1: it found something wrong
  double busy_ms = unknown;       ///< an iteration in its fastest burst
  double copy_ms = unknown;       ///< see JobReport
  double memory_bytes = unknown;  ///< in use when the trial is over
  // Of the rest the mean of what its sensor said while it was measured.
  double gpu_utilization_percent = unknown, power_w = unknown, sm_clock_mhz = unknown;
  double communication_ms = unknown, outside_share = unknown, compared = unknown;  ///< see JobReport
  double loss = unknown, sent_bytes = unknown;                                     ///< see JobReport
  double sigma_ms = unknown;  ///< standard deviation of an iteration, from p50 and p95
  SumTime sums[sum_sizes] = {{unknown, unknown}, {unknown, unknown}, {unknown, unknown}};  ///< see JobReport
};

/// What came of a measurement: the same on all ranks, apart from what this one found.
struct Measured {
  bool interrupted = false;        ///< somebody was told to stop: nothing was measured
  ScalingTimes step;               ///< of the slowest device
  JobReport own;                   ///< of this rank
  std::vector<RankFigures> ranks;  ///< of all

  /// A figure of all devices of the trial in one, `both` for two; empty where one did not tell it.
  template <typename Figure, typename Both>
  std::optional<double> of_devices(const BenchTrial& trial, const Figure& figure, const Both& both) const {
    std::optional<double> all;
    for (const int rank : trial.ranks) {
      const double one = std::invoke(figure, ranks[static_cast<std::size_t>(rank)]);
      if (std::isnan(one)) return std::nullopt;
      all = all ? both(*all, one) : one;
    }
    return all;
  }
};

/// How the ranks of a trial keep in step: by figures that each rank brings and all get. One trial; all ranks
/// make it, those that take no part without a job.
class BenchTrialMaker {
 public:
  /// All ranks' figures, [rank * own.size() + i]; `phase`: a literal.
  using Share = std::function<Result<std::vector<double>>(std::span<const double> own, const char* phase)>;

  struct Surroundings {
    Share share;
    std::function<bool()> stopping;  ///< was this rank told to stop?
    // Of this rank's device, now
    std::function<SensorReading()> reading;
    std::function<std::optional<double>()> memory_bytes;
    double trial_seconds = 1;
  };

  BenchTrialMaker(const Surroundings& surroundings, std::int64_t multiple)
      : surroundings_(surroundings), multiple_(multiple) {}

  /// Warms up, measures, checks. `job`: null where this rank takes no part.
  Result<Measured> make(BenchJob* job);

 private:
  /// Of what a sensor said; NaN where it said nothing.
  struct Mean {
    double sum = 0;
    double count = 0;

    void add(const std::optional<double>& figure) {
      sum += figure.value_or(0);
      count += figure.has_value();
    }
    double value() const { return sum / count; }
  };

  Status warm_up(BenchJob* job);
  Status measure(BenchJob* job);
  /// Makes the iterations that are missing until the job's figures can be told.
  Status make_up(BenchJob* job);
  Status conclude(BenchJob* job);
  /// The figures, and with them whether to stop; of all ranks, [rank][i].
  Result<std::vector<std::vector<double>>> meet(std::span<const double> own, const char* phase);

  const Surroundings& surroundings_;
  const std::int64_t multiple_;
  double step_ms_ = 0;  ///< at the end of the warm-up
  RankFigures own_;
  Mean utilization_, power_, clock_;
  std::vector<double> steps_;  ///< milliseconds of the first ones, where they are told apart
  Measured measured_;
};

}  // namespace egt
