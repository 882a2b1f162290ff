#include "egt/core/math/fusion_math.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>
#include <vector>

#include "egt/core/stream_fusion.hpp"

namespace egt {
namespace {

using math::Bracket;
using math::BracketSearch;

constexpr double none = -std::numeric_limits<double>::infinity();

Bracket search_in_chunks(const std::vector<double>& running, double time, std::int32_t chunk) {
  BracketSearch search(time);
  const auto count = static_cast<std::int32_t>(running.size());
  for (std::int32_t first = 0; first < count; first += chunk)
    search.look(running.data() + first, std::min(chunk, count - first), first,
                first == 0 ? none : running[static_cast<std::size_t>(first - 1)]);
  return search.bracket();
}

TEST(FusionMath, ARowIsSearchedAlikeInChunksOfAnySize) {
  std::mt19937 engine(5);
  for (int row = 0; row < 300; ++row) {
    std::vector<double> running;  // constant across invalid samples
    double reached = none;
    for (std::uint32_t i = 0; i < engine() % 40; ++i) {
      if (engine() % 3 > 0) reached = std::max(reached, static_cast<double>(engine() % 20));
      running.push_back(reached);
    }
    for (double time = -1; time < 21; time += 0.5) {
      const Bracket whole = search_in_chunks(running, time, 1000);
      for (const std::int32_t chunk : {1, 2, 7, 16}) {
        const Bracket other = search_in_chunks(running, time, chunk);
        EXPECT_EQ(other.left, whole.left);
        EXPECT_EQ(other.right, whole.right);
        EXPECT_EQ(other.weight, whole.weight);
      }
    }
  }
}

TEST(FusionMath, BracketsAreTheSamplesThatRaiseTheMaximum) {
  const std::vector<double> running = {none, 1, 1, 3, 3, 3, 5};  // samples 1, 3 and 6 are valid
  const auto expect_bracket = [&](double time, std::int32_t left, std::int32_t right, float weight) {
    const Bracket bracket = search_in_chunks(running, time, 1000);
    EXPECT_EQ(bracket.left, left) << time;
    EXPECT_EQ(bracket.right, right) << time;
    EXPECT_EQ(bracket.weight, weight) << time;
  };
  expect_bracket(0, 1, 1, 0.0f);
  expect_bracket(1, 1, 1, 0.0f);
  expect_bracket(1.5, 1, 3, 0.25f);
  expect_bracket(3, 3, 3, 0.0f);
  expect_bracket(4, 3, 6, 0.5f);
  expect_bracket(5, 6, 6, 0.0f);
  expect_bracket(6, 6, 6, 0.0f);
  expect_bracket(std::numeric_limits<double>::quiet_NaN(), -1, -1, 0.0f);
  expect_bracket(std::numeric_limits<double>::infinity(), -1, -1, 0.0f);
}

TEST(FusionMath, InterpolatesWithOneRounding) {
  EXPECT_EQ(math::interpolate(2.0f, 4.0f, 0.25f), 2.5f);
  // The lower half of the product matters: 2^-24 of it decides.
  const float weight = 1.0f + 0x1p-23f, left = -1.0f - 0x1p-22f;
  EXPECT_EQ(math::interpolate(left, left + weight, weight), 0x1p-46f);
  EXPECT_EQ(math::interpolate(1.0f, std::numeric_limits<float>::infinity(), 0.0f), 1.0f);
  const float nan = math::interpolate(float_from_bits(0xFFC00001u), 1.0f, 0.0f);
  EXPECT_EQ(float_bits(nan), 0x7FC00000u);
}

TEST(FusionMath, WeightsStayBetween0And1AtEverySize) {
  EXPECT_EQ(math::interpolation_weight(0.75, 0.5, 1.0), 0.5f);
  EXPECT_EQ(math::interpolation_weight(0.0, -1.7e308, 1.7e308), 0.5f);
  EXPECT_EQ(math::interpolation_weight(1.0 - 1e-16, 0.0, 1.0), 1.0f);
}

TEST(StreamFusion, TheStandardShapeAndItsBytes) {
  const FusionShape shape = standard_fusion_shape(32);
  EXPECT_EQ(shape.steps, 200);
  EXPECT_EQ(shape.samples[0], 120);
  EXPECT_EQ(shape.samples[1], 800);
  EXPECT_EQ(shape.samples[2], 4000);
  EXPECT_EQ(shape.total_dims(), 804);
  const std::uint64_t times = 8 * (120 + 800 + 4000 + 200), results = 200 * 804 * 4 + 3 * 4,
                      values = 4 * (120 * 768 + 400 * 28 + 400 * 8);
  EXPECT_EQ(fusion_bytes(shape), 32 * (times + results + values));
}

}  // namespace
}  // namespace egt
