#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "workload/common/link_timing.hpp"
#include "workload/links/link_context.hpp"
#include "workload/links/link_injections.hpp"
#include "workload/links/link_plan.hpp"

namespace egt {

/// What one rank of a pair timed. One way is timed where the work is: by exchange it is the receiver who
/// waits for the last byte, a copy is the sender's.
struct PairSide {
  std::uint64_t largest = 0;  ///< bytes
  int repeats = 0;
  LinkLatency latency;  ///< of the lower rank; the other's is not measured
  /// Seconds of a transfer, by size; medians; and of both at once.
  std::array<double, most_link_sizes> one_way{}, both_ways{};
  LinkTiming one_way_largest, both_largest;
};

/// A pair's trial, as one of its ranks sees it.
struct PairOutcome {
  std::string impossible;  ///< why nothing could be measured; else empty
  PairSide side;
  std::vector<WrongData> wrong;  ///< that this rank received
};

/// One measurement of a pair, as one of its ranks makes it; the other makes its counterpart at the same time.
struct PairMeasurement {
  bool sends = false, receives = false;
  /// Each transfer one way is answered by one the other way before the next begins; `starts`: by this rank.
  bool in_turns = false, starts = false;
  bool with_all = false;  ///< all ranks start together, not only the pair
  TransferRow row = {};
  int repeats = 1;
  /// Each repeat is held for longer than the one before, within limits, if that one did not lead.
  bool must_lead = false;
  std::uint64_t extra_bytes = 0;  ///< see LinkInjections
  bool changes = true;            ///< may what is received be changed on purpose?
};

struct MeasuredRow {
  std::vector<LinkRepeat> repeats;  ///< on this rank's device
  std::optional<WrongData> wrong;
};

/// Moves data between two ranks by one method. The sender's memory holds words that follow from trial,
/// measurement, repeat and direction, other ones in each transfer of a row; what lies in the receiver's
/// memory before differs from them in every bit; and all of it is verified on the receiver's device after
/// each repeat.
///
/// Destroyed before the peer frees its memory, at the end of the trial, with nothing in the stream: that may
/// wait for it.
class LinkPairTest {
 public:
  struct Setup {
    std::int64_t trial = 0;
    int peer = 0;  ///< -1: this rank only starts together with all others
    LinkMethod method = LinkMethod::exchange;
    LinksOptions options = {};
    LinkLimits limits = {};
  };
  LinkPairTest(LinkContext& bench, LinkInjections& injections, Setup setup)
      : bench_(bench),
        injections_(injections),
        setup_(std::move(setup)),
        self_(bench.environment().place.rank),
        is_lower_(self_ < setup_.peer) {}

  /// The trial of a pair: first some transfers that tell what it can, from which both ranks make the same
  /// plan; then every row of that one way, the other, and both at once; at last the latency.
  ///
  /// Latency is half a round trip of 8 B by exchange, as osu_latency has it; for copies, which nobody
  /// answers, the time of one of many copies of 8 B in a row, as in CUDA's p2pBandwidthLatencyTest: the
  /// median of many blocks, each enqueued before the device begins with it.
  Result<PairOutcome> make();
  /// One measurement by itself; see LinkContext::measure.
  Result<MeasuredRow> measure(const PairMeasurement& measurement);

 private:
  Result<std::string> open_peers_memory();
  Result<PairProbe> probe();
  Status measure_rows(const PairPlan& plan);
  Status measure_latency();
  Status take_peers_lead(std::vector<LinkRepeat>& blocks);
  /// As a part of the trial: what is wrong is kept.
  Result<std::vector<LinkRepeat>> keep(const PairMeasurement& measurement);
  Result<LinkTiming> time_row(const TransferRow& row, int repeats, bool sends, bool receives);

  Status prepare_data(const PairMeasurement& m, int repeat);
  Status align(const PairMeasurement& m, double hold_factor);
  Status move(const PairMeasurement& m);
  Status move_one(const PairMeasurement& m, std::uint64_t offset, std::uint64_t bytes);
  Status exchange(const PairMeasurement& m, bool sends, bool receives, std::uint64_t offset,
                  std::uint64_t bytes);
  Status verify(const PairMeasurement& m, int repeat);
  Pattern pattern(int repeat, int from, int to) const;

  LinkContext& bench_;
  LinkInjections& injections_;
  const Setup setup_;
  const int self_;
  const bool is_lower_;
  std::uint64_t measurements_ = 0;  ///< begun: another pattern for each
  Buffer peers_memory_;
  PairProbe probe_;
  PairOutcome outcome_;
};

}  // namespace egt
