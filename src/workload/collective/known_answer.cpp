#include "workload/collective/known_answer.hpp"

#include <algorithm>

namespace egt {
namespace {

using Kind = CollectiveKind;

bool is_in_place(Kind kind) {
  return kind == Kind::all_reduce || kind == Kind::broadcast;
}

bool is_sum(Kind kind) {
  return kind == Kind::all_reduce || kind == Kind::reduce_scatter;
}

/// Index of the first report on received data.
std::size_t first_report(Kind kind) {
  constexpr std::size_t places[] = {sum_report, message_report, slice_report, first_block_report,
                                    first_block_report};
  return places[static_cast<std::size_t>(kind)];
}

}  // namespace

RankReports rank_reports(const Mismatches* reported, int ranks) {
  RankReports reports(ranks);
  reports.all_reduce = reported[sum_report];
  reports.broadcast = reported[message_report];
  reports.reduce_scatter = reported[slice_report];
  reports.put_in = reported[put_in_report];
  std::copy_n(reported + first_block_report, ranks, reports.blocks.begin());
  return reports;
}

std::uint64_t KnownAnswer::parts_put_in(Kind kind, int ranks) {
  return kind == Kind::reduce_scatter || kind == Kind::all_to_all ? static_cast<std::uint64_t>(ranks) : 1;
}

std::uint64_t KnownAnswer::parts_received(Kind kind, int ranks) {
  return kind == Kind::all_gather || kind == Kind::all_to_all ? static_cast<std::uint64_t>(ranks) : 1;
}

Pattern KnownAnswer::put_in(int from, int to) const {
  if (is_sum(kind))
    return {.kind = PatternKind::contribution,
            .parameter = static_cast<std::uint32_t>(round.field_of(from)),
            .seed = seed(-1, to)};
  return {.kind = PatternKind::random, .seed = seed(kind == Kind::broadcast ? -1 : from, to)};
}

/// Expected data of the part that rank `from` sends to this rank; 0 if there is only one part.
Pattern KnownAnswer::answer(int from) const {
  const int to = kind == Kind::reduce_scatter || kind == Kind::all_to_all ? rank : 0;
  if (is_sum(kind))
    return {.kind = PatternKind::contribution_sum,
            .parameter = static_cast<std::uint32_t>(round.fields()),
            .seed = seed(-1, to)};
  return put_in(from, to);
}

Status KnownAnswer::fill(Device& device, Stream& stream) const {
  const auto received = static_cast<int>(parts_received(kind, round.size));
  for (int from = 0; from < received && !is_in_place(kind); ++from) {
    Pattern before = answer(from);
    before.kind = PatternKind::random_inverse;  // one in 2^32 of these words equals a sum by chance
    EGT_TRY(device.fill(part(receive, from), before, stream));
  }
  const auto sent = static_cast<int>(parts_put_in(kind, round.size));
  for (int to = 0; to < sent; ++to) {
    Pattern own = put_in(rank, to);
    if (kind == Kind::broadcast && rank != round.root()) own.kind = PatternKind::random_inverse;
    EGT_TRY(device.fill(part(is_in_place(kind) ? receive : send, to), own, stream));
  }
  return {};
}

Status KnownAnswer::run(Communicator& communicator, Stream& stream) const {
  const std::size_t bytes = part_words * sizeof(std::uint32_t);
  switch (kind) {
    case Kind::all_reduce:
      return communicator.all_reduce(receive, part_words, ElementType::f32, stream);
    case Kind::broadcast:
      return communicator.broadcast(receive, bytes, round.root(), stream);
    case Kind::reduce_scatter:
      return communicator.reduce_scatter(send, receive, part_words, ElementType::f32, stream);
    case Kind::all_gather:
      return communicator.all_gather(send, receive, bytes, stream);
    case Kind::all_to_all:
      return egt::all_to_all(communicator, send, receive, bytes, stream);
  }
  return {StatusCode::internal, "there is no such collective"};
}

Status KnownAnswer::verify(Device& device, Mismatches* reports, Stream& stream) const {
  const auto received = static_cast<int>(parts_received(kind, round.size));
  for (int from = 0; from < received; ++from)
    EGT_TRY(device.verify(part(receive, from), answer(from), reports + first_report(kind) + from, stream));
  for (int owner = 0; kind == Kind::reduce_scatter && owner < round.size; ++owner)
    EGT_TRY(device.verify(part(send, owner), put_in(rank, owner), reports + put_in_report, stream));
  return {};
}

}  // namespace egt
