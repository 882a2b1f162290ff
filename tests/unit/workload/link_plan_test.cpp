#include "workload/links/link_plan.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <numeric>
#include <set>

namespace egt {
namespace {

using testing::ElementsAre;

std::vector<std::string> one_host(std::size_t ranks) {
  return std::vector<std::string>(ranks, "node1");
}

std::vector<LinkTrial> of_kind(const std::vector<LinkTrial>& trials, LinkTrial::Kind kind) {
  std::vector<LinkTrial> found;
  std::copy_if(trials.begin(), trials.end(), std::back_inserter(found),
               [&](const LinkTrial& trial) { return trial.kind == kind; });
  return found;
}

TEST(LinkTrials, EveryPairByBothMethodsOnOneHost) {
  const auto trials = plan_link_trials(one_host(4));
  const auto pairs = of_kind(trials, LinkTrial::Kind::pair);
  ASSERT_EQ(pairs.size(), 12u);
  for (const std::size_t first : {0u, 6u}) {
    std::set<LinkTrial::Pair> seen;
    for (std::size_t i = first; i < first + 6; ++i) {
      EXPECT_EQ(pairs[i].method, first == 0 ? LinkMethod::exchange : LinkMethod::copy);
      ASSERT_EQ(pairs[i].pairs.size(), 1u);
      EXPECT_LT(pairs[i].pairs[0].first, pairs[i].pairs[0].second);
      seen.insert(pairs[i].pairs[0]);
    }
    EXPECT_EQ(seen.size(), 6u);
  }
  EXPECT_EQ(of_kind(trials, LinkTrial::Kind::host).size(), 4u);
  EXPECT_EQ(of_kind(trials, LinkTrial::Kind::collective).size(), 4u);
  EXPECT_TRUE(std::is_sorted(trials.begin(), trials.end(),
                             [](const LinkTrial& a, const LinkTrial& b) { return a.kind < b.kind; }));
}

TEST(LinkTrials, NoCopiesBetweenHosts) {
  for (const LinkTrial& trial : plan_link_trials({"left", "left", "right", "right"}))
    if (trial.kind == LinkTrial::Kind::pair && trial.method == LinkMethod::copy) {
      EXPECT_TRUE(trial.pairs[0] == LinkTrial::Pair(0, 1) || trial.pairs[0] == LinkTrial::Pair(2, 3));
    }
}

TEST(LinkTrials, RoundsMeetEveryPairOnceAndNoRankTwiceAtATime) {
  for (const std::size_t ranks : {4u, 5u, 6u, 7u, 8u, 16u}) {
    const auto rounds = of_kind(plan_link_trials(one_host(ranks)), LinkTrial::Kind::round);
    EXPECT_EQ(rounds.size(), ranks - 1 + ranks % 2);
    std::set<LinkTrial::Pair> seen;
    for (const LinkTrial& round : rounds) {
      EXPECT_EQ(round.pairs.size(), ranks / 2);
      std::set<int> busy;
      for (const auto& [a, b] : round.pairs) {
        EXPECT_LT(a, b);
        EXPECT_TRUE(busy.insert(a).second && busy.insert(b).second);
        EXPECT_TRUE(seen.insert({a, b}).second);
        EXPECT_EQ(round.partner_of(a), b);
        EXPECT_EQ(round.partner_of(b), a);
      }
    }
    EXPECT_EQ(seen.size(), ranks * (ranks - 1) / 2);
  }
}

TEST(LinkTrials, FewRanks) {
  const auto alone = plan_link_trials(one_host(1));
  ASSERT_EQ(alone.size(), 1u);
  EXPECT_EQ(alone[0].kind, LinkTrial::Kind::host);
  const auto two = plan_link_trials(one_host(2));
  EXPECT_EQ(of_kind(two, LinkTrial::Kind::again).size(), 4u) << "two more looks at each of two pairs";
  EXPECT_EQ(two.size(), 2u + 4u + 2u + 4u);
  EXPECT_TRUE(of_kind(plan_link_trials(one_host(3)), LinkTrial::Kind::round).empty());
}

TEST(LinkSizes, TimesEightUpToTheLargest) {
  EXPECT_THAT(link_sizes(4096), ElementsAre(8, 64, 512, 4096));
  EXPECT_THAT(link_sizes(5000), ElementsAre(8, 64, 512, 4096, 5000));
  EXPECT_THAT(link_sizes(8), ElementsAre(8));
  EXPECT_EQ(link_sizes(1'000'000'000).size(), 10u);
  EXPECT_LE(link_sizes(~0ull).size(), max_link_sizes);
}

TEST(BusFactor, AsNcclTestsHasIt) {
  EXPECT_DOUBLE_EQ(bus_factor(CollectiveKind::all_reduce, 4), 1.5);
  EXPECT_DOUBLE_EQ(bus_factor(CollectiveKind::all_gather, 4), 0.75);
  EXPECT_DOUBLE_EQ(bus_factor(CollectiveKind::reduce_scatter, 8), 0.875);
  EXPECT_DOUBLE_EQ(bus_factor(CollectiveKind::all_to_all, 2), 0.5);
}

double transfer_seconds(const PairPlan& plan, const PairProbe& probe) {
  double sum = 0;
  for (const TransferRow& row : plan.rows)
    sum += row.count * (probe.min_seconds + static_cast<double>(row.bytes) / probe.bytes_per_second);
  return 4 * sum * plan.repeats;
}

TEST(PairPlan, AFastLinkMovesAllThatWasAskedFor) {
  const LinksOptions options;  // for GPUs
  const LinkLimits limits = link_limits(true, 30);
  const PairPlan plan = plan_pair(options, limits, {.min_seconds = 1e-5, .bytes_per_second = 390e9});
  EXPECT_EQ(plan.repeats, 10);
  EXPECT_EQ(plan.largest(), options.size);
  EXPECT_EQ(plan.rows.back().count, 1) << "the clock runs long enough for one";
  EXPECT_EQ(plan.rows.front(), (TransferRow{.bytes = 8, .count = 256}));
  for (const TransferRow& row : plan.rows) EXPECT_LE(row.total(), options.size);
}

TEST(PairPlan, ASlowLinkTakesItsTimeAndNoMore) {
  LinksOptions options;
  options.size = 16'000'000;
  const LinkLimits limits = link_limits(false, 30);
  for (const double bits : {1e6, 1e7, 1e8, 1e9, 1e10}) {
    const PairProbe probe{.min_seconds = 5e-5, .bytes_per_second = bits / 8};
    const PairPlan plan = plan_pair(options, limits, probe);
    EXPECT_LE(transfer_seconds(plan, probe), limits.trial_seconds) << bits;
    EXPECT_GE(plan.repeats, 3) << bits;
    EXPECT_EQ(plan.largest() < options.size, bits <= 1e8) << bits;
    if (bits >= 1e8) {
      EXPECT_GE(plan.largest(), 200'000u) << bits;
    }
  }
}

TEST(PairPlan, FewerRepeatsComeBeforeSmallerSizes) {
  LinksOptions options;
  options.size = 16'000'000;
  const auto plan_at = [&](double bytes_per_second) {
    return plan_pair(options, link_limits(false, 30),
                     {.min_seconds = 1e-5, .bytes_per_second = bytes_per_second});
  };
  EXPECT_EQ(plan_at(0.25e9).repeats, 5);
  EXPECT_EQ(plan_at(0.25e9).largest(), options.size);
  EXPECT_EQ(plan_at(0.12e9).repeats, 3);
  EXPECT_EQ(plan_at(0.12e9).largest(), options.size);
  EXPECT_EQ(plan_at(0.05e9).largest(), 2'097'152u);
  EXPECT_EQ(plan_at(0.05e9).repeats, 10) << "of the smaller size all of them";
}

TEST(PairPlan, OneRepeatStaysOne) {
  LinksOptions options;
  options.repeats = 1;
  options.size = 1000;
  const PairPlan plan = plan_pair(options, link_limits(false, 2), {.min_seconds = 10, .bytes_per_second = 1});
  EXPECT_EQ(plan.repeats, 1);
  EXPECT_EQ(plan.rows.size(), 1u);
}

TEST(LinkLimits, TrialsStayBelowTheTimeout) {
  EXPECT_LE(link_limits(false, 2).trial_seconds, 0.5);
  EXPECT_EQ(link_limits(true, 30).trial_seconds, 3);
}

}  // namespace
}  // namespace egt
