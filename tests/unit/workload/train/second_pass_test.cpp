#include "workload/train/pass_judgement.hpp"

#include <gmock/gmock.h>

#include <vector>

namespace egt {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

/// Each rank's batch has its own digests, three per pass.
PassDigests clean_passes(const std::vector<int>& second_of) {
  const auto answers = [](int batch) {
    Answers all;
    for (std::uint64_t q = 0; q < 3; ++q) all.push_back({static_cast<std::uint64_t>(batch) * 10 + q, q});
    return all;
  };
  PassDigests ranks;
  for (int rank = 0; rank < static_cast<int>(second_of.size()); ++rank)
    ranks.push_back({.first = answers(rank),
                     .second = answers(second_of[static_cast<std::size_t>(rank)]),
                     .sums = {},
                     .wrong_in_sums = {}});
  return ranks;
}

const std::vector<int> alone = {0}, two = {1, 0}, three = {1, 2, 0}, four = {1, 2, 3, 0};

void expect_wrong(const std::vector<Mismatch>& found, int rank, Blame blame, std::size_t question,
                  std::uint64_t count) {
  ASSERT_THAT(found, SizeIs(1));
  EXPECT_EQ(found[0].rank, rank);
  EXPECT_EQ(found[0].blame, blame);
  EXPECT_EQ(found[0].question, question);
  EXPECT_EQ(found[0].count, count);
  EXPECT_NE(found[0].expected, found[0].actual);
  EXPECT_THAT(found[0].suspects, IsEmpty());
}

TEST(SecondPass, EqualPassesDoNotDiffer) {
  for (const auto& ring : {alone, two, three, four, {1, 0, 2}}) {
    EXPECT_THAT(pass_differences(clean_passes(ring), ring), IsEmpty());
    EXPECT_THAT(decide_passes(clean_passes(ring), {}, ring), IsEmpty());
  }
}

TEST(SecondPass, ADifferenceNamesBothRanksAndTheFirstDigest) {
  PassDigests step = clean_passes(three);
  step[1].second[1].b ^= 1;
  step[1].second[2].a ^= 1;
  const auto found = pass_differences(step, three);
  ASSERT_THAT(found, SizeIs(1));
  EXPECT_EQ(found[0].second, 1);
  EXPECT_EQ(found[0].first, 2);
  EXPECT_EQ(found[0].digests.question, 1u);
  EXPECT_EQ(found[0].digests.count, 2u);
}

TEST(SecondPass, ARepetitionWithOtherWeightsDecidesNothing) {
  PassDigests step = clean_passes(three), repeated = clean_passes(three);
  for (auto* answers : {&step[1].first, &step[1].second}) (*answers)[0].a ^= 8;
  for (auto& rank : repeated)
    for (auto* answers : {&rank.first, &rank.second}) (*answers)[0].b ^= 1;
  expect_wrong(decide_passes(step, repeated, three), 1, Blame::majority, 0, 1);
}

TEST(SecondPass, ARankThatDiffersFromItselfIsWrong) {
  PassDigests step = clean_passes(alone);
  step[0].first[2].a ^= 4;
  expect_wrong(decide_passes(step, {}, alone), 0, Blame::certain, 2, 1);
}

TEST(SecondPass, TheRepetitionShowsWhoStruckOnce) {
  for (const auto& ring : {two, three, four})
    for (int rank = 0; rank < static_cast<int>(ring.size()); ++rank)
      for (const bool in_second : {false, true}) {
        PassDigests step = clean_passes(ring);
        auto& own = step[static_cast<std::size_t>(rank)];
        (in_second ? own.second : own.first)[1].a ^= 8;
        expect_wrong(decide_passes(step, clean_passes(ring), ring), rank, Blame::certain, 1, 1);
      }
}

TEST(SecondPass, WithoutARepetitionTheRingShowsWhoIsAlwaysWrong) {
  for (const auto& ring : {three, four})
    for (std::size_t rank = 0; rank < ring.size(); ++rank) {
      PassDigests step = clean_passes(ring);
      step[rank].first[0].a ^= 1;
      step[rank].second[0].a ^= 1;
      for (const PassDigests& repeated : {PassDigests(), step})
        expect_wrong(decide_passes(step, repeated, ring), static_cast<int>(rank), Blame::majority, 0, 1);
    }
}

TEST(SecondPass, OfTwoThatDifferAlwaysBothAreSuspects) {
  PassDigests step = clean_passes(two);
  step[1].first[0].a ^= 1;
  step[1].second[0].a ^= 1;
  const auto found = decide_passes(step, step, two);
  ASSERT_THAT(found, SizeIs(1));
  EXPECT_EQ(found[0].rank, -1);
  EXPECT_EQ(found[0].blame, Blame::ambiguous);
  EXPECT_THAT(found[0].suspects, ElementsAre(0, 1));
}

TEST(SecondPass, WithoutARepetitionOneDifferenceLeavesSuspects) {
  PassDigests step = clean_passes(four);
  step[2].first[0].a ^= 1;
  const auto found = decide_passes(step, {}, four);
  ASSERT_THAT(found, SizeIs(1));
  EXPECT_THAT(found[0].suspects, ElementsAre(1, 2));
}

TEST(SecondPass, TwoRanksThatStruckOnceAreBothNamed) {
  PassDigests step = clean_passes(four);
  step[0].first[0].a ^= 1;
  step[2].second[1].a ^= 1;
  const auto found = decide_passes(step, clean_passes(four), four);
  ASSERT_THAT(found, SizeIs(2));
  EXPECT_EQ(found[0].rank, 0);
  EXPECT_EQ(found[1].rank, 2);
}

}  // namespace
}  // namespace egt
