#include <gmock/gmock.h>

#include <limits>
#include <vector>

#include "egt/core/half.hpp"
#include "egt/workload/state_repair.hpp"

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

}  // namespace
}  // namespace egt
