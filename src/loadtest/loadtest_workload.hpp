#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "egt/ranks/control.hpp"
#include "loadtest/load_checks.hpp"
#include "loadtest/load_entry.hpp"
#include "loadtest/load_test.hpp"
#include "workload/bench/bench_groups.hpp"
#include "workload/common/measurement_workload.hpp"

namespace egt {

/// The suite of `loadtest`: each test runs on all devices concurrently, with checks before, during and after.
/// A test that fails on one rank fails; the other tests continue. Rank 0 reports one entry per test.
class LoadTestSuite final : public MeasurementWorkload {
 public:
  /// Only the main thread uses `control`, in prepare and after a restart. `dnn`: owns the object that
  /// `parts.dnn` points to, so that the suite destroys it before the device. All other arguments must outlive
  /// the suite.
  LoadTestSuite(Environment& environment, Control& control, const LoadTestParts& parts,
                std::unique_ptr<Dnn> dnn);

  std::string name() const override { return "loadtest"; }
  std::int64_t trials() const override { return static_cast<std::int64_t>(tests_.size()); }
  PartReport report() const override;
  std::vector<PartReport> reports() const override;

 private:
  Status prepare_trials() override { return reconnect(); }
  std::string phase_of(std::int64_t trial) const override;
  Status make_trial(std::int64_t trial) override;
  void lose_trial(std::int64_t trial) override;
  Status recover(double timeout_seconds) override;
  Status reconnect() override;

  Result<std::unique_ptr<LoadJob>> make(const LoadTest& test);
  Status run_test(std::int64_t number, LoadRun& run);
  Status run_iterations(std::int64_t last, LoadRun& run);
  Status check(std::int64_t number, bool amid);
  Status inject_weights(std::int64_t number);
  Status inject_passes(std::int64_t number);
  Status inject(const Injection& injection, std::int64_t number);
  Status keep(const LoadTest& test, const LoadRun& run);

  Control& control_;
  const std::unique_ptr<Dnn> dnn_;  ///< outlives the jobs
  const LoadTestParts& parts_;
  const std::vector<LoadTest> tests_;
  std::vector<LoadEntry> entries_;  ///< of the completed tests
  LoadChecks checks_;
  TrialResources<LoadJob> resources_;
};

}  // namespace egt
