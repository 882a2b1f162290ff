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

/// One size of a collective. `bytes` is nccl-tests' size: of an all-reduce a rank's data; of the others all
/// parts together, of every rank for every rank.
struct CollectiveSize {
  std::uint64_t bytes = 0;
  double seconds = 0;  ///< of one, the median over repeats, averaged over ranks as nccl-tests does
};

struct LinkCollectiveOutcome {
  int repeats = 0;
  std::vector<CollectiveSize> sizes;        ///< the same on all ranks
  std::vector<CollectiveFinding> findings;  ///< of the first size that was wrong; the same on all ranks
  std::uint64_t wrong_size = 0;             ///< that size; 0: none was
  std::uint64_t own_wrong_words = 0;        ///< that this rank received, of all sizes
};

/// The trial of one collective on all ranks, by size. Every element is known beforehand and verified on the
/// device (known_answer.hpp). Of an all-to-all each block is from one rank, so who sent and who received is
/// known.
class LinkCollectiveTrial {
 public:
  /// Every rank brings figures, all get all of them.
  using Share = std::function<Result<std::vector<double>>(std::span<const double> own)>;

  LinkCollectiveTrial(LinkContext& bench, LinkInjections& injections, std::int64_t trial,
                      CollectiveKind collective, const LinksOptions& options, const LinkLimits& limits,
                      Share share);
  Result<LinkCollectiveOutcome> make();

 private:
  /// `count` of them in a row, each in memory of its own.
  struct Row {
    std::uint64_t index = 0;       ///< among the sizes
    std::uint64_t part_words = 0;  ///< of one rank for one rank; of an all-reduce all
    int count = 1;
  };
  std::size_t ranks() const { return static_cast<std::size_t>(ranks_); }
  bool is_split() const { return collective_ != CollectiveKind::all_reduce; }
  Row row_of(std::uint64_t index, std::uint64_t bytes, int count) const;
  std::uint64_t bytes_of(const Row& row) const;
  /// All that one rank receives.
  WordsView received(const Row& row) const;
  CollectiveRound round_of(const Row& row) const;
  /// The collectives of a row, one behind the other in memory.
  std::vector<KnownAnswer> answers(const Row& row, int repeat) const;

  Result<PairPlan> agree_on_plan();
  /// Seconds of one; what is wrong is kept.
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
  std::vector<Row> rows_;                      ///< that were measured, also to make the plan
  std::vector<std::vector<Mismatches>> told_;  ///< this rank's reports, by row
  LinkCollectiveOutcome outcome_;
};

}  // namespace egt
