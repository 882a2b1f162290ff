#include "workload/links/link_injections.hpp"

#include <cmath>

#include <fmt/format.h>

namespace egt {
namespace {

bool concerns(const Injection& injection, int rank, int peer) {
  return injection.rank == rank && (!injection.peer || *injection.peer == peer);
}

Status wrong(const Injection& injection, const std::string& why) {
  return {StatusCode::invalid_argument, fmt::format("--inject {}: {}", to_text(injection), why)};
}

}  // namespace

std::optional<Injection> LinkInjections::take(InjectionKind kind, std::int64_t trial, int peer) {
  return environment_.injector.take(
      kind, trial, [&](const Injection& one) { return concerns(one, environment_.place.rank, peer); });
}

double LinkInjections::extra_of(const Injection& slow, const TransferRow& row,
                                double bytes_per_second) const {
  if (slow.ms) return *slow.ms * 1e-3 * bytes_per_second;
  const bool is_host = environment_.device.info().backend == "host";
  const double percent = slow.count > 1 ? static_cast<double>(slow.count)
                         : is_host      ? default_host_percent
                                        : default_percent;
  return percent / 100 * static_cast<double>(row.total());
}

std::uint64_t LinkInjections::extra_bytes(std::int64_t trial, int peer, const TransferRow& row,
                                          double bytes_per_second) {
  const int self = environment_.place.rank;
  while (const auto slow = take(InjectionKind::slow, trial, peer))
    environment_.injector.report(
        *slow, trial,
        fmt::format("all that goes between rank {} and {}", slow->rank,
                    slow->peer ? fmt::format("rank {}", *slow->peer) : std::string("others")));
  double extra = 0;
  for (const Injection& one : environment_.injector.all())
    if (one.kind == InjectionKind::slow && one.step <= trial &&
        (concerns(one, self, peer) || concerns(one, peer, self)))
      extra += extra_of(one, row, bytes_per_second);
  constexpr std::uint64_t word = sizeof(std::uint32_t);
  return static_cast<std::uint64_t>(std::llround(extra)) / word * word;
}

Status LinkInjections::change_received(std::int64_t trial, int peer, WordsView words, Stream& stream) {
  while (const auto due = take(InjectionKind::collective, trial, peer)) {
    const Flip flip = choose_flip(*due, words.count, environment_.seed);
    EGT_TRY(environment_.device.flip(words, flip, stream));
    environment_.injector.report(
        *due, trial, flip,
        fmt::format("what rank {} receives from {}", due->rank,
                    peer < 0 ? std::string("all ranks") : fmt::format("rank {}", peer)));
  }
  return {};
}

std::optional<Injection> LinkInjections::take_hang(std::int64_t trial, int peer) {
  const auto hang = environment_.injector.take(InjectionKind::hang, trial, [&](const Injection& one) {
    return one.peer && concerns(one, environment_.place.rank, peer);
  });
  if (hang) environment_.injector.report(*hang, trial, fmt::format("its part of a trial with rank {}", peer));
  return hang;
}

Status check_link_injections(const std::vector<Injection>& injections, int ranks) {
  using enum InjectionKind;
  for (const Injection& injection : injections) {
    const InjectionKind kind = injection.kind;
    if ((row_of(kind).places & in_links) == 0)
      return wrong(injection,
                   fmt::format("links has nothing that it could hit; use {}", kinds_with_place(in_links)));
    if (injection.peer && (*injection.peer >= ranks || *injection.peer == injection.rank))
      return wrong(injection, fmt::format("peer {} is no other rank of this run; use another of 0 to {}",
                                          *injection.peer, ranks - 1));
    if (kind == slow && ranks < 2)
      return wrong(injection, "a single rank has no peer that it could be slow to; use at least 2 ranks");
    if (kind == collective && injection.layer)
      return wrong(injection, "links has no layers of collectives; leave layer out");
    if (kind == hang && injection.peer && injection.layer)
      return wrong(injection, "a hang with a peer has no layer; leave one of them out");
  }
  return {};
}

}  // namespace egt
