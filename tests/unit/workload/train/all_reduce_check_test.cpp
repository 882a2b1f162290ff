#include "workload/train/pass_judgement.hpp"

#include <gmock/gmock.h>

#include <vector>

namespace egt {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

/// Two buckets with equal results on all ranks and every slice correct.
PassDigests clean_sums(std::size_t ranks) {
  return PassDigests(ranks, {.first = {},
                             .second = {},
                             .sums = {{1, 2}, {3, 4}},
                             .wrong_in_sums = {Mismatches::none(), Mismatches::none()}});
}

Mismatches one_wrong(std::uint64_t index) {
  Mismatches wrong = Mismatches::none();
  wrong.count = wrong.samples = 1;
  wrong.first_index = index;
  wrong.xor_or = wrong.xor_and = 1;
  wrong.sample[0] = {.index = index, .expected = 6, .actual = 7};
  return wrong;
}

TEST(AllReduceCheck, RightSumsAreNotReported) {
  for (const std::size_t ranks : {2u, 3u, 4u}) EXPECT_THAT(wrong_sums(clean_sums(ranks)), IsEmpty());
  EXPECT_THAT(wrong_sums(PassDigests(1)), IsEmpty());
}

TEST(AllReduceCheck, ARankWithAnotherResultThanMostGotItWrong) {
  PassDigests step = clean_sums(3);
  step[2].sums[1].a ^= 1;
  const auto found = wrong_sums(step);
  ASSERT_THAT(found, SizeIs(1));
  EXPECT_EQ(found[0].bucket, 1u);
  EXPECT_EQ(found[0].dissent.rank, 2);
  EXPECT_EQ(found[0].dissent.blame, Blame::majority);
  EXPECT_FALSE(found[0].sample);
  // It is located if the wrong slice is the rank's own.
  step[2].wrong_in_sums[1] = one_wrong(5);
  const auto located = wrong_sums(step);
  ASSERT_THAT(located, SizeIs(1));
  EXPECT_EQ(located[0].dissent.rank, 2);
  EXPECT_EQ(located[0].checked_by, 2);
  ASSERT_TRUE(located[0].sample);
  EXPECT_EQ(located[0].sample->index, 5u);
}

TEST(AllReduceCheck, TwoRanksWithTwoResultsAreSuspects) {
  PassDigests step = clean_sums(2);
  step[1].sums[0].b ^= 4;
  const auto found = wrong_sums(step);
  ASSERT_THAT(found, SizeIs(1));
  EXPECT_EQ(found[0].dissent.rank, -1);
  EXPECT_THAT(found[0].dissent.suspects, ElementsAre(0, 1));
  EXPECT_NE(found[0].dissent.expected, found[0].dissent.actual);
}

TEST(AllReduceCheck, AWrongSumThatAllRanksGotAlikeNamesAllOfThem) {
  for (const std::size_t ranks : {2u, 3u, 4u}) {
    PassDigests step = clean_sums(ranks);
    step[1].wrong_in_sums[0] = one_wrong(9);
    const auto found = wrong_sums(step);
    ASSERT_THAT(found, SizeIs(1));
    EXPECT_EQ(found[0].dissent.rank, -1);
    EXPECT_THAT(found[0].dissent.suspects, SizeIs(ranks));
    EXPECT_EQ(found[0].dissent.expected, found[0].dissent.actual);
    EXPECT_EQ(found[0].checked_by, 1);
    EXPECT_EQ(found[0].count, 1u);
    EXPECT_EQ(found[0].sample->expected, 6u);
  }
}

/// A wrong slice on a rank with the majority result is not explained by another rank's result.
TEST(AllReduceCheck, AWrongSliceOfMostRanksResultMakesAllSuspects) {
  PassDigests step = clean_sums(3);
  step[2].sums[0].a ^= 1;
  step[0].wrong_in_sums[0] = one_wrong(3);
  const auto found = wrong_sums(step);
  ASSERT_THAT(found, SizeIs(1));
  EXPECT_EQ(found[0].dissent.rank, -1);
  EXPECT_THAT(found[0].dissent.suspects, SizeIs(3));
}

TEST(AllReduceCheck, ARepetitionShowsWhichOfTwoRanksGotItWrong) {
  PassDigests step = clean_sums(2);
  for (RankPasses& rank : step) rank.first = {{7, 7}};
  const PassDigests repeated = step;
  step[1].sums[0].b ^= 4;
  auto found = wrong_sums(step);
  decide_sums(found, step, {});
  EXPECT_EQ(found[0].dissent.rank, -1);
  decide_sums(found, step, repeated);
  ASSERT_THAT(found, SizeIs(1));
  EXPECT_EQ(found[0].dissent.rank, 1);
  EXPECT_EQ(found[0].dissent.blame, Blame::majority);
  EXPECT_THAT(found[0].dissent.suspects, IsEmpty());
}

/// A wrong sum on all ranks, different weights and a wrong repetition decide nothing.
TEST(AllReduceCheck, ARepetitionThatShowsNothingLeavesAllSuspects) {
  PassDigests clean = clean_sums(3);
  for (RankPasses& rank : clean) rank.first = {{7, 7}};
  PassDigests alike = clean;
  for (RankPasses& rank : alike) rank.sums[0].a ^= 1;
  alike[0].wrong_in_sums[0] = one_wrong(1);
  auto found = wrong_sums(alike);
  decide_sums(found, alike, clean);
  ASSERT_THAT(found, SizeIs(1));
  EXPECT_EQ(found[0].dissent.rank, -1);

  PassDigests two = clean_sums(2), other_weights = two;
  for (RankPasses& rank : two) rank.first = {{7, 7}};
  for (RankPasses& rank : other_weights) rank.first = {{8, 8}};
  two[1].sums[0].a ^= 1;
  found = wrong_sums(two);
  decide_sums(found, two, other_weights);
  EXPECT_EQ(found[0].dissent.rank, -1);
  decide_sums(found, two, two);
  EXPECT_EQ(found[0].dissent.rank, -1);
}

TEST(AllReduceCheck, AReportThatNoDeviceWroteIsNoProof) {
  PassDigests step = clean_sums(2);
  step[0].wrong_in_sums[1] = Mismatches{};
  const auto found = wrong_sums(step);
  ASSERT_THAT(found, SizeIs(1));
  EXPECT_EQ(found[0].bucket, 1u);
  EXPECT_FALSE(found[0].sample);
}

}  // namespace
}  // namespace egt
