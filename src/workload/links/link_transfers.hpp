#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "workload/common/link_timing.hpp"
#include "workload/links/link_context.hpp"
#include "workload/links/link_injections.hpp"
#include "workload/links/link_plan.hpp"

namespace egt {

/// Data that came other than they were sent.
struct WrongData {
  int from = -1;            ///< who sent them; this rank received them
  std::uint64_t bytes = 0;  ///< of the transfer
  int repeat = 0;
  std::uint64_t offset = 0;  ///< bytes from the transfer's start, of the first word that differs
  std::uint32_t expected = 0, actual = 0;
  std::uint64_t words = 0;  ///< that differ, in all repeats
};

/// One measurement of a pair, as one of its ranks makes it; the other makes its counterpart at the same time.
struct PairMeasurement {
  int peer = -1;  ///< -1: this rank only starts together with all others
  LinkMethod method = LinkMethod::exchange;
  bool sends = false, receives = false;
  /// Each transfer one way is answered by one the other way before the next begins; `starts`: by this rank.
  bool in_turns = false, starts = false;
  bool with_all = false;  ///< all ranks start together, not only the pair
  TransferRow row;
  int repeats = 1;
  /// Each repeat is held for longer than the one before, within limits, if that one did not lead.
  bool must_lead = false;
  std::int64_t trial = 0;
  std::uint64_t number = 0;       ///< of the trial's measurements: another pattern for each
  std::uint64_t extra_bytes = 0;  ///< see LinkInjections
  bool changes = true;            ///< may what is received be changed on purpose?
};

struct MeasuredRow {
  std::vector<LinkRepeat> repeats;  ///< on this rank's device
  std::optional<WrongData> wrong;
};

/// Makes them. The sender's memory holds words that follow from trial, measurement, repeat and direction,
/// other ones in each transfer of a row; what lies in the receiver's memory before differs from them in every
/// bit; and all of it is verified on the receiver's device after each repeat.
class LinkTransfers {
 public:
  LinkTransfers(LinkContext& bench, LinkInjections& injections) : bench_(bench), injections_(injections) {}

  /// Opens the peer's memory for copies; both ranks call it. The reason where it cannot be, on either side;
  /// else empty.
  Result<std::string> open(int peer);
  /// Before the peer frees its memory: at the end of the trial. With nothing in the stream: it may wait for
  /// it.
  void close() { peers_memory_ = Buffer(); }

  /// `stopped`, on both ranks, where one of them was asked to; see LinkContext::check_stop.
  Result<MeasuredRow> measure(const PairMeasurement& measurement);

 private:
  Status prepare_data(const PairMeasurement& m, int repeat);
  Status align(const PairMeasurement& m, double hold_factor);
  Status move(const PairMeasurement& m);
  Status move_one(const PairMeasurement& m, std::uint64_t offset, std::uint64_t bytes);
  Status exchange(const PairMeasurement& m, bool sends, bool receives, std::uint64_t offset,
                  std::uint64_t bytes);
  Status verify(const PairMeasurement& m, int repeat);
  Pattern pattern(const PairMeasurement& m, int repeat, int from, int to) const;
  std::optional<WrongData> look_at_reports(const PairMeasurement& m) const;

  LinkContext& bench_;
  LinkInjections& injections_;
  Buffer peers_memory_;
};

}  // namespace egt
