#include "egt/core/math/math.hpp"

#include <gtest/gtest.h>

#include <cfloat>
#include <cmath>
#include <cstdint>
#include <limits>
#include <set>
#include <vector>

namespace egt::math {
namespace {

constexpr float nan_value = std::numeric_limits<float>::quiet_NaN();

/// From the smallest to nearly the largest float, both signs.
std::vector<float> finite_sweep() {
  std::vector<float> values = {0.0f, -0.0f, FLT_MIN, -FLT_MIN, FLT_TRUE_MIN, 1.0f, -1.0f, 3e38f, -3e38f};
  for (float v = 1e-38f; v < 2e38f; v *= 1.37f) {
    values.push_back(v);
    values.push_back(-v);
  }
  for (float v = -20.0f; v < 20.0f; v += 0.0173f) values.push_back(v);
  return values;
}

/// The chain of `extreme_turn` in double.
double turn_in_double(double v) {
  v = std::sin(v * 1.1) * std::cos(v * 0.9);
  v = std::tan(v * 0.1) + std::atan(v * 2);
  v = std::exp(v * 0.01) - std::log(std::fabs(v * 10) + 1);
  v = std::sqrt(std::fabs(v)) * std::pow(std::fabs(v) + 0.1, 0.33);
  return std::sinh(v * 0.1) * std::cosh(v * 0.1);
}

TEST(Extreme, IsBoundedForFiniteInputs) {
  for (const float v : finite_sweep())
    for (const int iterations : {1, 2, 50}) {
      const float e = extreme(v, 0.25f, iterations).mean;
      ASSERT_GE(e, 0.0f) << v;
      ASSERT_LT(e, 0.4f) << v;
    }
}

TEST(Extreme, OneTurnFollowsTheFormula) {
  for (float v = -3.0f; v < 3.0f; v += 0.01f) {
    EXPECT_NEAR(extreme(v, 0.0f, 1).mean, turn_in_double(v), 2e-4) << v;
    EXPECT_NEAR(extreme(v, 0.5f, 1).mean, turn_in_double(v + 0.5), 2e-4) << v;
  }
}

TEST(Extreme, NoTurnIsZeroAndNanStays) {
  EXPECT_EQ(extreme(1.5f, 0.5f, 0).mean, 0.0f);
  EXPECT_TRUE(std::isnan(extreme(nan_value, 0.5f, 50).mean));
}

TEST(Extreme, AnErrorInTheStartReachesTheResult) {
  for (float v = 0.1f; v < 2.0f; v += 0.01f)
    EXPECT_NE(extreme(v, 0.3f, 50).bits, extreme(v * 1.01f, 0.3f, 50).bits) << v;
}

TEST(Extreme, AnyBitOfAnyTurnReachesTheBits) {
  const ExtremeChain clean = extreme(0.7f, 0.3f, 200);
  for (const int turn : {0, 1, 99, 199})
    for (int bit = 0; bit < 32; ++bit)
      EXPECT_NE(extreme(0.7f, 0.3f, 200, {turn, 1u << bit}).bits, clean.bits) << turn << ", bit " << bit;
  EXPECT_EQ(extreme(0.7f, 0.3f, 200, {200, 1}).bits, clean.bits) << "no such turn";
}

/// The operand of iteration `turn`, recovered from the sum: each iteration's value is that of its operand.
float operand(float start, float phase, int turn) {
  float v = start;
  for (int i = 0; i < turn; ++i) {
    v = extreme_turn(v + phase);
    phase += phase_advance;
    if (phase >= 1.0f) phase -= 1.0f;
  }
  return v + phase;
}

/// For any elements: equal ones, those after a ReLU, random ones.
TEST(Extreme, ElementsComputeWithUnlikeOperandsInEveryTurn) {
  constexpr std::uint64_t elements = 8192, max_alike = elements / 1000;
  const auto start = [](int data, std::uint64_t i) {
    const float random = extreme_phase(i * 77 + 5) * 4.0f - 2.0f;
    return data == 0 ? 0.5f : std::fabs(data == 1 ? std::max(random, 0.0f) : random);
  };
  for (const int data : {0, 1, 2})
    for (const int turn : {0, 1, 7, 50, 199, 200}) {
      if (turn == 0 && data == 1) continue;  // with the phase of the position alone, half of them are 0
      std::set<float> operands;
      for (std::uint64_t i = 0; i < elements; ++i)
        operands.insert(operand(start(data, i), extreme_phase(i), turn));
      EXPECT_GE(operands.size(), elements - max_alike) << "data " << data << ", turn " << turn;
    }
}

TEST(Extreme, PhasesNeverMerge) {
  std::set<float> phases;
  for (std::uint64_t i = 0; i < 4096; ++i) {
    float phase = static_cast<float>(i * 2048 + i % 2) / 8388608.0f;
    for (int turn = 0; turn < 1000; ++turn) {
      phase += phase_advance;
      if (phase >= 1.0f) phase -= 1.0f;
    }
    ASSERT_GE(phase, 0.0f);
    ASSERT_LT(phase, 1.0f);
    phases.insert(phase);
  }
  EXPECT_EQ(phases.size(), 4096u);
}

template <typename T>
class Activation : public testing::Test {};
using ActivationTypes = testing::Types<float, double>;
TYPED_TEST_SUITE(Activation, ActivationTypes);

TYPED_TEST(Activation, ItsSignCarriesTheMask) {
  for (const float v : finite_sweep())
    for (const int iterations : {0, 1, 50}) {
      const auto z = static_cast<TypeParam>(v);
      const TypeParam h = iterations == 0 ? activation(z) : extreme_activation(z, 0.1f, iterations).h;
      ASSERT_EQ(h > 0, z > 0) << v << ", " << iterations << " iterations";
    }
}

TYPED_TEST(Activation, AddsAThousandthOfTheExtremeTerm) {
  for (const float v : {0.01f, 0.5f, 3.0f}) {
    const double term = extreme(v, 0.1f, 50).mean / 1024.0;
    EXPECT_NEAR(extreme_activation(static_cast<TypeParam>(v), 0.1f, 50).h, v + term, 1e-6);
    EXPECT_GT(term, 0);
  }
  EXPECT_NEAR(extreme_activation(TypeParam(-2), 0.1f, 50).h, -extreme(2, 0.1f, 50).mean / 1024.0, 1e-9);
  EXPECT_LT(extreme_activation(TypeParam(-2), 0.1f, 50).h, 0);
}

TYPED_TEST(Activation, WithoutIterationsIsRelu) {
  EXPECT_EQ(activation(TypeParam(2.5)), TypeParam(2.5));
  EXPECT_EQ(activation(TypeParam(-2.5)), TypeParam(0));
}

TYPED_TEST(Activation, ANanStaysANan) {
  EXPECT_TRUE(std::isnan(activation(static_cast<TypeParam>(nan_value))));
  for (const int iterations : {1, 50})
    EXPECT_TRUE(std::isnan(extreme_activation(static_cast<TypeParam>(nan_value), 0.1f, iterations).h));
}

TYPED_TEST(Activation, TheGradientPassesWhereTheSignSaysSo) {
  EXPECT_EQ(activation_gradient(TypeParam(3), TypeParam(0.5)), TypeParam(3));
  EXPECT_EQ(activation_gradient(TypeParam(3), TypeParam(0)), TypeParam(0));
  EXPECT_EQ(activation_gradient(TypeParam(3), TypeParam(-0.001)), TypeParam(0));
}

TYPED_TEST(Activation, ANanInGradientOrValueStays) {
  const auto nan = static_cast<TypeParam>(nan_value);
  EXPECT_TRUE(std::isnan(activation_gradient(nan, TypeParam(1))));
  EXPECT_TRUE(std::isnan(activation_gradient(nan, TypeParam(-1))));
  EXPECT_TRUE(std::isnan(activation_gradient(TypeParam(1), nan)));
}

TEST(Target, TapsAreInRangeAndOfBothSigns) {
  std::set<float> weights;
  std::set<std::uint32_t> inputs;
  for (std::uint32_t output = 0; output < 200; ++output)
    for (int tap = 0; tap < target_taps; ++tap) {
      const TargetTap t = target_tap(1, output, tap, 37);
      ASSERT_LT(t.input, 37u);
      weights.insert(t.weight);
      inputs.insert(t.input);
    }
  EXPECT_EQ(weights, (std::set<float>{-target_tap_weight, target_tap_weight}));
  EXPECT_EQ(inputs.size(), 37u) << "every input is of use";
}

TEST(Target, OffsetsLieBetweenOneHalfAndThreeHalves) {
  int negative = 0;
  for (std::uint32_t output = 0; output < 2000; ++output) {
    const float offset = target_offset(1, output);
    ASSERT_GE(std::fabs(offset), 0.5f);
    ASSERT_LT(std::fabs(offset), 1.5f);
    negative += offset < 0;
  }
  EXPECT_GT(negative, 800);
  EXPECT_LT(negative, 1200);
}

TEST(Sgd, FollowsTheFormulaInDouble) {
  const Sgd sgd{0.01f, 0.9f, 1.0f / 1024};
  float weight = 0.7f, velocity = 0;
  double w = weight, v = 0;
  for (int step = 0; step < 100; ++step) {
    const float stored = 1024 * std::sin(static_cast<float>(step));
    sgd(weight, velocity, stored);
    v = 0.9 * v + static_cast<double>(stored) / 1024;
    w -= 0.01 * v;
    ASSERT_NEAR(velocity, v, 1e-5) << step;
    ASSERT_NEAR(weight, w, 1e-5) << step;
  }
}

TEST(Adam, FollowsTheFormulaInDouble) {
  float weight = -0.3f, first = 0, second = 0;
  double w = weight, m = 0, s = 0;
  for (int step = 1; step <= 100; ++step) {
    const double correction1 = 1 - std::pow(0.9, step), correction2 = 1 - std::pow(0.999, step);
    const Adam adam{
        0.001f, 0.9f, 0.999f, 1e-8f, static_cast<float>(correction1), static_cast<float>(correction2), 0.5f};
    const float stored = 2 * std::cos(static_cast<float>(step));
    adam(weight, first, second, stored);
    const double g = static_cast<double>(stored) / 2;
    m = 0.9 * m + 0.1 * g;
    s = 0.999 * s + 0.001 * g * g;
    w -= 0.001 * (m / correction1) / (std::sqrt(s / correction2) + 1e-8);
    ASSERT_NEAR(first, m, 1e-5) << step;
    ASSERT_NEAR(second, s, 1e-5) << step;
    ASSERT_NEAR(weight, w, 1e-5) << step;
  }
}

TEST(Optimizers, ANanGradientReachesTheWeight) {
  float weight = 1, velocity = 0;
  Sgd{0.01f, 0.9f, 1}(weight, velocity, nan_value);
  EXPECT_TRUE(std::isnan(weight));
  float other = 1, first = 0, second = 0;
  Adam{0.001f, 0.9f, 0.999f, 1e-8f, 0.1f, 0.001f, 1}(other, first, second, nan_value);
  EXPECT_TRUE(std::isnan(other));
}

TEST(SineExponential, StaysFiniteOnAFinitePattern) {
  const PatternFunction pattern(Pattern{PatternKind::finite, 0, 8});
  for (std::uint64_t i = 0; i < 5000; ++i) {
    const float sum = sine_exponential(float_from_bits(pattern(i)), 100);
    ASSERT_TRUE(std::isfinite(sum));
    ASSERT_LT(std::fabs(sum), 200.0f);
  }
}

}  // namespace
}  // namespace egt::math
