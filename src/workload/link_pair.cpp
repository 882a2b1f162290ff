#include "egt/workload/link_pair.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace egt {
namespace {

constexpr std::uint64_t probe_bytes = 1'000'000, least_bytes = 8;
constexpr int least_in_probe = 8, probe_repeats = 2;  // the first one connects the two
constexpr std::size_t single_figures = 9;

}  // namespace

std::vector<double> PairSide::to_figures() const {
  std::vector<double> figures = {
      static_cast<double>(largest), static_cast<double>(repeats), latency,
      one_way_largest.median,       one_way_largest.least,        one_way_largest.most,
      both_largest.median,          both_largest.least,           both_largest.most};
  figures.insert(figures.end(), one_way.begin(), one_way.end());
  figures.insert(figures.end(), both_ways.begin(), both_ways.end());
  return figures;
}

PairSide PairSide::from_figures(std::span<const double> figures) {
  PairSide side;
  side.largest = static_cast<std::uint64_t>(figures[0]);
  if (side.largest == 0) return side;
  side.repeats = static_cast<int>(figures[1]);
  side.latency = figures[2];
  side.one_way_largest = {figures[3], figures[4], figures[5]};
  side.both_largest = {figures[6], figures[7], figures[8]};
  const std::size_t sizes = link_sizes(side.largest).size();
  const auto rest = figures.subspan(single_figures, 2 * sizes);
  side.one_way.assign(rest.begin(), rest.begin() + static_cast<std::ptrdiff_t>(sizes));
  side.both_ways.assign(rest.begin() + static_cast<std::ptrdiff_t>(sizes), rest.end());
  return side;
}

Result<PairOutcome> PairTrial::make() {
  EGT_TRY(measure_pair());
  transfers_.close();
  return std::move(outcome_);
}

Status PairTrial::measure_pair() {
  if (setup_.method == LinkMethod::copy) {
    EGT_TRY_ASSIGN(outcome_.impossible, transfers_.open(setup_.peer));
    if (!outcome_.impossible.empty()) return {};
  }
  EGT_TRY_ASSIGN(probe_, probe());
  const PairPlan plan = plan_pair(setup_.options, setup_.limits, probe_);
  EGT_TRY(measure_rows(plan));
  return measure_latency(plan);
}

PairMeasurement PairTrial::measurement(const TransferRow& row, int repeats) {
  return {.peer = setup_.peer,
          .method = setup_.method,
          .row = row,
          .repeats = repeats,
          .trial = setup_.trial,
          .number = measurements_++};
}

Result<MeasuredRow> PairTrial::keep(const PairMeasurement& m) {
  auto measured = transfers_.measure(m);
  if (measured.ok() && measured.value().wrong) outcome_.wrong.push_back(*measured.value().wrong);
  return measured;
}

/// The slower of both ranks' figures, so that both plan alike.
Result<PairProbe> PairTrial::probe() {
  const TransferRow rows[] = {{.bytes = least_bytes, .count = least_in_probe},
                              {.bytes = std::min(probe_bytes, setup_.options.size)}};
  std::array<double, 2> own{}, theirs{};
  for (std::size_t i = 0; i < own.size(); ++i) {
    PairMeasurement m = measurement(rows[i], probe_repeats);
    m.sends = m.receives = true;
    m.changes = false;
    EGT_TRY_ASSIGN(const MeasuredRow measured, keep(m));
    own[i] = *std::min_element(measured.seconds.begin(), measured.seconds.end());
  }
  EGT_TRY(bench_.swap(setup_.peer, own.data(), theirs.data(), sizeof own));
  for (std::size_t i = 0; i < own.size(); ++i) own[i] = std::max(own[i], theirs[i]);
  constexpr double shortest = 1e-9;
  return PairProbe{.least_seconds = own[0],
                   .bytes_per_second = static_cast<double>(rows[1].bytes) / std::max(own[1], shortest)};
}

Result<LinkTiming> PairTrial::measure(const TransferRow& row, int repeats, bool sends, bool receives) {
  PairMeasurement m = measurement(row, repeats);
  m.sends = sends;
  m.receives = receives;
  m.extra_bytes = injections_.extra_bytes(setup_.trial, setup_.peer, row, probe_.bytes_per_second);
  EGT_TRY_ASSIGN(MeasuredRow measured, keep(m));
  return timing_of(std::move(measured.seconds));
}

Status PairTrial::measure_rows(const PairPlan& plan) {
  PairSide& side = outcome_.side;
  side.largest = plan.largest();
  side.repeats = plan.repeats;
  const bool sender_times = setup_.method == LinkMethod::copy;
  for (const TransferRow& row : plan.rows) {
    for (const bool lower_sends : {true, false}) {
      const bool sends = lower_sends == is_lower_;
      EGT_TRY_ASSIGN(const LinkTiming timing, measure(row, plan.repeats, sends, !sends));
      if (sends == sender_times) side.one_way_largest = timing;
    }
    EGT_TRY_ASSIGN(side.both_largest, measure(row, plan.repeats, true, true));
    side.one_way.push_back(side.one_way_largest.median);
    side.both_ways.push_back(side.both_largest.median);
  }
  return {};
}

Status PairTrial::measure_latency(const PairPlan& plan) {
  if (setup_.method == LinkMethod::copy) {
    outcome_.side.latency = outcome_.side.one_way.front();
    return {};
  }
  PairMeasurement m = measurement(plan.rows.front(), plan.repeats);
  m.sends = m.receives = m.in_turns = true;
  m.starts = is_lower_;
  EGT_TRY_ASSIGN(MeasuredRow measured, keep(m));
  outcome_.side.latency = timing_of(std::move(measured.seconds)).median;
  return {};
}

}  // namespace egt
