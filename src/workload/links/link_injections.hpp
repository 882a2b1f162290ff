#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "egt/workload/workload.hpp"
#include "workload/links/link_plan.hpp"

namespace egt {

/// Faults on purpose of the links, by trial; `peer` names the other rank of a pair, none: any.
/// - collective: what the rank receives (from the peer) is changed, in the first trial from its step on.
/// - slow: from its step on, whatever goes between the pair is sent with more bytes of the same data, which
/// are
///   timed but not counted: `count` percent more (200 where neither count nor ms is given), or as many as
///   take `ms` milliseconds a row.
/// - hang: in the pair's first trial from its step on the rank does not send or receive: for `ms`, or until
///   all ranks begin anew.
class LinkInjections {
 public:
  static constexpr double default_percent = 200, default_host_percent = 3000;

  explicit LinkInjections(const Environment& environment) : environment_(environment) {}

  /// Bytes that a row of the pair takes on the way besides its own; the same on both ranks.
  std::uint64_t extra_bytes(std::int64_t trial, int peer, const TransferRow& row, double bytes_per_second);
  /// Changes what came in, if that is due; `peer`: from whom, -1: from all.
  Status change_received(std::int64_t trial, int peer, WordsView words, Stream& stream);
  /// The hang that is due for this rank in a trial with `peer`, which is thereby taken and told.
  std::optional<Injection> take_hang(std::int64_t trial, int peer);

 private:
  std::optional<Injection> take(InjectionKind kind, std::int64_t trial, int peer);
  double extra_of(const Injection& slow, const TransferRow& row, double bytes_per_second) const;

  const Environment& environment_;
};

/// Can these strike in a run of links with so many ranks? Else invalid_argument, in one line.
Status check_link_injections(const std::vector<Injection>& injections, int ranks);

}  // namespace egt
