#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "workload/collective/collective_judgement.hpp"
#include "workload/options.hpp"

/// Plans the trials of `links`, their order and their sizes. Pure functions with the same results on all
/// ranks.
namespace egt {

/// How two ranks move data between their devices.
enum class LinkMethod {
  exchange,  ///< send and receive of the communicator: NCCL, or MPI on the host
  copy,      ///< the sender's device writes into the receiver's memory
};

constexpr CollectiveKind link_collectives[] = {CollectiveKind::all_reduce, CollectiveKind::all_gather,
                                               CollectiveKind::reduce_scatter, CollectiveKind::all_to_all};

/// One step of the run.
struct LinkTrial {
  enum class Kind { pair, again, round, host, collective };
  using Pair = std::pair<int, int>;  ///< the lower rank first

  Kind kind = Kind::pair;
  std::vector<Pair> pairs = {};  ///< concurrent pairs, each rank in one or none; empty for `again`
  LinkMethod method = LinkMethod::exchange;
  int rank = -1;  ///< of a host trial: rank of the device
  CollectiveKind collective = CollectiveKind::all_reduce;

  /// The other rank of `rank`'s pair; -1 if it has none.
  int partner_of(int rank) const;
};

/// All pairs by exchange come first, then pairs on one node by copy. Slots to measure slow pairs again follow
/// (link_remeasure.hpp). Then come rounds of disjoint pairs (4 or more ranks), every device with its host,
/// and the collectives (2 or more ranks). `host_ids`: of all ranks.
std::vector<LinkTrial> plan_link_trials(const std::vector<std::string>& host_ids);

/// Sizes in bytes: powers of 8 below `largest`, then `largest` itself (above 0).
std::vector<std::uint64_t> link_sizes(std::uint64_t largest);
constexpr std::size_t max_link_sizes = 21;

/// `count` transfers of `bytes` each, one after the other, timed together.
struct TransferRow {
  std::uint64_t bytes = 0;
  int count = 1;

  std::uint64_t total() const { return bytes * static_cast<std::uint64_t>(count); }
  bool operator==(const TransferRow&) const = default;
};

/// Performance of a pair measured by a few probe transfers: the slower of both ways.
struct PairProbe {
  double min_seconds = 0;       ///< per transfer of a few bytes
  double bytes_per_second = 1;  ///< of a larger transfer
};

/// Transfers of a pair's trial, the same on both ranks.
struct PairPlan {
  std::vector<TransferRow> rows;  ///< sorted by size; the last has the max size
  int repeats = 1;                ///< of each row: one way, the other way, and both at once

  std::uint64_t largest() const { return rows.back().bytes; }
};

/// Blocks whose median is a latency, and transfers (for exchange: round trips) per block. They are few, so
/// that the host can enqueue them all while the device is held.
constexpr int latency_blocks = 25, latency_copies = 64, latency_round_trips = 8;

/// Time limit of a trial and size limits of its rows.
struct LinkLimits {
  double trial_seconds = 3;            ///< approximate limit of one pair's trial
  double row_seconds = 3e-3;           ///< target time of a row of small transfers; enough for the clock
  int max_in_row = 256;                ///< transfers per row
  std::uint64_t row_bytes = 64 << 20;  ///< limit of a row of several transfers
  double upkeep_seconds_per_byte = 0;  ///< to fill the buffers before a transfer and to verify them after it
};
/// `timeout_seconds`: a rank that waits longer for a peer counts as stuck. Trials stay well below.
LinkLimits link_limits(bool is_gpu, double timeout_seconds);

/// All sizes up to options.size, options.repeats times each. If that exceeds the time limit, it plans fewer
/// repeats, then fewer sizes.
PairPlan plan_pair(const LinksOptions& options, const LinkLimits& limits, const PairProbe& probe);

}  // namespace egt
