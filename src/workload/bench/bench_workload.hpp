#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "egt/ranks/control.hpp"
#include "workload/bench/bench_groups.hpp"
#include "workload/bench/bench_job.hpp"
#include "workload/bench/bench_measurement.hpp"
#include "workload/bench/scaling_digests.hpp"
#include "workload/bench/scaling_entry.hpp"
#include "workload/common/fault_reporter.hpp"
#include "workload/common/measurement_workload.hpp"
#include "workload/options.hpp"

namespace egt {

/// What `bench` is asked to do.
struct BenchParts {
  BenchOptions bench;
  TrainOptions train;             ///< of mlp; `batch`: samples a device
  std::vector<RankPlace> places;  ///< of all ranks
  std::vector<int> models;        ///< by rank: devices of one number must give the same bits
  /// Was this process told to stop? Ends a trial early.
  std::function<bool()> stopping = [] { return false; };
};

/// How work scales from one device to all: each trial is one workload and size on some of the devices. All
/// results are checked. Rank 0 tells the entries, every rank what it verified.
class BenchSuite final : public MeasurementWorkload {
 public:
  /// `control` is used by the main thread only, in prepare and after a restart. All outlive the suite.
  BenchSuite(Environment& environment, Control& control, const BenchParts& parts);

  std::string name() const override { return "bench"; }
  std::int64_t trials() const override { return static_cast<std::int64_t>(plan_.size()); }
  Status finish(const Ending& ending) override;
  PartReport report() const override;
  std::vector<PartReport> reports() const override;

 private:
  Status prepare_trials() override;
  std::string phase_of(std::int64_t trial) const override;
  Status make_trial(std::int64_t trial) override;
  bool was_interrupted() const override { return interrupted_; }
  void lose_trial(std::int64_t trial) override;
  Status recover(double timeout_seconds) override;
  Status reconnect() override;

  BenchGroups::Needs needs() const;
  Status open_groups();
  void take_slowness(std::int64_t trial);
  /// Nothing is measured yet; equal shares.
  BenchEntry entry_of(std::int64_t trial) const;
  std::size_t slot_bytes(const BenchTrial& trial) const;
  void look_at_peers(BenchEntry& entry) const;
  Status measure_hetero(BenchEntry& entry);
  /// In its shares. Where nothing came of it the entry tells why, or somebody was told to stop.
  Status measure(BenchEntry& entry);
  Status open_job(BenchEntry& entry);
  Result<Answers> open_own_job(const BenchEntry& entry);
  Result<std::unique_ptr<BenchJob>> make_job(const BenchEntry& entry);
  MlpConfig network_of(const BenchEntry& entry) const;
  Status plan_network(BenchEntry& entry);
  Status cut_network(BenchEntry& entry, const MlpConfig& network);
  Result<std::unique_ptr<BenchJob>> make_split(const BenchEntry& entry);
  void take_split(BenchEntry& entry, const Measured& measured) const;
  Result<std::unique_ptr<BenchJob>> make_stream(const BenchEntry& entry);
  FeedShape feed_shape(const BenchEntry& entry) const;
  std::size_t input_bytes(const BenchTrial& trial, std::int64_t items) const;
  void judge_answers(BenchEntry& entry, const std::vector<Answers>& by_rank);
  void take(BenchEntry& entry, const Measured& measured);
  void add_rates(BenchEntry& entry, const Measured& measured) const;
  void keep(BenchEntry entry);
  std::optional<double> used_memory_bytes() const;
  /// Where other processes use the device's cores too.
  bool is_host() const { return environment().device.info().backend == "host"; }

  Control& control_;
  const BenchParts& parts_;
  const BenchTrialMaker::Surroundings surroundings_;
  std::vector<BenchTrial> plan_;
  std::vector<BenchEntry> entries_;  ///< on all ranks alike
  BenchAnswers answers_;
  FaultReporter reporter_;
  VerifiedWork work_;              ///< of this rank
  int trials_without_memory_ = 0;  ///< on some rank
  bool interrupted_ = false;       ///< somebody was told to stop in the trial that is being made
  std::optional<Injection> slow_;  ///< this device, from some trial on
  std::unique_ptr<BenchGroups> groups_;
  std::unique_ptr<BenchJob> job_;  ///< of the trial that is being made
  /// Of a communicator that was given up: its transfers may still look at this memory.
  std::vector<std::unique_ptr<BenchGroups>> old_groups_;
  std::vector<std::unique_ptr<BenchJob>> old_jobs_;
};

}  // namespace egt
