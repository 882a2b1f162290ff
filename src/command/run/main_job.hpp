#pragma once

#include "command/run/run.hpp"
#include "workload/table.hpp"

namespace egt {

/// The main job's load, which several commands are made of: training, extreme compute, memory, files and
/// collectives, all verified.
class MainJob : public RunPurpose {
 public:
  Status choose(const Options& options, const Platform& platform, Control& control) override;
  Session::Workloads make_workloads(Environment& environment) override;
  /// Half the samples a step.
  bool make_smaller(RecordQueue& records) override;
  SessionPlan plan(const Options& options) override;
  void describe(StartBody& body) const override;
  std::string io_directory() const override { return parts_.file.directory; }
  Status keep_answers() override;

  /// Adds to what the options make of the main job, the same on all ranks.
  virtual void add_parts(BurnParts&) {}
  /// Asked before each step: has this rank seen all that the run is for?
  virtual bool is_done(std::int64_t) { return false; }

 private:
  Status read_golden_file(Control& control);

  BurnParts parts_;
  RankPlace place_;
  std::optional<double> duration_seconds_;  ///< asked for
  std::optional<std::int64_t> steps_;       ///< likewise
};

}  // namespace egt
