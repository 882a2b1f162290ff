#include "workload/links/link_pair.hpp"

#include <algorithm>
#include <cstddef>
#include <span>

namespace egt {
namespace {

constexpr std::uint64_t probe_bytes = 1'000'000, min_bytes = 8;
constexpr int min_in_probe = 8, probe_repeats = 2;  // the first one sets up the connection
constexpr double copy_call_ms = 0.02;               ///< upper estimate of the host time to enqueue a copy
constexpr double longest_leading_hold_ms = 25;

}  // namespace

Result<PairOutcome> LinkPairTest::make() {
  if (setup_.method == LinkMethod::copy) {
    EGT_TRY_ASSIGN(outcome_.impossible, open_peers_memory());
    if (!outcome_.impossible.empty()) return std::move(outcome_);
  }
  EGT_TRY_ASSIGN(probe_, probe());
  EGT_TRY(measure_rows(plan_pair(setup_.options, setup_.limits, probe_)));
  EGT_TRY(measure_latency());
  return std::move(outcome_);
}

/// Used by the copy method. Returns the reason if either side cannot open the memory; else empty.
Result<std::string> LinkPairTest::open_peers_memory() {
  const std::string refused = "!";  // cannot occur in a handle
  EGT_TRY_ASSIGN(
      const std::string reported,
      bench_.swap_text(setup_.peer, bench_.handle().empty() ? refused + bench_.unshared() : bench_.handle()));
  std::string why;
  if (reported.starts_with(refused)) {
    why = reported.substr(refused.size());
  } else if (bench_.handle().empty()) {
    why = bench_.unshared();
  } else {
    auto opened = bench_.device().open_shared(reported);
    if (opened.ok()) peers_memory_ = std::move(opened.value());
    why = opened.status().what();
  }
  EGT_TRY_ASSIGN(const std::string theirs, bench_.swap_text(setup_.peer, why));
  return why.empty() ? theirs : why;
}

Result<std::vector<LinkRepeat>> LinkPairTest::keep(const PairMeasurement& m) {
  EGT_TRY_ASSIGN(MeasuredRow measured, measure(m));
  if (measured.wrong) outcome_.wrong.push_back(*measured.wrong);
  return std::move(measured.repeats);
}

/// Uses the slower of both ranks' values, so that both compute the same plan.
Result<PairProbe> LinkPairTest::probe() {
  const TransferRow rows[] = {{.bytes = min_bytes, .count = min_in_probe},
                              {.bytes = std::min(probe_bytes, setup_.options.size)}};
  std::array<double, 2> own{}, theirs{};
  for (std::size_t i = 0; i < own.size(); ++i) {
    EGT_TRY_ASSIGN(
        const auto repeats,
        keep({.sends = true, .receives = true, .row = rows[i], .repeats = probe_repeats, .changes = false}));
    own[i] = timing_of(seconds_of(repeats)).least;
  }
  EGT_TRY(bench_.swap(setup_.peer, own.data(), theirs.data(), sizeof own));
  for (std::size_t i = 0; i < own.size(); ++i) own[i] = std::max(own[i], theirs[i]);
  constexpr double shortest = 1e-9;
  return PairProbe{.min_seconds = own[0],
                   .bytes_per_second = static_cast<double>(rows[1].bytes) / std::max(own[1], shortest)};
}

Result<LinkTiming> LinkPairTest::time_row(const TransferRow& row, int repeats, bool sends, bool receives) {
  const std::uint64_t extra =
      injections_.extra_bytes(setup_.trial, setup_.peer, row, probe_.bytes_per_second);
  EGT_TRY_ASSIGN(
      const auto measured,
      keep({.sends = sends, .receives = receives, .row = row, .repeats = repeats, .extra_bytes = extra}));
  return timing_of(seconds_of(measured));
}

Status LinkPairTest::measure_rows(const PairPlan& plan) {
  PairSide& side = outcome_.side;
  side.largest = plan.largest();
  side.repeats = plan.repeats;
  const bool sender_times = setup_.method == LinkMethod::copy;
  for (std::size_t i = 0; i < plan.rows.size(); ++i) {
    for (const bool lower_sends : {true, false}) {
      const bool sends = lower_sends == is_lower_;
      EGT_TRY_ASSIGN(const LinkTiming timing, time_row(plan.rows[i], plan.repeats, sends, !sends));
      if (sends == sender_times) side.one_way_largest = timing;
    }
    EGT_TRY_ASSIGN(side.both_largest, time_row(plan.rows[i], plan.repeats, true, true));
    side.one_way[i] = side.one_way_largest.median;
    side.both_ways[i] = side.both_largest.median;
  }
  return {};
}

Status LinkPairTest::measure_latency() {
  const bool in_turns = setup_.method == LinkMethod::exchange;
  const auto room = static_cast<int>(std::min<std::uint64_t>(bench_.bytes() / min_bytes, latency_copies));
  EGT_TRY_ASSIGN(auto blocks,
                 keep({.sends = in_turns || is_lower_,
                       .receives = in_turns || !is_lower_,
                       .in_turns = in_turns,
                       .starts = is_lower_,
                       .row = {.bytes = min_bytes,
                               .count = std::min(room, in_turns ? latency_round_trips : latency_copies)},
                       .repeats = latency_blocks,
                       .must_lead = true}));
  if (in_turns) EGT_TRY(take_peers_lead(blocks));
  if (is_lower_) outcome_.side.latency = latency_of(blocks);
  return {};
}

/// A block has led only if it led on both ranks, because a round trip waits for work that the peer enqueues.
Status LinkPairTest::take_peers_lead(std::vector<LinkRepeat>& blocks) {
  std::vector<std::uint8_t> own, theirs(blocks.size());
  for (const LinkRepeat& block : blocks) own.push_back(block.led);
  EGT_TRY(bench_.swap(setup_.peer, own.data(), theirs.data(), own.size()));
  for (std::size_t i = 0; i < blocks.size(); ++i) blocks[i].led = blocks[i].led && theirs[i] != 0;
  return {};
}

Result<MeasuredRow> LinkPairTest::measure(const PairMeasurement& m) {
  const auto reports = static_cast<std::size_t>(m.receives ? m.repeats : 0);
  MeasuredRow measured;
  EGT_TRY_ASSIGN(measured.repeats, bench_.measure({.repeats = m.repeats,
                                                   .transfers = m.row.count * (m.in_turns ? 2 : 1),
                                                   .reports = reports,
                                                   .prepare = [&](int repeat, double hold_factor) -> Status {
                                                     EGT_TRY(prepare_data(m, repeat));
                                                     return align(m, m.must_lead ? hold_factor : 1);
                                                   },
                                                   .move = [&] { return move(m); },
                                                   .verify = [&](int repeat) { return verify(m, repeat); }}));
  measured.wrong = bench_.wrong_data(setup_.peer, m.row.bytes, reports);
  bench_.count_verified(m.row.total() * reports);
  ++measurements_;
  return measured;
}

Pattern LinkPairTest::pattern(int repeat, int from, int to) const {
  const auto part = [](auto number) { return static_cast<std::uint64_t>(number); };
  return {.kind = PatternKind::random,
          .seed = link_seed(bench_.environment().seed,
                            {part(setup_.trial), measurements_, part(repeat), part(from), part(to)})};
}

Status LinkPairTest::prepare_data(const PairMeasurement& m, int repeat) {
  if (m.sends)
    EGT_TRY(bench_.device().fill(bench_.outgoing(m.row.total()), pattern(repeat, self_, setup_.peer),
                                 bench_.stream()));
  if (!m.receives) return {};
  Pattern before = pattern(repeat, setup_.peer, self_);
  before.kind = PatternKind::random_inverse;
  return bench_.device().fill(bench_.incoming(m.row.total()), before, bench_.stream());
}

/// No rank waits for a rank that only receives copies, so that rank does not hold.
Status LinkPairTest::align(const PairMeasurement& m, double hold_factor) {
  const bool copies = setup_.method == LinkMethod::copy;
  const double one_ms = copies ? copy_call_ms : LinkContext::call_ms * (m.in_turns ? 2 : 1);
  const double longest_ms = m.must_lead ? longest_leading_hold_ms : LinkContext::longest_hold_ms;
  if (!copies || m.sends)
    EGT_TRY(bench_.hold(std::min((m.row.count * one_ms + LinkContext::call_ms) * hold_factor, longest_ms)));
  if (m.with_all) return bench_.align_with_all();
  return bench_.align_with(setup_.peer);
}

Status LinkPairTest::move(const PairMeasurement& m) {
  if (setup_.peer < 0) return {};
  for (std::uint64_t left = m.extra_bytes; left > 0;) {
    const std::uint64_t bytes = std::min(left, m.row.bytes);
    EGT_TRY(move_one(m, 0, bytes));
    left -= bytes;
  }
  for (int i = 0; i < m.row.count; ++i)
    EGT_TRY(move_one(m, static_cast<std::uint64_t>(i) * m.row.bytes, m.row.bytes));
  return {};
}

Status LinkPairTest::move_one(const PairMeasurement& m, std::uint64_t offset, std::uint64_t bytes) {
  if (setup_.method == LinkMethod::copy) {
    if (!m.sends) return {};
    const auto* const from = reinterpret_cast<const std::byte*>(bench_.outgoing(m.row.total()).data);
    return bench_.device().copy(peers_memory_.as<std::byte>() + offset, from + offset, bytes,
                                bench_.stream());
  }
  if (!m.in_turns) return exchange(m, m.sends, m.receives, offset, bytes);
  EGT_TRY(exchange(m, m.starts, !m.starts, offset, bytes));
  return exchange(m, !m.starts, m.starts, offset, bytes);
}

Status LinkPairTest::exchange(const PairMeasurement& m, bool sends, bool receives, std::uint64_t offset,
                              std::uint64_t bytes) {
  auto* const out = reinterpret_cast<std::byte*>(bench_.outgoing(m.row.total()).data);
  auto* const in = reinterpret_cast<std::byte*>(bench_.incoming(m.row.total()).data);
  const Message send{out + offset, bytes, setup_.peer}, receive{in + offset, bytes, setup_.peer};
  return bench_.communicator().exchange(std::span(&send, sends ? 1 : 0),
                                        std::span(&receive, receives ? 1 : 0), bench_.stream());
}

/// Copied data are complete once the peer's alignment message, sent after them, arrives.
Status LinkPairTest::verify(const PairMeasurement& m, int repeat) {
  if (setup_.method == LinkMethod::copy) EGT_TRY(bench_.align_with(setup_.peer));
  if (!m.receives) return {};
  const WordsView received = bench_.incoming(m.row.total());
  if (m.changes) EGT_TRY(injections_.change_received(setup_.trial, setup_.peer, received, bench_.stream()));
  return bench_.device().verify(received, pattern(repeat, setup_.peer, self_),
                                bench_.report(static_cast<std::size_t>(repeat)), bench_.stream());
}

}  // namespace egt
