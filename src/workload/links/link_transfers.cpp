#include "workload/links/link_transfers.hpp"

#include <algorithm>
#include <cstddef>
#include <span>

#include <fmt/format.h>

#include "workload/common/findings.hpp"

namespace egt {
namespace {

constexpr double copy_call_ms = 0.02;  ///< what enqueuing a copy may take the host
constexpr double longest_leading_hold_ms = 25;

}  // namespace

Result<std::string> LinkTransfers::open(int peer) {
  const std::string refused = "!";  // a handle is no such word
  EGT_TRY_ASSIGN(
      const std::string told,
      bench_.swap_text(peer, bench_.handle().empty() ? refused + bench_.unshared() : bench_.handle()));
  std::string why;
  if (told.starts_with(refused)) {
    why = told.substr(refused.size());
  } else if (bench_.handle().empty()) {
    why = bench_.unshared();
  } else {
    auto opened = bench_.device().open_shared(told);
    if (opened.ok()) peers_memory_ = std::move(opened.value());
    why = opened.status().what();
  }
  EGT_TRY_ASSIGN(const std::string theirs, bench_.swap_text(peer, why));
  if (!theirs.empty() || !why.empty()) close();
  return why.empty() ? theirs : why;
}

Result<MeasuredRow> LinkTransfers::measure(const PairMeasurement& m) {
  const auto repeats = static_cast<std::size_t>(m.repeats);
  MeasuredRow measured;
  double hold_factor = 1;
  EGT_TRY(bench_.reset_reports(repeats));
  for (int repeat = 0; repeat < m.repeats; ++repeat) {
    EGT_TRY(prepare_data(m, repeat));
    EGT_TRY(align(m, hold_factor));
    EGT_TRY(bench_.start_clock());
    EGT_TRY(move(m));
    EGT_TRY(bench_.stop_clock());
    EGT_TRY_ASSIGN(const bool led, bench_.leads_device());
    if (m.must_lead && !led) hold_factor *= 2;
    EGT_TRY(verify(m, repeat));
    EGT_TRY(bench_.wait());
    EGT_TRY_ASSIGN(const double seconds, bench_.clock_seconds());
    measured.repeats.push_back({.seconds = seconds / m.row.count / (m.in_turns ? 2 : 1), .led = led});
    EGT_TRY(bench_.check_stop());
  }
  if (!m.receives) return measured;
  EGT_TRY(bench_.fetch_reports(repeats));
  EGT_TRY(bench_.wait());
  measured.wrong = look_at_reports(m);
  bench_.count_verified(m.row.total() * repeats);
  return measured;
}

Pattern LinkTransfers::pattern(const PairMeasurement& m, int repeat, int from, int to) const {
  const auto part = [](auto number) { return static_cast<std::uint64_t>(number); };
  return {.kind = PatternKind::random,
          .seed = link_seed(bench_.environment().seed,
                            {part(m.trial), m.number, part(repeat), part(from), part(to)})};
}

Status LinkTransfers::prepare_data(const PairMeasurement& m, int repeat) {
  const int self = bench_.environment().place.rank;
  if (m.sends)
    EGT_TRY(bench_.device().fill(bench_.outgoing(m.row.total()), pattern(m, repeat, self, m.peer),
                                 bench_.stream()));
  if (!m.receives) return {};
  Pattern before = pattern(m, repeat, m.peer, self);
  before.kind = PatternKind::random_inverse;
  return bench_.device().fill(bench_.incoming(m.row.total()), before, bench_.stream());
}

/// Nobody waits for who only receives copies.
Status LinkTransfers::align(const PairMeasurement& m, double hold_factor) {
  const bool copies = m.method == LinkMethod::copy;
  const double one_ms = copies ? copy_call_ms : LinkContext::call_ms * (m.in_turns ? 2 : 1);
  const double longest_ms = m.must_lead ? longest_leading_hold_ms : LinkContext::longest_hold_ms;
  if (!copies || m.sends)
    EGT_TRY(bench_.hold(std::min((m.row.count * one_ms + LinkContext::call_ms) * hold_factor, longest_ms)));
  if (m.with_all) return bench_.align_with_all();
  return m.peer < 0 ? Status() : bench_.align_with(m.peer);
}

Status LinkTransfers::move(const PairMeasurement& m) {
  if (m.peer < 0) return {};
  for (std::uint64_t left = m.extra_bytes; left > 0;) {
    const std::uint64_t bytes = std::min(left, m.row.bytes);
    EGT_TRY(move_one(m, 0, bytes));
    left -= bytes;
  }
  for (int i = 0; i < m.row.count; ++i)
    EGT_TRY(move_one(m, static_cast<std::uint64_t>(i) * m.row.bytes, m.row.bytes));
  return {};
}

Status LinkTransfers::move_one(const PairMeasurement& m, std::uint64_t offset, std::uint64_t bytes) {
  if (m.method == LinkMethod::copy) {
    if (!m.sends) return {};
    const auto* const from = reinterpret_cast<const std::byte*>(bench_.outgoing(m.row.total()).data);
    return bench_.device().copy(peers_memory_.as<std::byte>() + offset, from + offset, bytes,
                                bench_.stream());
  }
  if (!m.in_turns) return exchange(m, m.sends, m.receives, offset, bytes);
  EGT_TRY(exchange(m, m.starts, !m.starts, offset, bytes));
  return exchange(m, !m.starts, m.starts, offset, bytes);
}

Status LinkTransfers::exchange(const PairMeasurement& m, bool sends, bool receives, std::uint64_t offset,
                               std::uint64_t bytes) {
  auto* const out = reinterpret_cast<std::byte*>(bench_.outgoing(m.row.total()).data);
  auto* const in = reinterpret_cast<std::byte*>(bench_.incoming(m.row.total()).data);
  const Message send{out + offset, bytes, m.peer}, receive{in + offset, bytes, m.peer};
  return bench_.communicator().exchange(std::span(&send, sends ? 1 : 0),
                                        std::span(&receive, receives ? 1 : 0), bench_.stream());
}

/// What was copied into this rank's memory is there when the peer says so, by a message behind it.
Status LinkTransfers::verify(const PairMeasurement& m, int repeat) {
  if (m.peer >= 0 && m.method == LinkMethod::copy) EGT_TRY(bench_.align_with(m.peer));
  if (!m.receives) return {};
  const WordsView received = bench_.incoming(m.row.total());
  if (m.changes) EGT_TRY(injections_.change_received(m.trial, m.peer, received, bench_.stream()));
  const int self = bench_.environment().place.rank;
  return bench_.device().verify(received, pattern(m, repeat, m.peer, self),
                                bench_.report(static_cast<std::size_t>(repeat)), bench_.stream());
}

std::optional<WrongData> LinkTransfers::look_at_reports(const PairMeasurement& m) const {
  std::optional<WrongData> wrong;
  for (int repeat = 0; repeat < m.repeats; ++repeat) {
    const Mismatches& found = bench_.told(static_cast<std::size_t>(repeat));
    if (found.count == 0) continue;
    if (!wrong) {
      const Mismatches::Sample sample = lowest_sample(found);
      wrong = {.from = m.peer,
               .bytes = m.row.bytes,
               .repeat = repeat,
               .offset = sample.index * sizeof(std::uint32_t) % m.row.bytes,
               .expected = sample.expected,
               .actual = sample.actual,
               .words = 0};
    }
    wrong->words += found.count;
  }
  return wrong;
}

}  // namespace egt
