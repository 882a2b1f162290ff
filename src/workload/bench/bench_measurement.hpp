#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "egt/device/sensor.hpp"
#include "workload/bench/bench_job.hpp"
#include "workload/bench/scaling_plan.hpp"
#include "workload/common/measurement_workload.hpp"

namespace egt {

/// Result of a measurement: the same on all ranks except `own`.
struct Measured {
  bool interrupted = false;        ///< a rank was asked to stop: nothing was measured
  ScalingTimes step;               ///< of the slowest device
  JobReport own;                   ///< of this rank
  std::vector<RankFigures> ranks;  ///< by rank

  /// Reduces a value over all devices of the trial by the function `both`. Empty if a device has no value.
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

/// Runs one trial and synchronizes its ranks by sharing values. All ranks call it; ranks outside the trial
/// pass no job.
class BenchTrialMaker {
 public:
  struct Context {
    /// Shares values with all ranks, see MeasurementWorkload::meet.
    std::function<Result<Meeting>(std::span<const double> own, const char* phase)> meet;
    // Current values of this rank's device.
    std::function<SensorReading()> reading;
    std::function<std::optional<double>()> memory_bytes;
    double trial_seconds = 1;
  };

  BenchTrialMaker(const Context& context, std::int64_t multiple) : context_(context), multiple_(multiple) {}

  /// Warms up, measures and checks. `job`: null if this rank is not in the trial.
  Result<Measured> make(BenchJob* job);

 private:
  Status warm_up(BenchJob* job);
  Status measure(BenchJob* job);
  /// Runs the iterations that the job still needs before its check (BenchJob::missing).
  Status make_up(BenchJob* job);
  Status conclude(BenchJob* job);
  Result<Meeting> meet(std::span<const double> own, const char* phase);

  const Context& context_;
  const std::int64_t multiple_;
  double step_ms_ = 0;                     ///< at the end of the warm-up
  double busy_ms_ = RankFigures::unknown;  ///< see RankFigures
  Mean utilization_, power_, clock_;
  std::vector<double> steps_;  ///< the first steps in ms, if timed separately
  Measured measured_;
};

}  // namespace egt
