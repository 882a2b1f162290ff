// Peer comparison on simulated times: disturbances of a busy node must identify no rank, a rank that is 5 %
// slower must be identified.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "judge/peer_comparison.hpp"

namespace egt {
namespace {

constexpr int clean_runs = 1'000, slow_runs = 500;
constexpr double run_seconds = 600;

/// Times of ranks that share two busy cores. Each rank has its own speed (0.2 %). Most windows differ by 1 %,
/// three in ten by 5 %, and some by far more and for several windows. All ranks drift, and all are disturbed
/// occasionally.
class BusyNode {
 public:
  BusyNode(int ranks, std::uint64_t seed) : random_(seed), noise_(static_cast<std::size_t>(ranks)) {
    for (int rank = 0; rank < ranks; ++rank) own_.push_back(normal(0.002));
    phase_ = uniform();
  }

  std::vector<double> window(double time) {
    constexpr double kept = 0.3;
    const double drift = 0.04 * time / run_seconds + 0.1 * std::sin(2 * M_PI * (time / 17 + phase_));
    const double shock = uniform() < 0.05 ? 0.5 * uniform() : 0;
    std::vector<double> times;
    for (std::size_t rank = 0; rank < own_.size(); ++rank) {
      double& noise = noise_[rank];
      noise = kept * noise + normal(uniform() < 0.25 ? 0.04 : 0.008);
      if (uniform() < 0.01) noise += 0.4 * uniform();
      times.push_back(36 * std::exp(own_[rank] + noise + drift + shock));
    }
    return times;
  }

 private:
  double normal(double deviation) { return deviation * normal_(random_); }
  double uniform() { return uniform_(random_); }

