#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "workload/collective/collective_judgement.hpp"
#include "workload/options.hpp"

/// Which trials `links` makes, in which order, and how much each moves: pure functions, the same on all
/// ranks.
namespace egt {

/// How two ranks move data between their devices.
enum class LinkMethod {
  exchange,  ///< sends and receives of the communicator: NCCL, or MPI on the host
  copy,      ///< the sender's device writes into the receiver's memory
};

constexpr CollectiveKind link_collectives[] = {CollectiveKind::all_reduce, CollectiveKind::all_gather,
                                               CollectiveKind::reduce_scatter, CollectiveKind::all_to_all};

/// One step of the run.
struct LinkTrial {
  enum class Kind { pair, again, round, host, collective };
  using Pair = std::pair<int, int>;  ///< the lower rank first

  Kind kind = Kind::pair;
  std::vector<Pair> pairs = {};  ///< at the same time, each rank in one at most; `again` names none
  LinkMethod method = LinkMethod::exchange;
  int rank = -1;  ///< of a host trial: whose device
  CollectiveKind collective = CollectiveKind::all_reduce;

  /// The other rank of the pair that `rank` is in; -1: it is in none.
  int partner_of(int rank) const;
};

/// All pairs by exchange; pairs of one host by copies; places for pairs that look slow to be measured again
/// (link_remeasure.hpp); from 4 ranks on rounds of disjoint pairs; every device and its host; with 2 ranks
/// and more the collectives. `host_ids`: of all ranks.
std::vector<LinkTrial> plan_link_trials(const std::vector<std::string>& host_ids);

/// 8 B, 64 B, .. times 8, as far as they are below `largest`, and `largest` itself (above 0): bytes.
std::vector<std::uint64_t> link_sizes(std::uint64_t largest);
constexpr std::size_t most_link_sizes = 21;

/// `count` transfers of `bytes` each, one after the other, which are timed together.
struct TransferRow {
  std::uint64_t bytes = 0;
  int count = 1;

  std::uint64_t total() const { return bytes * static_cast<std::uint64_t>(count); }
  bool operator==(const TransferRow&) const = default;
};

/// What a pair can, from a few first transfers: the slower of both ways.
struct PairProbe {
  double least_seconds = 0;     ///< of a transfer of some bytes
  double bytes_per_second = 1;  ///< of a larger one
};

/// What a pair's trial moves: the same on both ranks.
struct PairPlan {
  std::vector<TransferRow> rows;  ///< by size; the last is the largest
  int repeats = 1;                ///< of each row, one way, the other, and both at once

  std::uint64_t largest() const { return rows.back().bytes; }
};

/// Blocks of small transfers that a latency is the median of, and transfers of a block (round trips, by
/// exchange): so few that the host can enqueue them all while the device is held.
constexpr int latency_blocks = 25, latency_copies = 64, latency_round_trips = 8;

/// How long a trial may take, and what its rows may hold.
struct LinkLimits {
  double trial_seconds = 3;            ///< of one pair's trial, about
  double row_seconds = 3e-3;           ///< a row of small transfers shall take: enough for the clock
  int most_in_row = 256;               ///< transfers
  std::uint64_t row_bytes = 64 << 20;  ///< of a row of several transfers, at most
  double upkeep_seconds_per_byte = 0;  ///< of filling before and verifying after
};
/// `timeout_seconds`: a rank that waits longer for a peer is taken for stuck; trials stay well below.
LinkLimits link_limits(bool is_gpu, double timeout_seconds);

/// All sizes up to options.size, options.repeats times each; fewer repeats, then smaller sizes, where that
/// would take longer than the limit.
PairPlan plan_pair(const LinksOptions& options, const LinkLimits& limits, const PairProbe& probe);

}  // namespace egt
