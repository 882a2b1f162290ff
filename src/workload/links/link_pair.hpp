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

/// Times measured by one rank of a pair. One-way times come from the receiver for exchanges, because it waits
/// for the last byte, and from the sender for copies.
struct PairSide {
  std::uint64_t largest = 0;  ///< transfer size in bytes
  int repeats = 0;
  LinkLatency latency;  ///< measured on the lower rank only
  /// Median seconds per transfer, by size: one way, and both ways at once.
  std::array<double, max_link_sizes> one_way{}, both_ways{};
  LinkTiming one_way_largest, both_largest;
};

/// Outcome of a pair's trial on one of its ranks.
struct PairOutcome {
  std::string impossible;  ///< why nothing could be measured; else empty
  PairSide side;
  std::vector<WrongData> wrong;  ///< received by this rank
};

/// One measurement of a pair as one rank runs it. The other rank runs the counterpart at the same time.
struct PairMeasurement {
  bool sends = false, receives = false;
  /// Ping-pong: each transfer is answered before the next begins. `starts`: this rank sends first.
  bool in_turns = false, starts = false;
  bool with_all = false;  ///< all ranks start together, not only the pair
  TransferRow row = {};
  int repeats = 1;
  /// If a repeat did not lead, the next repeat is held longer, within limits.
  bool must_lead = false;
  std::uint64_t extra_bytes = 0;  ///< see LinkInjections
  bool changes = true;            ///< whether injections may corrupt the received data
};

struct MeasuredRow {
  std::vector<LinkRepeat> repeats;  ///< timed on this rank's device
  std::optional<WrongData> wrong;
};

/// Moves data between two ranks by one method. The sent words follow from trial, measurement, repeat and
/// direction, and differ between the transfers of a row. The receive buffer is first filled with the inverse
/// of every bit. All data are verified on the receiver's device after each repeat.
///
/// Destroy it at the end of the trial with an empty stream, before the peer frees its memory: the destructor
/// may wait for the stream.
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

  /// Runs the trial of a pair. Probe transfers come first, from which both ranks compute the same plan. Then
  /// every row is timed one way, the other way, and both at once. Latency comes last.
  ///
  /// Exchange latency is half an 8 B round trip, as in osu_latency. Copies have no reply: their latency is
  /// the time per copy of many 8 B copies in a row, as in CUDA's p2pBandwidthLatencyTest. It is the median
  /// over many blocks, each enqueued before the device starts it.
  Result<PairOutcome> make();
  /// Runs a single measurement; see LinkContext::measure.
  Result<MeasuredRow> measure(const PairMeasurement& measurement);

 private:
  Result<std::string> open_peers_memory();
  Result<PairProbe> probe();
  Status measure_rows(const PairPlan& plan);
  Status measure_latency();
  Status take_peers_lead(std::vector<LinkRepeat>& blocks);
  /// Runs a measurement of the trial and keeps wrong data in the outcome.
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
  std::uint64_t measurements_ = 0;  ///< measurements begun; each has its own pattern
  Buffer peers_memory_;
  PairProbe probe_;
  PairOutcome outcome_;
};

}  // namespace egt
