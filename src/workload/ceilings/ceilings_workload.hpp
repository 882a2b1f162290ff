#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "egt/ranks/control.hpp"
#include "workload/bench/bench_groups.hpp"
#include "workload/ceilings/ceiling_entry.hpp"
#include "workload/ceilings/ceiling_job.hpp"
#include "workload/common/fault_reporter.hpp"
#include "workload/common/measurement_workload.hpp"

namespace egt {

/// Configuration of `bench --ceilings`.
struct CeilingParts {
  double trial_seconds = 1;
  TrainOptions train;
  FileOptions file;
  std::vector<Precision> products;  ///< of memory-resident GEMMs; on all ranks the same, as in `train`
  /// Whether this process was asked to stop. Ends a trial early.
  std::function<bool()> stopping = [] { return false; };
};

/// Compares every part of the load with the hardware limit, on all devices concurrently. Each round of a
/// trial measures our side, then the limit. Our results are verified. Every rank reports its own entries.
class CeilingsSuite final : public MeasurementWorkload {
 public:
  /// Only the main thread uses `control`, in prepare and after a restart. All must outlive the suite.
  CeilingsSuite(Environment& environment, Control& control, const CeilingParts& parts);

  std::string name() const override { return "ceilings"; }
  std::int64_t trials() const override { return static_cast<std::int64_t>(plan_.size()); }
  PartReport report() const override;
  std::vector<PartReport> reports() const override;

 private:
  Status prepare_trials() override { return reconnect(); }
  std::string phase_of(std::int64_t trial) const override;
  Status make_trial(std::int64_t trial) override;
  void lose_trial(std::int64_t trial) override;
  Status recover(double timeout_seconds) override { return resources_.recover(timeout_seconds); }
  Status reconnect() override;

  Status measure(const CeilingPace& pace, std::vector<CeilingEntry>& entries);
  Status warm_up(const CeilingPace& pace);
  Status measure_rounds(const CeilingPace& pace, std::vector<CeilingEntry>& entries);
  Status check(std::vector<CeilingEntry>& entries);
  /// Runs a burst of one side on all ranks. Ends with a barrier.
  Result<CeilingBurst> burst(bool of_limit);
  void keep(std::vector<CeilingEntry> entries);

  Control& control_;
  const CeilingParts& parts_;
  FaultReporter reporter_;
  CeilingWorld world_;
  std::vector<CeilingTrial> plan_;
  std::vector<std::vector<CeilingEntry>> entries_;  ///< by trial
  VerifiedWork work_;
  std::int64_t counts_[2] = {1, 1};  ///< operations in the next burst of our side and of the limit
  TrialResources<CeilingJob> resources_;
};

}  // namespace egt
