#pragma once

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

  double failures = 0;            ///< 1: it found something wrong
  double busy_ms = unknown;       ///< an iteration in its fastest burst
  double copy_ms = unknown;       ///< see JobReport
  double memory_bytes = unknown;  ///< in use when the trial is over
  // Of the rest the mean of what its sensor said while it was measured.
  double gpu_utilization_percent = unknown, power_w = unknown, sm_clock_mhz = unknown;
};

/// What came of a measurement: the same on all ranks, apart from what this one found.
struct Measured {
  bool interrupted = false;        ///< somebody was told to stop: nothing was measured
  ScalingTimes step;               ///< of the slowest device
  JobReport own;                   ///< of this rank
  std::vector<RankFigures> ranks;  ///< of all
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
  Status conclude(BenchJob* job);
  /// The figures, and with them whether to stop; of all ranks, [rank][i].
  Result<std::vector<std::vector<double>>> meet(std::span<const double> own, const char* phase);

  const Surroundings& surroundings_;
  const std::int64_t multiple_;
  double step_ms_ = 0;  ///< at the end of the warm-up
  RankFigures own_;
  Mean utilization_, power_, clock_;
  Measured measured_;
};

}  // namespace egt
