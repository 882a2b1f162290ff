#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "workload/collective/collective_judgement.hpp"
#include "workload/collective/known_answer.hpp"
#include "workload/common/link_timing.hpp"
#include "workload/links/link_context.hpp"
#include "workload/links/link_injections.hpp"
#include "workload/links/link_plan.hpp"

namespace egt {

/// One size of a collective. `bytes` is the size as in nccl-tests: for an all-reduce, the data of one rank;
/// otherwise, all parts of every rank for every rank.
struct CollectiveSize {
  std::uint64_t bytes = 0;
  double seconds = 0;  ///< of one collective: median over repeats, then mean over ranks as in nccl-tests
};

struct LinkCollectiveOutcome {
  int repeats = 0;
  std::vector<CollectiveSize> sizes;        ///< equal on all ranks
  std::vector<CollectiveFinding> findings;  ///< of the first wrong size; equal on all ranks
  std::uint64_t wrong_size = 0;             ///< first wrong size; 0: none
  std::uint64_t own_wrong_words = 0;        ///< received by this rank, over all sizes
};

/// Measures one collective on all ranks, over a range of sizes. Every element is known in advance and
/// verified on the device (known_answer.hpp). Each all-to-all block comes from one rank, so sender and
/// receiver are known.
class LinkCollectiveTrial {
 public:
  /// Each rank passes its values and receives those of all ranks.
  using Share = std::function<Result<std::vector<double>>(std::span<const double> own)>;

  LinkCollectiveTrial(LinkContext& bench, LinkInjections& injections, std::int64_t trial,
                      CollectiveKind collective, const LinksOptions& options, const LinkLimits& limits,
                      Share share);
  Result<LinkCollectiveOutcome> make();

 private:
  /// A batch of `count` collectives, each in its own memory.
  struct Row {
    std::uint64_t index = 0;       ///< of the size
    std::uint64_t part_words = 0;  ///< per pair of ranks; for an all-reduce, all words
    int count = 1;
  };
  std::size_t ranks() const { return static_cast<std::size_t>(ranks_); }
  bool is_split() const { return collective_ != CollectiveKind::all_reduce; }
  Row row_of(std::uint64_t index, std::uint64_t bytes, int count) const;
  std::uint64_t bytes_of(const Row& row) const;
  /// All words that one rank receives.
  WordsView received(const Row& row) const;
  CollectiveRound round_of(const Row& row) const;
  /// The collectives of a row, contiguous in memory.
  std::vector<KnownAnswer> answers(const Row& row, int repeat) const;

  Result<PairPlan> agree_on_plan();
  /// Seconds per collective; mismatches are stored.
  Result<double> measure(const Row& row, int repeats);
  Result<std::vector<double>> share_means(const std::vector<double>& own);
  Status judge();

  LinkContext& bench_;
  LinkInjections& injections_;
  const std::int64_t trial_;
  const CollectiveKind collective_;
  const LinksOptions& options_;
  const LinkLimits limits_;
  const Share share_;
  const int ranks_, self_;
  bool changes_ = false;
  std::vector<Row> rows_;                          ///< all measured rows, including those for the plan
  std::vector<std::vector<Mismatches>> reported_;  ///< this rank's reports, per row
  LinkCollectiveOutcome outcome_;
};

}  // namespace egt
