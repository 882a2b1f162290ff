#include "workload/bench/scaling_model.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

namespace egt {
namespace {

using ::testing::DoubleNear;
using ::testing::HasSubstr;
using ::testing::Optional;

/// 8 us a message, 0.4 ns a byte.
constexpr Fabric fabric{.alpha_ms = 8e-3, .beta_ms_per_byte = 4e-7};
constexpr double bytes = 40e6, sums = 4, alone_ms = 20, overlap = 0.4, sigma_ms = 0.2, batch = 8192;

/// In the words of the formula.
double ring(double n) {
  return sums * 2 * (n - 1) * fabric.alpha_ms + 2 * (n - 1) / n * bytes * fabric.beta_ms_per_byte;
}

/// A machine that is as the model says, but for what it cannot see: `pair_ms` of each step.
double made_up_step(double compute_ms, int n, double pair_ms) {
  return compute_ms + sigma_ms * compute_ms / alone_ms * expected_maximum(n) +
         std::max(0.0, ring(n) - overlap * compute_ms) + pair_ms;
}

ScalingInputs inputs(double pair_ms = 0.7) {
  ScalingInputs made{.batch = batch,
                     .alone_ms = alone_ms,
                     .sigma_ms = sigma_ms,
                     .two_ms = made_up_step(alone_ms, 2, pair_ms),
                     .half_share = 0.55,
                     .sums = {},
                     .summed_bytes = bytes,
                     .sums_per_step = sums,
                     .overlap_share = overlap};
  for (const double size : {bytes, bytes / 64, bytes / 4096})
    made.sums.push_back({size, 2 * fabric.alpha_ms + size * fabric.beta_ms_per_byte});
  return made;
}

ScalingModel fitted(const ScalingInputs& from) {
  auto model = ScalingModel::fit(from);
  EXPECT_TRUE(model.ok()) << model.status().what();
  return model.value();
}

TEST(ScalingModel, FindsTheFabricThatTheTimesAreOf) {
  const auto found = fit_fabric(inputs().sums);
  ASSERT_TRUE(found.ok()) << found.status().what();
  EXPECT_NEAR(found.value().alpha_ms, fabric.alpha_ms, 1e-9);
  EXPECT_NEAR(found.value().beta_ms_per_byte, fabric.beta_ms_per_byte, 1e-15);
  for (const int n : {2, 3, 8, 4096}) EXPECT_NEAR(found.value().ring_ms(n, bytes, sums), ring(n), 1e-9) << n;
  EXPECT_EQ(found.value().ring_ms(1, bytes, sums), 0) << "alone there is nobody to add";
}

TEST(ScalingModel, OnePercentOfALargeSumIsNoLatency) {
  ScalingInputs noisy = inputs();
  noisy.sums[0].ms *= 1.01;
  noisy.sums[1].ms *= 0.99;
  const auto found = fit_fabric(noisy.sums);
  ASSERT_TRUE(found.ok());
  EXPECT_NEAR(found.value().alpha_ms, fabric.alpha_ms, 0.03 * fabric.alpha_ms);
  EXPECT_NEAR(found.value().beta_ms_per_byte, fabric.beta_ms_per_byte, 0.03 * fabric.beta_ms_per_byte);
}

TEST(ScalingModel, NoFigureOfAFabricIsBelowZero) {
  const Fabric no_latency = fit_fabric({{1000, 0.5}, {4000, 4}}).value();
  EXPECT_EQ(no_latency.alpha_ms, 0);
  EXPECT_GT(no_latency.beta_ms_per_byte, 0);
  const Fabric no_bytes = fit_fabric({{1000, 2}, {4000, 1}}).value();
  EXPECT_EQ(no_bytes.beta_ms_per_byte, 0);
  EXPECT_GT(no_bytes.alpha_ms, 0);
}

TEST(ScalingModel, TheSlowestOfManyIsAsStatisticsHaveIt) {
  EXPECT_NEAR(expected_maximum(1), 0, 1e-6);
  EXPECT_NEAR(expected_maximum(2), 1 / std::sqrt(std::numbers::pi), 1e-6);
  EXPECT_NEAR(expected_maximum(3), 1.5 / std::sqrt(std::numbers::pi), 1e-6);
  EXPECT_NEAR(expected_maximum(10), 1.538753, 1e-5);  // tables of normal order statistics
  EXPECT_NEAR(expected_maximum(100), 2.507594, 1e-5);
  for (int n = 1; n < 4096; n *= 2) EXPECT_LT(expected_maximum(n), expected_maximum(2 * n)) << n;
}

TEST(ScalingModel, AnInterruptedStepIsNoScatter) {
  EXPECT_NEAR(normal_sigma(20, 20 + 1.644854 * 0.3), 0.3, 1e-6);
  EXPECT_EQ(normal_sigma(20, 19), 0);
}

TEST(ScalingModel, ForecastsTheMachineThatItWasFittedOn) {
  for (const double pair_ms : {0.0, 0.7, 5.0}) {
    const ScalingModel model = fitted(inputs(pair_ms));
    EXPECT_NEAR(model.pair_ms(), pair_ms, 1e-9);
    for (int n = 2; n <= 4096; n *= 2) {
      EXPECT_THAT(model.step_ms(Growth::weak, n),
                  Optional(DoubleNear(made_up_step(alone_ms, n, pair_ms), 1e-6)));
      // 10 % of a step is not a matter of the batch: half of it takes 55 %.
      const double part_ms = alone_ms * (0.1 + 0.9 / n);
      EXPECT_THAT(model.step_ms(Growth::strong, n),
                  Optional(DoubleNear(made_up_step(part_ms, n, pair_ms), 1e-6)))
          << n;
    }
  }
}

TEST(ScalingModel, MoreIsHiddenThanTheShareSays) {
  ScalingInputs slow = inputs();
  slow.summed_bytes = 4 * bytes;  // 64 ms of sums, of which 8 are thought to be hidden
  slow.two_ms = alone_ms + 30;
  const ScalingModel model = fitted(slow);
  EXPECT_LT(model.pair_ms(), 0);
  EXPECT_THAT(model.step_ms(Growth::weak, 2), Optional(DoubleNear(slow.two_ms, 1e-9)))
      << "it was fitted to this";
  EXPECT_GT(*model.step_ms(Growth::weak, 4), slow.two_ms);
}

TEST(ScalingModel, MoreRanksAreNeverMoreEfficient) {
  ScalingInputs lucky = inputs();
  lucky.two_ms = 0.9 * alone_ms;
  for (const ScalingInputs& from : {inputs(), inputs(5), lucky}) {
    const ScalingModel model = fitted(from);
    for (int n = 1; n < 4096; n *= 2) {
      EXPECT_LE(*model.step_ms(Growth::weak, n), *model.step_ms(Growth::weak, 2 * n)) << n;
      EXPECT_LE(*model.step_ms(Growth::strong, n), 2 * *model.step_ms(Growth::strong, 2 * n)) << n;
      EXPECT_GE(*model.step_ms(Growth::weak, n), alone_ms) << "no device is faster than alone";
    }
  }
}

TEST(ScalingModel, ABatchIsNotSharedByMoreThanItsSamples) {
  ScalingInputs small = inputs();
  small.batch = 6;
  const ScalingModel model = fitted(small);
  EXPECT_TRUE(model.step_ms(Growth::strong, 4));
  EXPECT_EQ(model.step_ms(Growth::strong, 8), std::nullopt);
  EXPECT_TRUE(model.step_ms(Growth::weak, 8));
  small.half_share.reset();
  EXPECT_EQ(fitted(small).step_ms(Growth::strong, 4), std::nullopt) << "nothing tells of half a batch";
}

TEST(ScalingModel, SaysWhyThereIsNone) {
  const auto why = [](const ScalingInputs& from) { return ScalingModel::fit(from).status().what(); };
  ScalingInputs one = inputs();
  one.two_ms = 0;
  EXPECT_THAT(why(one), HasSubstr("1 and 2 devices"));
  ScalingInputs none = inputs();
  none.sums.clear();
  EXPECT_THAT(why(none), HasSubstr("two sizes"));
  none.sums = {{1000, 1}, {1000, 1.1}};
  EXPECT_THAT(why(none), HasSubstr("two sizes"));
  none.sums = {{1000, 1}, {2000, 0}};
  EXPECT_THAT(why(none), HasSubstr("not measured"));
}

}  // namespace
}  // namespace egt
