#include "workload/ceilings/ceilings_workload.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

namespace egt {
namespace {

/// All-reduce sizes from 8 B to the gradients of one step of the default network; smaller on the host.
std::vector<std::uint64_t> bytes_of_sums(bool is_gpu) {
  if (!is_gpu) return {8, 1 << 16, 1 << 20, 16 << 20};
  return {8, 1 << 16, 1 << 20, 16 << 20, 120'000'000, 480'000'000};
}

CeilingScope scope_of(const CeilingParts& parts, int ranks, bool is_gpu) {
  return {.ranks = ranks,
          .layers = parts.train.layers,
          .batch = parts.train.batch,
          .precisions = parts.train.precisions,
          .products_over_memory = parts.products,
          .extreme = parts.train.extreme_iterations > 0,
          .files = parts.file.enabled,
          .sums = bytes_of_sums(is_gpu)};
}

}  // namespace

CeilingsSuite::CeilingsSuite(Environment& environment, Control& control, const CeilingParts& parts)
    : MeasurementWorkload(environment, parts.stopping),
      control_(control),
      parts_(parts),
      reporter_(environment),
      world_{environment, reporter_, parts.train, parts.file, parts.stopping, nullptr},
      plan_(plan_ceilings(scope_of(parts, ranks(), world_.is_gpu()))) {}

Status CeilingsSuite::reconnect() {
  EGT_TRY(resources_.open(environment(), control_, {.counts = {}}));
  world_.alone = &resources_.groups->alone();
  return {};
}

std::string CeilingsSuite::phase_of(std::int64_t trial) const {
  return fmt::format("bench: {}", plan_[static_cast<std::size_t>(trial)].rows.front().name);
}

Status CeilingsSuite::make_trial(std::int64_t number) {
  const auto index = static_cast<std::size_t>(number);
  const CeilingTrial& trial = plan_[index];
  const bool is_new = index == 0 || plan_[index - 1].rows.front().group != trial.rows.front().group ||
                      plan_[index - 1].precision != trial.precision;
  std::vector<CeilingEntry> entries;
  for (const CeilingRow& row : trial.rows) entries.emplace_back().row = row;
  auto made = make_ceiling(world_, trial);
  EGT_TRY(meet(made.status(), {}, "bench: allocates memory"));
  if (made.ok()) resources_.job = std::move(made.value());
  if (met_.goes_on()) EGT_TRY(measure(pace_of(parts_.trial_seconds, world_.is_gpu(), is_new), entries));
  resources_.job.reset();
  reporter_.end_check();
  if (met_.interrupted) return {};
  for (CeilingEntry& entry : entries)
    if (entry.failure.empty()) entry.failure = met_.failure;
  keep(std::move(entries));
  return {};
}

Status CeilingsSuite::measure(const CeilingPace& pace, std::vector<CeilingEntry>& entries) {
  EGT_TRY(warm_up(pace));
  if (met_.goes_on()) EGT_TRY(measure_rounds(pace, entries));
  if (met_.goes_on()) EGT_TRY(check(entries));
  return {};
}

/// Increases the operation counts until a burst is long enough.
Status CeilingsSuite::warm_up(const CeilingPace& pace) {
  constexpr int fewest = 3;
  std::fill(std::begin(counts_), std::end(counts_), 1);
  double spent_ms = 0;
  for (int round = 0; round < fewest || spent_ms < 1e3 * pace.warm_up; ++round)
    for (const bool of_limit : {false, true}) {
      EGT_TRY(burst(of_limit).status());
      if (!met_.goes_on()) return {};
      spent_ms += met_.max(0);
      counts_[of_limit] = next_count(counts_[of_limit], met_.max(0), pace.burst);
    }
  return {};
}

Status CeilingsSuite::measure_rounds(const CeilingPace& pace, std::vector<CeilingEntry>& entries) {
  Mean power, clock;
  for (int round = 0; round < pace.rounds; ++round)
    for (const bool of_limit : {false, true}) {
      EGT_TRY_ASSIGN(const CeilingBurst made, burst(of_limit));
      if (!met_.goes_on()) return {};
      const SensorReading reading = environment().reading();
      power.add(reading.power_w);
      clock.add(reading.sm_clock_mhz);
      for (std::size_t row = 0; row < entries.size(); ++row)
        (of_limit ? entries[row].limit : entries[row].ours).push_back(made.rates[row]);
    }
  for (CeilingEntry& entry : entries) {
    entry.power_w = power.value();
    entry.sm_clock_mhz = clock.value();
    entry.facts = resources_.job->facts();
  }
  return {};
}

Status CeilingsSuite::check(std::vector<CeilingEntry>& entries) {
  const Result<JobReport> own = resources_.job->check();
  EGT_TRY(own.status());
  add(work_, own.value().work);
  for (CeilingEntry& entry : entries) entry.failure = own.value().failure;
  return {};
}

Result<CeilingBurst> CeilingsSuite::burst(bool of_limit) {
  const Result<CeilingBurst> own =
      of_limit ? resources_.job->limit(counts_[1]) : resources_.job->ours(counts_[0]);
  EGT_TRY(meet(own.status(), std::array{own.ok() ? own.value().ms : 0}, "bench: measures"));
  return own.ok() ? own.value() : CeilingBurst();
}

void CeilingsSuite::keep(std::vector<CeilingEntry> entries) {
  for (const CeilingEntry& entry : entries) {
    if (rank() == 0)
      environment().records.notice(line_of(entry));
    else if (!entry.failure.empty())
      environment().records.warning(line_of(entry));
  }
  entries_.push_back(std::move(entries));
}

/// Marks the trial as lost. This rank may have stored its result already, while other ranks failed in it.
void CeilingsSuite::lose_trial(std::int64_t number) {
  const auto index = static_cast<std::size_t>(number);
  entries_.resize(std::min(entries_.size(), index));
  std::vector<CeilingEntry> lost;
  for (const CeilingRow& row : plan_[index].rows) {
    lost.emplace_back().row = row;
    lost.back().failure = "the ranks lost communication in it";
  }
  keep(std::move(lost));
}

PartReport CeilingsSuite::report() const {
  PartReport report;
  report.name = "bench checks";
  report.description = "what this rank verified of its results";
  report.figures = {{"trials", plan_.size()}, {"trials_made", entries_.size()}};
  report.work = work_;
  return report;
}

std::vector<PartReport> CeilingsSuite::reports() const {
  std::vector<PartReport> all;
  for (const auto& entries : entries_)
    for (const CeilingEntry& entry : entries) all.push_back(report_of(entry));
  all.push_back(report());
  return all;
}

}  // namespace egt
