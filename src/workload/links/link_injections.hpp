#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "egt/workload/workload.hpp"
#include "workload/links/link_plan.hpp"

namespace egt {

/// Injected link faults, by trial. `peer` is the other rank of a pair; if empty, any.
/// - collective: flips received data (from the peer) in the first trial from its step on.
/// - slow: from its step on, every transfer of the pair sends more bytes of the same data, which are timed
///   but not counted. The extra is `count` percent (default 200, on the host 3000), or as many bytes as need
///   `ms` milliseconds per row.
/// - hang: in the pair's first trial from its step on, the rank neither sends nor receives for `ms`, or until
///   all ranks restart.
class LinkInjections {
 public:
  static constexpr double default_percent = 200, default_host_percent = 3000;

  explicit LinkInjections(const Environment& environment) : environment_(environment) {}

  /// Extra bytes sent with a row of the pair; the same on both ranks.
  std::uint64_t extra_bytes(std::int64_t trial, int peer, const TransferRow& row, double bytes_per_second);
  /// Corrupts received data if an injection is due. `peer`: the sender; -1: all ranks.
  Status change_received(std::int64_t trial, int peer, WordsView words, Stream& stream);
  /// Consumes and reports the hang that is due for this rank in a trial with `peer`.
  std::optional<Injection> take_hang(std::int64_t trial, int peer);

 private:
  std::optional<Injection> take(InjectionKind kind, std::int64_t trial, int peer);
  double extra_of(const Injection& slow, const TransferRow& row, double bytes_per_second) const;

  const Environment& environment_;
};

/// Returns invalid_argument with one line if an injection cannot take effect with that many ranks.
Status check_link_injections(const std::vector<Injection>& injections, int ranks);

}  // namespace egt
