#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "egt/device/device.hpp"
#include "egt/ranks/communicator.hpp"
#include "workload/collective/collective_judgement.hpp"

namespace egt {

/// Layout of one rank's reports in memory. One report per all-gather or all-to-all block follows.
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
/// Expects `reports_of(ranks)` reports.
RankReports rank_reports(const Mismatches* reported, int ranks);

/// One rank's call of a collective whose every element is known in advance. Contributions to sums are whole
/// numbers with a separate bit field per source, so the sum is exact in any order. The receive buffer
/// initially differs from the answer, so a collective that does nothing is detected.
struct KnownAnswer {
  CollectiveKind kind = CollectiveKind::all_reduce;
  CollectiveRound round = {};
  int rank = 0;
  std::uint64_t part_words = 1;  ///< per pair of ranks; for all-reduce and broadcast, all words
  /// All-reduce and broadcast run in place, in `receive`.
  std::uint32_t *send = nullptr, *receive = nullptr;
  /// Seed of what rank `from` (-1: all, or the root) sends to rank `to` (0: to all).
  std::function<std::uint64_t(int from, int to)> seed = {};

  /// In units of `part_words`.
  static std::uint64_t parts_put_in(CollectiveKind kind, int ranks);
  static std::uint64_t parts_received(CollectiveKind kind, int ranks);

  Status fill(Device& device, Stream& stream) const;
  Status run(Communicator& communicator, Stream& stream) const;
  /// `reports`: in device memory, in the order of CollectiveReport. For a reduce-scatter, the send buffer is
  /// verified too; see collective_judgement.hpp.
  Status verify(Device& device, Mismatches* reports, Stream& stream) const;

  /// Data that this rank receives; for an all-reduce that has not run yet, the rank's contribution.
  WordsView received() const { return {receive, part_words * parts_received(kind, round.size)}; }
  Pattern put_in(int from, int to) const;

 private:
  Pattern answer(int from) const;
  WordsView part(std::uint32_t* words, int index) const {
    return {words + static_cast<std::uint64_t>(index) * part_words, part_words};
  }
};

}  // namespace egt
