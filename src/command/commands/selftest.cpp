#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "command/commands.hpp"
#include "command/run/main_job.hpp"
#include "egt/core/units.hpp"
#include "session/injection/injection_serializer.hpp"
#include "session/selftest/selftest_plan.hpp"
#include "session/selftest/selftest_report.hpp"
#include "session/selftest/selftest_watch.hpp"

namespace egt {
namespace {

constexpr std::int64_t check_period = SelftestScope().period;
/// Not a divisor of the interval between injections of one kind, so that every precision gets each kind.
constexpr std::int64_t epoch_periods = 11;
constexpr double deadline_s = 300.0;
constexpr double gate_patience_s = 10.0;  // from a file's write to its read, on a slow disk
constexpr double patience_s = 30.0;       // longer than gate_patience_s and a memory pass
constexpr double progress_period_s = 5.0;

void put_periods(BurnOptions& burn) {
  burn.train.check_every = burn.collective.every = check_period;
  burn.train.epoch_steps = epoch_periods * check_period;
  burn.file.every = check_period;
  burn.file.repeats = 1;
  burn.duration_seconds = deadline_s;
  burn.steps.reset();
}

SelftestScope scope_of(const BurnOptions& burn, int ranks) {
  const SizeOrShare& fill = burn.memory.fill;
  return {.ranks = ranks,
          .layers = static_cast<int>(burn.train.layers.size()) - 1,
          .extreme = burn.train.extreme_iterations > 0 && burn.train.layers.size() > 2,
          .covers_all = burn.train.covers_all(),
          .memory = !fill.is_zero(),
          .files = burn.file.enabled};
}

/// Injects every fault that the checks claim to detect, and compares the detectors' reports.
class SelftestPurpose : public MainJob {
 public:
  Status refine(Options& options, Backend backend, const RankPlace& place) override {
    defaults_ = options.command_defaults;
    options.burn.collective.elements = backend == Backend::host ? 1u << 14 : 1u << 20;
    put_periods(options.burn);
    options.run.injections = plan_selftest(scope_of(options.burn, place.size)).injections;
    watch_ = std::make_unique<SelftestWatch>(plan_selftest(scope_of(options.burn, place.size)), patience_s);
    is_root_ = place.rank == 0;
    return {};
  }
  void begin(RecordQueue& records) override {
    records_ = &records;
    if (!is_root_) return;
    records.notice(fmt::format("selftest: {} to inject; checks every {} steps; defaults:{}",
                               counted(watch_->plan().injections.size(), "fault"), check_period, defaults_));
  }
  InjectionGate gate() override {
    return [this](const Injection& injection) { return one_at_a_time_.admits(injection); };
  }
  FaultLimit fault_limit() const override { return FaultLimit::none; }
  Sink* own_records() override { return &one_at_a_time_; }
  Sink* all_records() override { return watch_.get(); }
  bool compares_peers() const override { return false; }
  bool is_shown(const Record& record) const override {
    return record.kind != RecordKind::fault && record.kind != RecordKind::injection &&
           record.kind != RecordKind::epoch;
  }
  bool is_done(std::int64_t step) override {
    if (!is_root_) return false;
    report_progress();
    return watch_->is_done(step);
  }
  Verdict judge(const std::vector<Record>& records) override {
    outcome_ = conclude_selftest(watch_->plan(), records);
    return outcome_.verdict;
  }
  /// The result as concluded, unless the verdict became worse since.
  Json result(const std::vector<Record>&, const Verdict& verdict) override {
    Json result = outcome_.result;
    set_verdict(result, verdict);
    return result;
  }
  std::string summary(const Json&) override { return outcome_.table; }

 private:
  void report_progress();

  InjectionSerializer one_at_a_time_{gate_patience_s};
  std::unique_ptr<SelftestWatch> watch_;  // used on rank 0
  SelftestOutcome outcome_;
  RecordQueue* records_ = nullptr;
  std::string defaults_;
  bool is_root_ = false;
  Clock::time_point reported_ = Clock::now();
};

void SelftestPurpose::report_progress() {
  if (seconds_since(reported_) < progress_period_s) return;
  reported_ = Clock::now();
  const auto injected =
      std::count_if(watch_->records().begin(), watch_->records().end(),
                    [](const Record& record) { return record.kind == RecordKind::injection; });
  records_->notice(
      fmt::format("selftest: {} of {} faults injected", injected, watch_->plan().injections.size()));
}

}  // namespace

std::unique_ptr<RunPurpose> make_selftest() {
  return std::make_unique<SelftestPurpose>();
}

}  // namespace egt
