#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "egt/device/device.hpp"
#include "egt/ranks/communicator.hpp"
#include "workload/collective/collective_judgement.hpp"

namespace egt {

/// Reports of one rank as they lie in memory: these, then one a rank's block of an all-gather or all-to-all.
enum CollectiveReport : std::size_t {
  sum_report,
  message_report,
  slice_report,
  put_in_report,
  first_block_report
};
constexpr std::size_t reports_of(int ranks) {
  return first_block_report + static_cast<std::size_t>(ranks);
}
/// `told`: `reports_of(ranks)` of them.
RankReports rank_reports(const Mismatches* told, int ranks);

/// A collective whose every element is known beforehand, as one rank makes it. Contributions to sums are
/// whole numbers with bits of their own a source, so their sum is exact in any order. What lies in the memory
/// before is unlike the answer, so a collective that does nothing is seen.
struct KnownAnswer {
  CollectiveKind kind = CollectiveKind::all_reduce;
  CollectiveRound round = {};
  int rank = 0;
  std::uint64_t part_words = 1;  ///< of one rank for one rank; of an all-reduce and a broadcast all
  /// An all-reduce and a broadcast are made in place, in `receive`.
  std::uint32_t *send = nullptr, *receive = nullptr;
  /// Of what rank `from` (-1: all together, or the root) puts in for rank `to` (0: for all).
  std::function<std::uint64_t(int from, int to)> seed = {};

  /// In units of `part_words`.
  static std::uint64_t parts_put_in(CollectiveKind kind, int ranks);
  static std::uint64_t parts_received(CollectiveKind kind, int ranks);

  Status fill(Device& device, Stream& stream) const;
  Status run(Communicator& communicator, Stream& stream) const;
  /// `reports`: in the device's memory, as CollectiveReport has them. Of a reduce-scatter what was put in is
  /// looked at too; see collective_judgement.hpp.
  Status verify(Device& device, Mismatches* reports, Stream& stream) const;

  /// What this rank receives; of an all-reduce, before it is run, what the rank puts in.
  WordsView received() const { return {receive, part_words * parts_received(kind, round.size)}; }
  Pattern put_in(int from, int to) const;

 private:
  Pattern answer(int from) const;
  WordsView part(std::uint32_t* words, int index) const {
    return {words + static_cast<std::uint64_t>(index) * part_words, part_words};
  }
};

}  // namespace egt