  std::mt19937_64 random_;
  std::normal_distribution<double> normal_;
  std::uniform_real_distribution<double> uniform_;
  std::vector<double> own_, noise_;
  double phase_ = 0;
};

std::vector<std::string> one_model(int ranks) {
  return std::vector<std::string>(static_cast<std::size_t>(ranks), "H200");
}

/// The identified ranks, and when, in a run in which `slow` takes `factor` times as long after `from`.
struct Named {
  std::vector<int> ranks;
  std::optional<double> first;  ///< in seconds
};
Named run(int ranks, std::uint64_t seed, double seconds, int slow = -1, double factor = 1, double from = 0) {
  BusyNode node(ranks, seed);
  PeerComparison comparison({}, one_model(ranks));
  Named named;
  for (double time = 1; time <= seconds; ++time) {
    std::vector<double> times = node.window(time);
    if (slow >= 0 && time > from) times[static_cast<std::size_t>(slow)] *= factor;
    comparison.add(time, times);
    for (const PeerStanding& outlier : comparison.new_outliers()) {
      named.ranks.push_back(outlier.rank);
      if (!named.first) named.first = time;
    }
  }
  return named;
}

int false_alarms(int ranks, int runs) {
  int alarms = 0;
  for (int i = 0; i < runs; ++i)
    alarms += run(ranks, static_cast<std::uint64_t>(i), run_seconds).ranks.empty() ? 0 : 1;
  return alarms;
}

int found_within_a_minute(int ranks, double factor, int runs, double from = 3) {
  int found = 0;
  for (int i = 0; i < runs; ++i) {
    const int slow = i % ranks;
    const Named named = run(ranks, 77'000'000 + static_cast<std::uint64_t>(i), from + 60, slow, factor, from);
    found += named.ranks == std::vector<int>{slow} ? 1 : 0;
  }
  return found;
}

TEST(PeerComparison, NamesNobodyInTenMinutesOfCleanRanks) {
  EXPECT_EQ(false_alarms(4, clean_runs), 0);
}

TEST(PeerComparison, NamesNobodyAmongTwoThreeOrEightCleanRanks) {
  EXPECT_EQ(false_alarms(2, clean_runs / 10), 0);
  EXPECT_EQ(false_alarms(3, clean_runs / 10), 0);
  EXPECT_EQ(false_alarms(8, clean_runs / 10), 0);
}

TEST(PeerComparison, NamesTheRankThatIsFivePercentSlowerWithinAMinute) {
  EXPECT_GE(found_within_a_minute(4, 1.05, slow_runs), slow_runs * 999 / 1000);
}

TEST(PeerComparison, NamesItInTheMiddleOfARunToo) {
  EXPECT_GE(found_within_a_minute(4, 1.05, slow_runs / 10, 200), slow_runs / 10 * 99 / 100);
}

TEST(PeerComparison, NamesItAmongThreeAndEight) {
  EXPECT_GE(found_within_a_minute(3, 1.05, slow_runs / 10), slow_runs / 10 * 95 / 100);
  EXPECT_GE(found_within_a_minute(8, 1.05, slow_runs / 10), slow_runs / 10 * 99 / 100);
}

TEST(PeerComparison, OfTwoTheSlowerIsNamedOnlyBeyondTheLimit) {
  EXPECT_GE(found_within_a_minute(2, 1.12, slow_runs / 10), slow_runs / 10 * 97 / 100);
  EXPECT_EQ(found_within_a_minute(2, 1.03, slow_runs / 10), 0);
}

/// Times without noise, in `seconds` windows.
std::vector<PeerStanding> outliers_of(PeerComparison& comparison, const std::vector<double>& times,
                                      int seconds, double& time) {
  std::vector<PeerStanding> all;
  for (int i = 0; i < seconds; ++i) {
    comparison.add(++time, times);
    for (const PeerStanding& one : comparison.new_outliers()) all.push_back(one);
  }
  return all;
}
std::vector<PeerStanding> outliers_of(const std::vector<std::string>& models,
                                      const std::vector<double>& times) {
  PeerComparison comparison({}, models);
  double time = 0;
  return outliers_of(comparison, times, 100, time);
}

TEST(PeerComparison, TellsHowMuchBesideWhomAndOnlyOnce) {
  const auto outliers = outliers_of(one_model(4), {10, 10.02, 11, 10.04});
  ASSERT_EQ(outliers.size(), 1u);
  EXPECT_EQ(outliers[0].rank, 2);
  EXPECT_NEAR(std::exp(outliers[0].deviation), 11 / 10.02, 1e-9);
  EXPECT_EQ(outliers[0].peers, 3);
  EXPECT_FALSE(outliers[0].beside.has_value());
  EXPECT_DOUBLE_EQ(outliers[0].time, 11);
}

TEST(PeerComparison, OfTwoOneIsSlowerThanTheOther) {
  const auto outliers = outliers_of(one_model(2), {10, 10.6});
  ASSERT_EQ(outliers.size(), 1u);
  EXPECT_EQ(outliers[0].rank, 1);
  EXPECT_EQ(outliers[0].beside, 0);
  EXPECT_NEAR(std::exp(outliers[0].deviation), 1.06, 1e-9);
  EXPECT_TRUE(outliers_of(one_model(2), {10, 10.4}).empty());
}

TEST(PeerComparison, AFasterRankIsNoOutlier) {
  EXPECT_TRUE(outliers_of(one_model(4), {10, 10.02, 7, 10.04}).empty());
}

TEST(PeerComparison, TheSpreadOfThePeersWidensWhatIsAllowedUpToTheLimit) {
  const std::vector<double> spread = {10.0, 10.1, 10.2, 10.3, 10.45};
  EXPECT_TRUE(outliers_of(one_model(5), spread).empty()) << "2.5 % slower than the median";
  EXPECT_TRUE(outliers_of(one_model(5), {10.0, 10.1, 10.2, 10.3, 10.6}).empty()) << "3.9 %, peers by 1 %";
  EXPECT_EQ(outliers_of(one_model(5), {10.18, 10.19, 10.2, 10.21, 10.6}).size(), 1u) << "peers by 0.1 %";
  EXPECT_EQ(outliers_of(one_model(5), {10.0, 10.1, 10.2, 10.3, 10.8}).size(), 1u) << "beyond the limit";
}

TEST(PeerComparison, RanksOfAnotherModelAreNoPeers) {
  const std::vector<std::string> models = {"H200", "H100", "H200", "H100", "H200", "L4"};
  EXPECT_TRUE(outliers_of(models, {10, 15, 10, 15, 10, 90}).empty());
  const auto outliers = outliers_of(models, {10, 15, 10, 17, 10, 90});
  ASSERT_EQ(outliers.size(), 1u);
  EXPECT_EQ(outliers[0].rank, 3);
  EXPECT_EQ(outliers[0].beside, 1);
}

TEST(PeerComparison, ARankOfUnknownModelIsComparedWithNobody) {
  EXPECT_TRUE(outliers_of({"", "", "", ""}, {10, 10, 10, 20}).empty());
}

TEST(PeerComparison, TimesThatAreNotKnownAreLeftOut) {
  EXPECT_TRUE(outliers_of(one_model(4), {10, NAN, 10, 0}).empty()) << "too few to vote";
  const auto outliers = outliers_of(one_model(5), {10, NAN, 10, 12, 10});
  ASSERT_EQ(outliers.size(), 1u);
  EXPECT_EQ(outliers[0].rank, 3);
  EXPECT_TRUE(outliers_of(one_model(4), {INFINITY, -1, 10}).empty());
  EXPECT_TRUE(outliers_of(one_model(4), {}).empty());
}

TEST(PeerComparison, ARankThatStopsReportingIsNoLongerJudged) {
  PeerComparison comparison({}, one_model(4));
  double time = 0;
  EXPECT_TRUE(outliers_of(comparison, {10, 10, 10, 10}, 30, time).empty());
  EXPECT_TRUE(outliers_of(comparison, {10, 10, 12, 10}, 8, time).empty());
  EXPECT_TRUE(comparison.standing(2).has_value());
  EXPECT_TRUE(outliers_of(comparison, {10, 10, NAN, 10}, 15, time).empty());
  EXPECT_FALSE(comparison.standing(2).has_value());
  EXPECT_TRUE(comparison.standing(1).has_value());
}

TEST(PeerComparison, AStallOfOneRankIsNotSlowness) {
  PeerComparison comparison({}, one_model(4));
  double time = 0;
  EXPECT_TRUE(outliers_of(comparison, {10, 10, 10, 10}, 40, time).empty());
  EXPECT_TRUE(outliers_of(comparison, {10, 10, 100, 10}, 12, time).empty());
  EXPECT_TRUE(outliers_of(comparison, {10, 10, 10, 10}, 60, time).empty());
}

TEST(PeerComparison, NobodyIsJudgedByAFewWindows) {
  PeerComparison comparison({}, one_model(4));
  double time = 0;
  EXPECT_TRUE(outliers_of(comparison, {10, 10, 20, 10}, 20, time).empty());
  EXPECT_EQ(outliers_of(comparison, {10, 10, 20, 10}, 40, time).size(), 1u);
}

}  // namespace
}  // namespace egt
