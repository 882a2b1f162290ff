#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "egt/device/sensor.hpp"
#include "workload/bench/bench_job.hpp"
#include "workload/bench/scaling_statistics.hpp"

namespace egt {

/// What a rank tells of its device: the memory in use when a trial is over, of the rest the mean of what its
/// sensor said while it was measured. Empty: it says nothing.
struct DeviceFigures {
  std::optional<double> memory_bytes;
  std::optional<double> gpu_utilization_percent;
  std::optional<double> power_w;
  std::optional<double> sm_clock_mhz;
};

class DeviceMeans {
 public:
  void add(const SensorReading& reading);
  /// Without the memory.
  DeviceFigures figures() const;

 private:
  struct Mean {
    double sum = 0;
    int count = 0;

    void add(const std::optional<double>& figure);
    std::optional<double> value() const;
  };
  Mean utilization_, power_, clock_;
};

/// What came of a measurement: the same on all ranks, apart from what this one found.
struct Measured {
  bool interrupted = false;            ///< somebody was told to stop: nothing was measured
  ScalingTimes step;                   ///< of the slowest device
  std::vector<int> failed;             ///< ranks that found something wrong
  JobReport own;                       ///< of this rank
  std::vector<double> busy_ms;         ///< by rank, an iteration in the fastest burst; NaN: no part
  std::vector<double> copy_ms;         ///< by rank; NaN: not measured
  std::vector<DeviceFigures> devices;  ///< by rank
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
  Status warm_up(BenchJob* job);
  Status measure(BenchJob* job);
  Status conclude(BenchJob* job);
  /// The figures, and with them whether to stop; of all ranks, [rank][i].
  Result<std::vector<std::vector<double>>> meet(const std::vector<double>& own, const char* phase);

  const Surroundings& surroundings_;
  const std::int64_t multiple_;
  double step_ms_ = 0;             ///< at the end of the warm-up
  std::optional<double> busy_ms_;  ///< of this device, an iteration of its fastest burst
  DeviceMeans device_;
  Measured measured_;
};

}  // namespace egt
