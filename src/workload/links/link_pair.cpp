#include "workload/links/link_pair.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace egt {
namespace {

constexpr std::uint64_t probe_bytes = 1'000'000, least_bytes = 8;
constexpr int least_in_probe = 8, probe_repeats = 2;  // the first one connects the two
constexpr std::size_t single_figures = 11;

}  // namespace

std::vector<double> PairSide::to_figures() const {
  std::vector<double> figures = {static_cast<double>(largest),
                                 static_cast<double>(repeats),
                                 latency.median,
                                 latency.low,
                                 latency.high,
                                 one_way_largest.median,
                                 one_way_largest.least,
                                 one_way_largest.most,
                                 both_largest.median,
                                 both_largest.least,
                                 both_largest.most};
  figures.insert(figures.end(), one_way.begin(), one_way.end());
  figures.insert(figures.end(), both_ways.begin(), both_ways.end());
  return figures;
}

PairSide PairSide::from_figures(std::span<const double> figures) {
  PairSide side;
  side.largest = static_cast<std::uint64_t>(figures[0]);
  if (side.largest == 0) return side;
  side.repeats = static_cast<int>(figures[1]);
  side.latency = {figures[2], figures[3], figures[4]};
  side.one_way_largest = {figures[5], figures[6], figures[7]};
  side.both_largest = {figures[8], figures[9], figures[10]};
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
  return measure_latency();
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
    own[i] = timing_of(seconds_of(measured.repeats)).least;
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
  return timing_of(seconds_of(measured.repeats));
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

Status PairTrial::measure_latency() {
  const bool copies = setup_.method == LinkMethod::copy;
  const auto room = static_cast<int>(std::min<std::uint64_t>(bench_.bytes() / least_bytes, latency_copies));
  PairMeasurement m = measurement(
      {.bytes = least_bytes, .count = std::min(room, copies ? latency_copies : latency_round_trips)},
      latency_blocks);
  m.must_lead = true;
  m.in_turns = !copies;
  m.sends = m.in_turns || is_lower_;
  m.receives = m.in_turns || !is_lower_;
  m.starts = is_lower_;
  EGT_TRY_ASSIGN(MeasuredRow measured, keep(m));
  if (m.in_turns) EGT_TRY(take_peers_lead(measured.repeats));
  if (is_lower_) outcome_.side.latency = latency_of(measured.repeats);
  return {};
}

/// A round trip waits for what the peer's host has not enqueued yet.
Status PairTrial::take_peers_lead(std::vector<LinkRepeat>& blocks) {
  std::vector<std::uint8_t> own, theirs(blocks.size());
  for (const LinkRepeat& block : blocks) own.push_back(block.led);
  EGT_TRY(bench_.swap(setup_.peer, own.data(), theirs.data(), own.size()));
  for (std::size_t i = 0; i < blocks.size(); ++i) blocks[i].led = blocks[i].led && theirs[i] != 0;
  return {};
}

}  // namespace egt
