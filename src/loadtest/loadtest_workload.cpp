#include "loadtest/loadtest_workload.hpp"

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "workload/common/findings.hpp"

namespace egt {
namespace {

constexpr double burst_seconds = 0.5;  // between meetings of the ranks
constexpr std::int64_t warm_up = 2;    // iterations that are not measured
constexpr std::int64_t max_burst = 256;

}  // namespace

LoadTestSuite::LoadTestSuite(Environment& environment, Control& control, const LoadTestParts& parts,
                             std::unique_ptr<Dnn> dnn)
    : MeasurementWorkload(environment, parts.stopping),
      control_(control),
      dnn_(std::move(dnn)),
      parts_(parts),
      tests_(load_tests()),
      checks_(environment) {}

Status LoadTestSuite::reconnect() {
  EGT_TRY(resources_.open(environment(), control_, {.counts = {}}));
  return checks_.prepare();
}

std::string LoadTestSuite::phase_of(std::int64_t trial) const {
  return fmt::format("loadtest: {}", tests_[static_cast<std::size_t>(trial)].name);
}

Result<std::unique_ptr<LoadJob>> LoadTestSuite::make(const LoadTest& test) {
  if (test.type == LoadTestType::retrieval)
    return make_retrieval_test(environment(), parts_, resources_.groups->alone());
  return make_network_test(environment(), parts_, test);
}

Status LoadTestSuite::make_trial(std::int64_t number) {
  const LoadTest& test = tests_[static_cast<std::size_t>(number)];
  auto made = make(test);
  EGT_TRY(meet(made.status(), {}, "loadtest: allocates memory"));
  LoadRun run;
  if (met_.goes_on()) {
    resources_.job = std::move(made.value());
    EGT_TRY(run_test(number, run));
  }
  if (!met_.interrupted) EGT_TRY(keep(test, run));
  resources_.job.reset();
  return {};
}

Status LoadTestSuite::run_test(std::int64_t number, LoadRun& run) {
  EGT_TRY(checks_.begin(*resources_.job, tests_[static_cast<std::size_t>(number)].name));
  EGT_TRY(check(number, false));
  if (checks_.found()) return {};
  EGT_TRY(inject_passes(number));
  LoadRun unmeasured;
  EGT_TRY(run_iterations(warm_up, unmeasured));
  const std::int64_t all = resources_.job->iterations();
  EGT_TRY(run_iterations((all + 1) / 2, run));
  if (!met_.goes_on()) return {};
  EGT_TRY(check(number, true));
  if (checks_.found()) return {};  // later differences would accuse other ranks
  EGT_TRY(run_iterations(all / 2, run));
  return met_.goes_on() ? check(number, false) : Status();
}

/// Runs bursts that grow up to `burst_seconds`. The ranks meet after each burst.
Status LoadTestSuite::run_iterations(std::int64_t count, LoadRun& run) {
  std::int64_t burst = 1;
  while (count > 0 && met_.goes_on()) {
    burst = std::min(burst, count);
    std::vector<double> times;
    const Status made = resources_.job->run(burst, times);
    const double ms = std::accumulate(times.begin(), times.end(), 0.0);
    EGT_TRY(meet(made, std::array{ms}, "loadtest: meets behind iterations"));
    for (const double one : times) run.ms.add(one);
    run.seconds += 1e-3 * ms;
    run.add(environment().reading(), environment().host_load());
    count -= burst;
    burst = next_count(burst, met_.max(0), burst_seconds, 2, max_burst);
  }
  return {};
}

Status LoadTestSuite::check(std::int64_t number, bool amid) {
  if (!amid) return checks_.check(*resources_.job, number);
  return checks_.check(*resources_.job, number, [&] { return inject_weights(number); });
}

// Fault injection

/// Called between the two rounds of a check, when no training runs.
Status LoadTestSuite::inject_weights(std::int64_t number) {
  while (const auto injection = environment().injector.take(InjectionKind::weight, number))
    EGT_TRY(inject(*injection, number));
  return {};
}

/// Injects into every later pass of the test.
Status LoadTestSuite::inject_passes(std::int64_t number) {
  for (const InjectionKind kind : {InjectionKind::activation, InjectionKind::gradient})
    while (const auto injection = environment().injector.take(kind, number))
      EGT_TRY(inject(*injection, number));
  return {};
}

Status LoadTestSuite::inject(const Injection& injection, std::int64_t number) {
  Flip flip;
  EGT_TRY_ASSIGN(const std::string where, resources_.job->inject(injection, flip));
  environment().injector.report(injection, number, flip, where);
  return {};
}

// Coordination of the ranks

/// All ranks decide if a test succeeded. The first rank that knows a failure reports the reason.
Status LoadTestSuite::keep(const LoadTest& test, const LoadRun& run) {
  LoadEntry entry;
  entry.test = test;
  LoadJobFigures job;
  std::string own;
  if (resources_.job) job = resources_.job->figures();
  if (resources_.job && met_.failure.empty()) own = resources_.job->failure();
  std::vector<double> figures = rank_figures(run, job);
  const std::size_t count = figures.size();
  figures.push_back(own.empty() ? 0 : 1);
  EGT_TRY_ASSIGN(const auto shared, share(figures, "loadtest: gathers figures"));
  std::vector<double> all;
  entry.failure = met_.failure;
  if (entry.failure.empty() && resources_.job && checks_.found())
    entry.failure = "a wrong result was found: see the faults";
  for (int r = 0; r < ranks(); ++r) {
    const double* const of_rank = shared.data() + static_cast<std::size_t>(r) * (count + 1);
    all.insert(all.end(), of_rank, of_rank + count);
    if (of_rank[count] > 0 && entry.failure.empty())
      entry.failure = fmt::format("rank {}: {}", r, r == rank() ? own : "its training went wrong");
  }
  entry.figures = entry_figures(test, parts_, all, ranks(), run, job);
  if (rank() == 0)
    environment().records.notice(line_of(entry));
  else if (!own.empty())
    environment().records.warning(fmt::format("{}: {}", test.name, own));
  entries_.push_back(std::move(entry));
  return {};
}

/// Marks the trial as lost. This rank may have stored its result already, while other ranks failed in it.
void LoadTestSuite::lose_trial(std::int64_t number) {
  const auto index = static_cast<std::size_t>(number);
  entries_.resize(std::min(entries_.size(), index));
  LoadEntry& lost = entries_.emplace_back();
  lost.test = tests_[index];
  std::vector<double> none;  // all names are present, with null
  for (int r = 0; r < ranks(); ++r) {
    const std::vector<double> figures = rank_figures({}, {});
    none.insert(none.end(), figures.begin(), figures.end());
  }
  lost.figures = entry_figures(lost.test, parts_, none, ranks(), {}, {});
  lost.failure = "the ranks lost communication in it";
}

Status LoadTestSuite::recover(double timeout_seconds) {
  EGT_TRY(checks_.give_up(timeout_seconds));
  return resources_.recover(timeout_seconds);
}

PartReport LoadTestSuite::report() const {
  PartReport report;
  report.name = "checks";
  report.description = "what this rank verified of the tests' results";
  report.figures = {{"tests", tests_.size()}, {"tests_made", entries_.size()}};
  report.work = checks_.work();
  note_not_run(report, "comparison with an independent result",
               "loadtest compares repetitions and ranks only");
  return report;
}

/// Rank 0 reports the tests.
std::vector<PartReport> LoadTestSuite::reports() const {
  std::vector<PartReport> all;
  if (rank() == 0)
    for (const LoadEntry& entry : entries_) all.push_back(report_of(entry));
  all.push_back(report());
  return all;
}

}  // namespace egt
