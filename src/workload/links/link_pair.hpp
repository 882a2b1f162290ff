#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "workload/common/link_timing.hpp"
#include "workload/links/link_transfers.hpp"

namespace egt {

/// What one rank of a pair timed. One way is timed where the work is: by exchange it is the receiver who
/// waits for the last byte, a copy is the sender's.
struct PairSide {
  std::uint64_t largest = 0;  ///< bytes
  int repeats = 0;
  LinkLatency latency;            ///< of the lower rank; the other's is not measured
  std::vector<double> one_way;    ///< seconds of a transfer, by size; medians
  std::vector<double> both_ways;  ///< likewise, of both at once
  LinkTiming one_way_largest, both_largest;

  /// As figures of a rank for all; `from_figures` gives them again.
  std::vector<double> to_figures() const;
  static PairSide from_figures(std::span<const double> figures);
};

/// A pair's trial, as one of its ranks sees it.
struct PairOutcome {
  std::string impossible;  ///< why nothing could be measured; else empty
  PairSide side;
  std::vector<WrongData> wrong;  ///< that this rank received
};

/// Makes the trial of a pair by one method: first some transfers that tell what it can, from which both ranks
/// make the same plan; then every row of that one way, the other, and both at once; at last the latency.
///
/// Latency is half a round trip of 8 B by exchange, as osu_latency has it; for copies, which nobody answers,
/// the time of one of many copies of 8 B in a row, as in CUDA's p2pBandwidthLatencyTest: the median of many
/// blocks, each enqueued before the device begins with it.
class PairTrial {
 public:
  struct Setup {
    std::int64_t trial = 0;
    int peer = 0;
    LinkMethod method = LinkMethod::exchange;
    LinksOptions options;
    LinkLimits limits;
  };
  PairTrial(LinkContext& bench, LinkTransfers& transfers, LinkInjections& injections, Setup setup)
      : bench_(bench),
        transfers_(transfers),
        injections_(injections),
        setup_(std::move(setup)),
        self_(bench.environment().place.rank),
        is_lower_(self_ < setup_.peer) {}

  Result<PairOutcome> make();

 private:
  Status measure_pair();
  Result<PairProbe> probe();
  Status measure_rows(const PairPlan& plan);
  Status measure_latency();
  Status take_peers_lead(std::vector<LinkRepeat>& blocks);
  /// One measurement; what is wrong is kept.
  Result<LinkTiming> measure(const TransferRow& row, int repeats, bool sends, bool receives);
  Result<MeasuredRow> keep(const PairMeasurement& measurement);
  PairMeasurement measurement(const TransferRow& row, int repeats);

  LinkContext& bench_;
  LinkTransfers& transfers_;
  LinkInjections& injections_;
  const Setup setup_;
  const int self_;
  const bool is_lower_;
  std::uint64_t measurements_ = 0;
  PairProbe probe_;
  PairOutcome outcome_;
};

}  // namespace egt
