#pragma once

#include "command/run/run.hpp"
#include "workload/common/measurement_workload.hpp"

namespace egt {

/// A run that measures trials (links, bench). It has one workload and ends with its last trial.
class MeasurementRun : public RunPurpose {
 public:
  Session::Workloads make_workloads(Environment& environment) final {
    auto suite = make_suite(environment);
    suite_ = suite.get();
    Session::Workloads all;
    all.push_back(std::move(suite));
    return all;
  }
  SessionPlan plan(const Options&) final {
    return {.duration_seconds = {},
            .steps = suite_->trials(),
            .is_done = {},
            .fail_fast = false,
            .before_step = {}};
  }
  /// Trials do not load all ranks equally, so ranks are not compared.
  bool compares_peers() const override { return false; }

 protected:
  virtual std::unique_ptr<MeasurementWorkload> make_suite(Environment& environment) = 0;

 private:
  MeasurementWorkload* suite_ = nullptr;  ///< owned by the run
};

}  // namespace egt
