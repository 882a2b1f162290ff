#include "workload/train/step_breakdown.hpp"

#include <gtest/gtest.h>

namespace egt::test {
namespace {

StepTimes times(double wait, double update, double forward, double activation, double backward) {
  return {.phase_ms = {wait, update, forward, activation, backward},
          .sum_ms = {forward, 2 * forward},
          .sum_bytes = {}};
}

TEST(StepBreakdown, IsTheMeanOfTheStepsMeasured) {
  StepBreakdown breakdown;
  EXPECT_TRUE(breakdown.figures(0.1).is_null());
  breakdown.add(times(1, 1, 1, 1, 1), std::nullopt);  // begins a run, so its duration is unknown
  EXPECT_TRUE(breakdown.figures(0.1).is_null());
  breakdown.add(times(1, 2, 3, 4, 5), 18);
  breakdown.add(times(3, 2, 5, 8, 7), 30);
  const Json figures = breakdown.figures(0.01);
  EXPECT_EQ(figures, (Json{{"measured_steps", 2},
                           {"step_ms", 24.0},
                           {"wait_ms", 2.0},
                           {"update_ms", 2.0},
                           {"forward_ms", 4.0},
                           {"activation_ms", 6.0},
                           {"backward_ms", 6.0},
                           {"second_ms", 0.0},
                           {"other_ms", 4.0},
                           {"checks_ms", 0.24},
                           {"sum_ms", {4.0, 8.0}}}));
  EXPECT_TRUE(breakdown.figures(std::nullopt).at("checks_ms").is_null());
}

TEST(StepTimes, TheRateOfAllReducesLeavesOutTheWaitForALateRank) {
  const StepTimes late{.sum_ms = {8, 2, 0}, .sum_bytes = {100e6, 150e6, 100e6}};
  EXPECT_DOUBLE_EQ(late.all_reduce_gb_per_s(), 75);
  EXPECT_EQ(StepTimes().all_reduce_gb_per_s(), 0);
}

TEST(LossTrend, IsTheStepsInWhichAnExponentialHalves) {
  LossTrend trend;
  for (std::int64_t step = 5'000'000; step < 5'001'000; ++step)
    trend.add(step, 3 * std::exp2(-static_cast<double>(step - 5'000'000) / 40));
  ASSERT_TRUE(trend.halving_steps());
  EXPECT_NEAR(*trend.halving_steps(), 40, 1e-6);
}

TEST(LossTrend, IsNoneWhereTheLossDoesNotFall) {
  LossTrend few, rising, broken, wavering;
  few.add(0, 2);
  few.add(1, 1);
  EXPECT_FALSE(few.halving_steps());
  for (int step = 0; step < 10; ++step) {
    rising.add(step, 1 + step);
    broken.add(step, step % 2 == 0 ? NAN : 0.0);
  }
  EXPECT_FALSE(rising.halving_steps());
  for (int step = 0; step < 10; ++step)
    wavering.add(step, step == 0 ? 1.554 : step == 9 ? 1.573 : 1.7 - 0.01 * step);
  EXPECT_FALSE(wavering.halving_steps()) << "its slope falls, but the last loss is above the first";
  EXPECT_FALSE(broken.halving_steps());
}

TEST(LossTrend, StandsStillWhereNoLossOf50IsWellBelowTheFirst) {
  const auto trend = [](std::int64_t first, int steps, double fall) {
    LossTrend made;
    for (int i = 0; i < steps; ++i) made.add(first + i, 1.5 * std::exp(-fall * i));
    return made;
  };
  EXPECT_TRUE(trend(0, 50, 0).stands_still());
  EXPECT_TRUE(trend(0, 50, 0.0001).stands_still());
  EXPECT_DOUBLE_EQ(trend(0, 50, 0).lowest(), 1.5);
  EXPECT_FALSE(trend(0, 49, 0).stands_still()) << "too few steps";
  EXPECT_FALSE(trend(0, 50, 0.01).stands_still());
  EXPECT_FALSE(trend(1000, 50, 0).stands_still()) << "a resumed run may have learned all before";
}

}  // namespace
}  // namespace egt::test
