#include <gmock/gmock.h>

#include <limits>
#include <vector>

#include "egt/core/math/half.hpp"
#include "workload/train/state_repair.hpp"

namespace egt {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float nan = std::numeric_limits<float>::quiet_NaN();

std::vector<int> furthest(float repeated, const std::vector<float>& by_rank) {
  std::vector<std::uint32_t> words;
  for (const float value : by_rank) words.push_back(float_bits(value));
  return furthest_from(float_bits(repeated), words);
}

float ulps_above(float value, std::uint32_t ulps) {
  return float_from_bits(float_bits(value) + ulps);
}

TEST(FurthestFrom, TheRankThatTheRepetitionContradictsIsWrong) {
  EXPECT_THAT(furthest(0.5f, {0.5f, 0.75f}), ElementsAre(1));
  EXPECT_THAT(furthest(0.5f, {-0.5f, 0.5f}), ElementsAre(0));
  EXPECT_THAT(furthest(0.5f, {0.5f, 0.6f, 0.5f, 0.7f}), ElementsAre(1, 3));
}

TEST(FurthestFrom, OneUlpIsEnoughWhereTheOtherIsEqual) {
  EXPECT_THAT(furthest(0.5f, {0.5f, ulps_above(0.5f, 1)}), ElementsAre(1));
}

TEST(FurthestFrom, TheRightOneMayHaveMovedALittle) {
  EXPECT_THAT(furthest(0.5f, {ulps_above(0.5f, 3), ulps_above(0.5f, 4000)}), ElementsAre(1));
}

TEST(FurthestFrom, NobodyIsBlamedWhereItIsNotClear) {
  EXPECT_THAT(furthest(0.5f, {0.5f, 0.5f}), IsEmpty());
  EXPECT_THAT(furthest(0.5f, {0.25f, 0.75f}), IsEmpty()) << "a tie";
  EXPECT_THAT(furthest(0.5f, {ulps_above(0.5f, 1), ulps_above(0.5f, 4)}), IsEmpty());
  EXPECT_THAT(furthest_from(0, {}), IsEmpty());
}

TEST(FurthestFrom, WhatIsNotFiniteIsFurthestOfAll) {
  for (const float lost : {nan, infinity, -infinity}) {
    EXPECT_THAT(furthest(0.5f, {lost, 0.5f}), ElementsAre(0));
    EXPECT_THAT(furthest(0.5f, {0.625f, lost}), ElementsAre(1)) << "however far the other";
    EXPECT_THAT(furthest(0.5f, {lost, lost}), IsEmpty());
    EXPECT_THAT(furthest(lost, {0.5f, 0.625f}), IsEmpty()) << "the repetition itself says nothing";
    EXPECT_THAT(furthest(lost, {0.5f, lost}), ElementsAre(0)) << "the very same bits";
  }
}

TEST(FurthestFrom, TheSignOfAZeroIsNoDistance) {
  EXPECT_THAT(furthest(0.0f, {0.0f, -0.0f}), IsEmpty());
}

// Two ranks, tensors 0 and 1; each of the repetition's digests is 1

Answers answers(std::vector<std::uint64_t> digests) {
  Answers all;
  for (const std::uint64_t digest : digests) all.push_back({digest, digest});
  return all;
}
const Answers right = answers({1, 1});

Mismatch both_suspected(std::size_t question = 0, std::uint64_t count = 1) {
  return {question, -1, {0, 1}, Blame::ambiguous, {}, {}, count};
}
/// Rank 0 holds `first`, rank 1 `second`; the repetition gave 1.
StateDifference word_of(std::size_t question, float first, float second) {
  return {question, {{7, {float_bits(first), float_bits(second)}, float_bits(1.0f)}}};
}
Repetition repetition() {
  return {.alike = true, .states = right, .first_step = 0, .own_losses = {}};
}

struct Decided {
  std::vector<int> ranks;              ///< -1: suspects
  std::vector<std::size_t> questions;  ///< the first one of each
};
Decided decided(const std::vector<Answers>& states, const std::vector<StateDifference>& differences,
                const Deviation& deviation, std::int64_t candidate_step) {
  Decided found;
  for (const Mismatch& dissent :
       decide_by_repetition(both_suspected(), states, differences, repetition(), deviation, candidate_step)) {
    found.ranks.push_back(dissent.rank);
    found.questions.push_back(dissent.question);
    EXPECT_EQ(dissent.blame, dissent.rank < 0 ? Blame::ambiguous : Blame::majority);
    EXPECT_EQ(dissent.suspects.empty(), dissent.rank >= 0);
  }
  return found;
}

TEST(DecideByRepetition, WhoHasTheRepetitionsDigestIsRight) {
  const Decided found = decided({right, answers({5, 1})}, {word_of(0, 9.0f, 1.0f)},
                                {.step = 3, .ranks = {0}, .clear = true}, 90);
  EXPECT_THAT(found.ranks, ElementsAre(1)) << "whatever words and losses say";
}

TEST(DecideByRepetition, TwoRanksThatAreWrongInTwoTensorsAreBothNamed) {
  const Decided found = decided({answers({5, 1}), answers({1, 6})}, {}, {}, 9);
  EXPECT_THAT(found.ranks, ElementsAre(0, 1));
  EXPECT_THAT(found.questions, ElementsAre(0, 1));
}

TEST(DecideByRepetition, TheWordsDecideWhereThePeersStateHasMovedALittle) {
  const Decided found = decided({answers({5, 1}), answers({6, 1})}, {word_of(0, 1.01f, 3.0f)},
                                {.step = 7, .ranks = {1}, .clear = true}, 9);
  EXPECT_THAT(found.ranks, ElementsAre(1));
}

TEST(DecideByRepetition, SoonAfterwardsTheFirstLossDecidesWhereTheWordsDoNot) {
  const Decided found = decided({answers({5, 1}), answers({6, 1})}, {word_of(0, 1.4f, 0.6f)},
                                {.step = 8, .ranks = {1}, .clear = true}, 9);
  EXPECT_THAT(found.ranks, ElementsAre(1));
}

TEST(DecideByRepetition, LongAfterwardsTheFirstLossThatDeviatedDecides) {
  const std::vector<Answers> states = {answers({5, 1}), answers({6, 1})};
  const Deviation first{.step = 10, .ranks = {0}, .clear = true};
  EXPECT_THAT(decided(states, {word_of(0, 1.4f, 0.6f)}, first, 90).ranks, ElementsAre(0)) << "words: a tie";
  EXPECT_THAT(decided(states, {word_of(0, 1.2f, 2.0f)}, first, 90).ranks, ElementsAre(0))
      << "the copies were pulled past the right value";
  EXPECT_THAT(decided(states, {word_of(0, 1.2f, 2.0f)}, first, 12).ranks, ElementsAre(1)) << "not so soon";
}

TEST(DecideByRepetition, LongAfterwardsALossThatDeviatedByRoundingOnlyDecidesNothing) {
  const std::vector<Answers> states = {answers({5, 1}), answers({6, 1})};
  EXPECT_THAT(decided(states, {word_of(0, 1.2f, 2.0f)}, {.step = 10, .ranks = {0}}, 90).ranks,
              ElementsAre(-1));
}

TEST(DecideByRepetition, LongAfterwardsWhatSpeaksAgainstBothLeavesBothSuspected) {
  const std::vector<Answers> states = {answers({5, 7}), answers({6, 8})};
  const std::vector<StateDifference> words = {word_of(0, 2.0f, 1.2f), word_of(1, 1.2f, 2.0f)};
  const Decided found = decided(states, words, {.step = 10, .ranks = {0}, .clear = true}, 90);
  EXPECT_THAT(found.ranks, ElementsAre(0, -1));
  EXPECT_THAT(found.questions, ElementsAre(0, 1));
}

TEST(DecideByRepetition, AWordFarFromTheRepetitionsDecidesAtAnyTime) {
  const std::vector<Answers> states = {answers({5, 1}), answers({6, 1})};
  for (const int first : {0, 1}) {
    const Deviation deviation{.step = 10, .ranks = {first}, .clear = true};
    EXPECT_THAT(decided(states, {word_of(0, 1.01f, 3.0f)}, deviation, 90).ranks, ElementsAre(1));
  }
}

TEST(DecideByRepetition, NobodyIsBlamedWhereLossesOfBothDeviatedFirstLongAgo) {
  const Decided found = decided({answers({5, 1}), answers({6, 1})}, {word_of(0, 1.2f, 2.0f)},
                                {.step = 10, .ranks = {0, 1}, .clear = true}, 90);
  EXPECT_THAT(found.ranks, ElementsAre(-1));
}

}  // namespace
}  // namespace egt
