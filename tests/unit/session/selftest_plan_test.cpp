#include "session/selftest/selftest_plan.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <map>
#include <set>

#include "egt/core/pattern.hpp"

namespace egt {
namespace {

using enum InjectionKind;
using testing::ElementsAre;
using testing::ElementsAreArray;

bool flips_bits(InjectionKind kind) {
  return kind <= file_bit;
}

using ByKind = std::map<InjectionKind, std::vector<Injection>>;

ByKind some_by_kind(const SelftestPlan& plan, bool persistent) {
  ByKind kinds;
  for (const Injection& injection : plan.injections)
    if (is_persistent(injection) == persistent) kinds[injection.kind].push_back(injection);
  return kinds;
}

/// Only injections that occur once.
ByKind by_kind(const SelftestPlan& plan) {
  return some_by_kind(plan, false);
}

std::vector<InjectionKind> left_out(const SelftestPlan& plan) {
  std::vector<InjectionKind> kinds;
  for (const LeftOut& one : plan.left_out) {
    kinds.push_back(one.kind);
    EXPECT_FALSE(one.why.empty());
  }
  return kinds;
}

class SelftestPlanOfRanks : public testing::TestWithParam<int> {
 protected:
  const SelftestScope scope{.ranks = GetParam(), .layers = 6};
  const SelftestPlan plan = plan_selftest(scope);
};

TEST_P(SelftestPlanOfRanks, HasEveryKindOnEveryRankAndFiveHundredInAll) {
  EXPECT_TRUE(plan.left_out.empty());
  EXPECT_GE(plan.injections.size(), 500u);
  const auto kinds = by_kind(plan);
  EXPECT_EQ(kinds.size(), 17u);
  for (const auto& [kind, injections] : kinds) {
    std::set<int> ranks;
    for (const Injection& injection : injections) ranks.insert(injection.rank);
    EXPECT_EQ(ranks.size(), static_cast<std::size_t>(GetParam())) << to_string(kind);
    EXPECT_EQ(*ranks.begin(), 0);
    EXPECT_EQ(injections.size(), static_cast<std::size_t>(injections_of_a_kind(GetParam())));
  }
}

TEST_P(SelftestPlanOfRanks, HasAHundredPersistentOnesOfPassesAndAllReducesOnEveryRank) {
  const ByKind persistent = some_by_kind(plan, true);
  std::size_t all = 0;
  for (const auto& [kind, injections] : persistent) {
    std::set<int> ranks;
    for (const Injection& injection : injections) ranks.insert(injection.rank);
    EXPECT_EQ(ranks.size(), static_cast<std::size_t>(GetParam())) << to_string(kind);
    all += injections.size();
  }
  EXPECT_GE(all, 100u);
  EXPECT_EQ(persistent.size(), 5u);
  EXPECT_FALSE(persistent.contains(weight));
}

TEST_P(SelftestPlanOfRanks, FlipsEachBitAloneThenSeveralThenStridedWords) {
  for (const auto& [kind, injections] : by_kind(plan)) {
    std::uint32_t alone = 0;
    int several = 0, strided = 0;
    for (const Injection& injection : injections) {
      const bool puts_in = kind == collective && injection.layer == 5;
      ASSERT_EQ(injection.mask.has_value(), flips_bits(kind) && !puts_in) << to_string(kind);
      if (!injection.mask) continue;
      EXPECT_NE(*injection.mask, 0u);
      if (std::popcount(*injection.mask) > 1) ++several;
      if (injection.count > 1 && injection.stride > 1) ++strided;
      if (std::has_single_bit(*injection.mask) && injection.count == 1) alone |= *injection.mask;
    }
    if (!flips_bits(kind)) continue;
    EXPECT_EQ(alone, kind == all_reduce ? ~(1u << 30) : ~0u) << to_string(kind);
    EXPECT_GT(several, 0) << to_string(kind);
    EXPECT_GT(strided, 0) << to_string(kind);
  }
}

TEST_P(SelftestPlanOfRanks, HitsEveryLayer) {
  for (const auto& [kind, injections] : by_kind(plan)) {
    std::set<int> layers;
    for (const Injection& injection : injections)
      if (injection.layer) layers.insert(*injection.layer);
    const bool all_put_in = GetParam() <= 4;
    if (kind == collective)
      EXPECT_THAT(layers, all_put_in ? ElementsAreArray({1, 2, 3, 4, 5}) : ElementsAreArray({1, 2, 3, 4}));
    else if (kind == host_copy)
      EXPECT_THAT(layers, ElementsAre(1, host_copy_to_host)) << "in both directions";
    else if (kind == multiprocessor)
      EXPECT_THAT(layers, SizeIs(layer_of_pattern)) << "every unit, and the pattern";
    else if (kind <= optimizer)
      EXPECT_THAT(layers, ElementsAre(1, 2, 3, 4, 5, 6)) << to_string(kind);
    else
      EXPECT_TRUE(layers.empty());
  }
}

TEST_P(SelftestPlanOfRanks, LeavesAPeriodWithoutAfterEachOfADetector) {
  std::map<Detector, std::int64_t> last;
  for (const Injection& injection : plan.injections) {
    Detector detector = detector_of(injection.kind);
    if (!looks_every_period(detector)) continue;
    if (detector == Detector::replay) detector = Detector::replica;  // both make training go back
    const std::int64_t period = injection.step / scope.period;
    EXPECT_GT(period, 0) << "nothing before the first checks";
    if (last.contains(detector)) {
      EXPECT_GE(period - last[detector], 2);
    }
    last[detector] = period;
  }
  EXPECT_EQ(last.size(), 3u);
}

TEST_P(SelftestPlanOfRanks, StrikesAtEveryStepOfAPeriod) {
  for (const auto& [kind, injections] : by_kind(plan)) {
    if (!looks_every_period(detector_of(kind))) continue;  // its steps only give the order
    std::set<std::int64_t> steps;
    for (const Injection& injection : injections) steps.insert(injection.step % scope.period);
    EXPECT_EQ(steps.size(), static_cast<std::size_t>(scope.period)) << to_string(kind);
  }
}

TEST_P(SelftestPlanOfRanks, OneCheckOfTheTrainingHasOneFaultAtMost) {
  std::set<std::int64_t> periods;
  for (const Injection& injection : plan.injections) {
    const Detector detector = detector_of(injection.kind);
    if (detector != Detector::replica && detector != Detector::replay && detector != Detector::extreme)
      continue;
    EXPECT_TRUE(periods.insert(injection.step / scope.period).second)
        << to_string(injection.kind) << " at step " << injection.step << ": of two in one replay one is told";
  }
  EXPECT_GT(periods.size(), 100u);
}

TEST_P(SelftestPlanOfRanks, StrikesLowBitsOfMomentsRightBeforeTheCheck) {
  const auto kinds = by_kind(plan);
  for (const Injection& injection : kinds.at(optimizer))
    if ((*injection.mask & 0xFF) != 0) {
      EXPECT_EQ(injection.step % scope.period, scope.period - 1);
    }
}

TEST_P(SelftestPlanOfRanks, HitsNoMoreWordsOfMemoryThanItKnowsApart) {
  const auto kinds = by_kind(plan);
  for (const Injection& injection : kinds.at(memory)) EXPECT_LE(injection.count, Mismatches::max_samples);
}

TEST_P(SelftestPlanOfRanks, GivesMemoryAndFilesPlacesOfTheirOwn) {
  std::set<std::tuple<InjectionKind, int, std::int64_t>> places;  // the inputs of choose_flip
  for (const Injection& injection : plan.injections)
    EXPECT_TRUE(places.emplace(injection.kind, injection.rank, injection.step).second);
}

INSTANTIATE_TEST_SUITE_P(Ranks, SelftestPlanOfRanks, testing::Values(2, 3, 4, 8));

TEST(SelftestPlan, OneRankLeavesOutWhatNeedsTwo) {
  const SelftestPlan plan = plan_selftest({.ranks = 1, .layers = 6});
  EXPECT_THAT(left_out(plan), ElementsAre(all_reduce, collective));
  EXPECT_EQ(by_kind(plan).size(), 15u);
  EXPECT_TRUE(some_by_kind(plan_selftest({.ranks = 2, .covers_all = false}), true).empty())
      << "all faults of passes last there";
  EXPECT_THAT(left_out(plan_selftest({.ranks = 1, .covers_all = false})),
              ElementsAre(weight, all_reduce, collective, optimizer));
}

TEST(SelftestPlan, LeavesOutWhatTheRunHasNot) {
  EXPECT_THAT(left_out(plan_selftest({.ranks = 2, .extreme = false})), ElementsAre(extreme));
  EXPECT_THAT(left_out(plan_selftest({.ranks = 2, .covers_all = false})), ElementsAre(all_reduce));
  EXPECT_THAT(left_out(plan_selftest({.ranks = 2, .memory = false})), ElementsAre(memory, memory_gemm));
  EXPECT_THAT(left_out(plan_selftest({.ranks = 2, .files = false})),
              ElementsAre(file_bit, file_stale, file_torn, file_misplaced, file_lost));
}

}  // namespace
}  // namespace egt
