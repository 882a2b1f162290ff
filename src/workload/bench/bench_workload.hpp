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

/// Configuration of `bench`.
struct BenchParts {
  BenchOptions bench;
  TrainOptions train;             ///< for mlp; `batch`: samples per device
  std::vector<RankPlace> places;  ///< of all ranks
  std::vector<int> models;        ///< by rank; devices with equal numbers must give the same bits
  /// Whether this process was asked to stop. Ends a trial early.
  std::function<bool()> stopping = [] { return false; };
};

/// Measures how work scales from one device to all. Each trial runs one workload and size on some of the
/// devices. All results are verified. Rank 0 reports the entries; every rank reports what it verified.
class BenchSuite final : public MeasurementWorkload {
 public:
  /// Only the main thread uses `control`, in prepare and after a restart. All must outlive the suite.
  BenchSuite(Environment& environment, Control& control, const BenchParts& parts);

  std::string name() const override { return "bench"; }
  std::int64_t trials() const override { return static_cast<std::int64_t>(plan_.size()); }
  Status finish(const Shutdown& ending) override;
  PartReport report() const override;
  std::vector<PartReport> reports() const override;

 private:
  Status prepare_trials() override { return reconnect(); }
  std::string phase_of(std::int64_t trial) const override;
  Status make_trial(std::int64_t trial) override;
  void lose_trial(std::int64_t trial) override;
  Status recover(double timeout_seconds) override { return resources_.recover(timeout_seconds); }
  Status reconnect() override { return resources_.open(environment(), control_, needs()); }

  BenchGroups::Needs needs() const;
  void take_slowness(std::int64_t trial);
  /// An entry without measurements, in equal shares.
  BenchEntry entry_of(std::int64_t trial) const;
  std::size_t slot_bytes(const BenchTrial& trial) const;
  void look_at_peers(BenchEntry& entry) const;
  Status measure_hetero(BenchEntry& entry);
  /// Measures the trial in the entry's shares. If there is no result, it failed or a stop was requested.
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
  /// On the host backend, other processes share the device's cores.
  bool is_host() const { return environment().device.info().backend == "host"; }

  Control& control_;
  const BenchParts& parts_;
  const BenchTrialMaker::Context context_;
  std::vector<BenchTrial> plan_;
  std::vector<BenchEntry> entries_;  ///< the same on all ranks
  BenchAnswers answers_;
  FaultReporter reporter_;
  VerifiedWork work_;              ///< of this rank
  int trials_without_memory_ = 0;  ///< trials in which some rank lacked memory
  std::optional<Injection> slow_;  ///< injected slowdown of this device, once it is due
  TrialResources<BenchJob> resources_;
};

}  // namespace egt
