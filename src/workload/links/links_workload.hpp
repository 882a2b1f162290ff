#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "workload/common/measurement_workload.hpp"
#include "workload/links/link_context.hpp"
#include "workload/links/link_injections.hpp"
#include "workload/links/link_judgement.hpp"
#include "workload/links/link_pair.hpp"
#include "workload/links/link_results.hpp"

namespace egt {

/// Measures the links between all devices trial by trial (link_plan.hpp), verifies all transferred data, and
/// judges the links (link_judgement.hpp). Every rank has every pair's values; the lower rank of a pair
/// reports them. A trial in which the ranks lost communication fails, and the run continues without it.
class LinksWorkload : public MeasurementWorkload {
 public:
  /// `ends`: of all ranks, by rank. `timeout_seconds`: max time without progress on a rank. `stopping`:
  /// whether the run is to be interrupted. If so, the current trial ends and does not count.
  LinksWorkload(Environment& environment, const LinksOptions& options, std::vector<LinkEndpoint> ends,
                double timeout_seconds, LinkContext::Stopping stopping);

  std::string name() const override { return "links"; }
  std::int64_t trials() const override { return static_cast<std::int64_t>(trials_.size()); }
  Status finish(const Shutdown& ending) override;
  /// This rank's own share of the work.
  PartReport report() const override;
  std::vector<PartReport> reports() const override;

 protected:
  Status prepare_trials() override;
  std::string phase_of(std::int64_t trial) const override;
  Status make_trial(std::int64_t trial) override;
  void lose_trial(std::int64_t trial) override;
  Status recover(double timeout_seconds) override;
  Status reconnect() override { return bench_.renew(); }

 private:
  const LinkTrial& trial_at(std::int64_t trial) const { return trials_[static_cast<std::size_t>(trial)]; }
  PairResult& pair_of(std::int64_t trial) { return pairs_[static_cast<std::size_t>(trial)]; }
  RoundResult& round_of(std::int64_t trial) { return rounds_[place_of(trial)]; }
  CollectiveResult& collective_of(std::int64_t trial) { return collectives_[place_of(trial)]; }
  /// Index among the trials of the same kind.
  std::size_t place_of(std::int64_t trial) const;
  bool is_gpu() const { return ends_[static_cast<std::size_t>(rank())].is_gpu; }
  const LinkEndpoint& own_end() const { return ends_[static_cast<std::size_t>(rank())]; }

  Status make_by_kind(std::int64_t trial);
  /// Runs the pair's ranks and method given in `result`, and stores the outcome there.
  Status make_pair(std::int64_t trial, PairResult& result);
  /// Message from a rank of a pair to all ranks about the pair's trial.
  struct PairNews {
    PairResult::State state = PairResult::State::not_made;
    std::uint64_t wrong_words = 0;
    PairSide side = {};
  };
  Result<PairNews> test_pair(std::int64_t trial, PairResult& result);
  /// Returns the values of all ranks, by rank. Acts as a barrier, like `share`.
  template <typename T>
  Result<std::vector<T>> share_each(const T& own, const char* phase);
  Status make_again(std::int64_t trial);
  void forget_again(std::int64_t trial);
  std::optional<std::size_t> pair_to_measure_again() const;
  Status make_round(std::int64_t trial);
  Status make_host(std::int64_t trial);
  Status make_collective(std::int64_t trial);
  Status hang_on_purpose(std::int64_t trial, int peer);
  /// The pair's own trials that succeeded.
  std::vector<const PairResult*> done_between(int a, int b) const;

  void report_wrong(const WrongData& wrong, std::int64_t trial);
  void report_wrong_collective(const CollectiveResult& result, const CollectiveFinding& finding);
  void judge_pairs();
  std::vector<Finding> judge_host() const;
  std::set<std::pair<int, int>> slow_directions(const PairResult& pair,
                                                const std::vector<LinkFigure>& slow) const;

  const LinksOptions options_;
  const std::vector<LinkEndpoint> ends_;
  const LinkLimits limits_;
  std::vector<LinkTrial> trials_;
  LinkContext bench_;
  LinkInjections injections_;
  /// The last test. If it failed, it is kept until the streams are empty.
  std::optional<LinkPairTest> pair_test_;

  std::vector<PairResult> pairs_;  ///< in the order of the trials
  /// The pair measured again last, in its previous state. All ranks must hold the same state of it.
  struct Again {
    std::int64_t trial = -1;
    std::size_t pair = 0;
    PairResult before;
  };
  Again again_;
  std::vector<RoundResult> rounds_;
  HostResult host_;
  std::vector<CollectiveResult> collectives_;
  std::vector<std::pair<int, int>>
      wrong_pairs_;  ///< pairs with wrong data, as far as this rank received them
  std::uint64_t wrong_words_ = 0;
  std::int64_t made_trials_ = 0, lost_trials_ = 0;
  bool pairs_are_judged_ = false;
};

}  // namespace egt
