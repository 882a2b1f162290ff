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

/// What `bench --ceilings` is asked to do.
struct CeilingParts {
  double trial_seconds = 1;
  TrainOptions train;
  FileOptions file;
  std::vector<Precision> products;  ///< of products over memory, the same on all ranks, as those of `train`
  /// Was this process told to stop? Ends a trial early.
  std::function<bool()> stopping = [] { return false; };
};

/// Every part of the load beside the machine's own limit, on all devices at the same time: in each round of a
/// trial first ours, then the limit. All results of ours are checked. Every rank tells its own entries.
class CeilingsSuite final : public MeasurementWorkload {
 public:
  /// `control` is used by the main thread only, in prepare and after a restart. All outlive the suite.
  CeilingsSuite(Environment& environment, Control& control, const CeilingParts& parts);

  std::string name() const override { return "ceilings"; }
  std::int64_t trials() const override { return static_cast<std::int64_t>(plan_.size()); }
  PartReport report() const override;
  std::vector<PartReport> reports() const override;

 private:
  Status prepare_trials() override;
  std::string phase_of(std::int64_t trial) const override;
  Status make_trial(std::int64_t trial) override;
  bool was_interrupted() const override { return met_.interrupted; }
  void lose_trial(std::int64_t trial) override;
  Status recover(double timeout_seconds) override;
  Status reconnect() override;

  Status open_groups();
  Status measure(const CeilingPace& pace, std::vector<CeilingEntry>& entries);
  Status warm_up(const CeilingPace& pace);
  Status measure_rounds(const CeilingPace& pace, std::vector<CeilingEntry>& entries);
  Status check(std::vector<CeilingEntry>& entries);
  /// One side's, on all ranks; a barrier at its end.
  Result<CeilingBurst> burst(bool of_limit);
  /// `own`: of this rank, or why it has none.
  Status meet(const Status& own, double ms, const char* phase);
  void keep(std::vector<CeilingEntry> entries);

  Control& control_;
  const CeilingParts& parts_;
  FaultReporter reporter_;
  CeilingWorld world_;
  std::vector<CeilingTrial> plan_;
  std::vector<std::vector<CeilingEntry>> entries_;  ///< by trial
  VerifiedWork work_;
  std::unique_ptr<BenchGroups> groups_;
  std::unique_ptr<CeilingJob> job_;  ///< of the trial that is being made
  std::int64_t counts_[2] = {1, 1};  ///< operations in the next burst of ours and of the limit
  Meeting met_;                      ///< the last one
  /// Of a communicator that was given up: its transfers may still look at this memory.
  std::vector<std::unique_ptr<BenchGroups>> old_groups_;
  std::vector<std::unique_ptr<CeilingJob>> old_jobs_;
};

}  // namespace egt
