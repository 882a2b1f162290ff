#pragma once

#include "command/run/run.hpp"
#include "workload/table.hpp"

namespace egt {

/// The main job's load, shared by several commands: training, extreme compute, memory, files and collectives,
/// all verified.
class MainJob : public RunPurpose {
 public:
  Status choose(const Options& options, const Platform& platform, Control& control) override;
  Session::Workloads make_workloads(Environment& environment) override;
  /// Halves the samples per step.
  bool make_smaller(RecordQueue& records) override;
  SessionPlan plan(const Options& options) override;
  void describe(StartBody& body) const override;
  std::string io_directory() const override { return parts_.file.directory; }
  Status keep_answers() override;

  /// Lets a command change the parts that its options define, for example add one. Same on all ranks.
  virtual void add_parts(BurnParts&) {}
  /// Called before each step. Returns whether this rank has completed all work of the command.
  virtual bool is_done(std::int64_t) { return false; }

 private:
  Status read_golden_file(Control& control);

  BurnParts parts_;
  RankPlace place_;
  std::optional<double> duration_seconds_;  ///< as requested
  std::optional<std::int64_t> steps_;       ///< as requested
};

}  // namespace egt
