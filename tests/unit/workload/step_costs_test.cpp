#include <gtest/gtest.h>

#include <cmath>
#include <optional>

#include "workload/train/check_schedule.hpp"

namespace egt {
namespace {

constexpr double plain_ms = 10, check_ms = 6;

/// Steps of 10 ms with a check after every `every`th, which delays the next two by 4 and 2 ms.
class Steps {
 public:
  explicit Steps(std::int64_t every) : every_(every) {}

  StepCosts costs;
  int notes = 0;
  StepMessage last_note;

  void run(std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) step(time_of(next_));
  }
  void step(std::optional<double> ms) {
    if ((next_ + 1) % every_ == 0) costs.check_enqueued(next_);
    costs.add(next_++, ms);
    const StepMessage note = costs.take_note();
    if (note.step_ms == 0) return;
    ++notes;
    last_note = note;
  }
  double time_of(std::int64_t step) const {
    const std::int64_t behind = step < every_ ? every_ : step % every_;
    return plain_ms + (behind == 0 ? 4 : behind == 1 ? 2 : 0);
  }

 private:
  const std::int64_t every_;
  std::int64_t next_ = 0;
};

TEST(StepCosts, AreNotKnownBeforeAnyStep) {
  StepCosts costs;
  EXPECT_FALSE(costs.fraction().has_value());
  EXPECT_EQ(costs.take_note().step_ms, 0);
}

TEST(StepCosts, StepsWithoutACheckMeasureNothing) {
  Steps steps(1000);
  steps.run(50);
  EXPECT_FALSE(steps.costs.fraction().has_value());
  EXPECT_EQ(steps.notes, 0);
}

class StepCostsEvery : public ::testing::TestWithParam<std::int64_t> {};

TEST_P(StepCostsEvery, AreWhatTheStepsBehindAChecksTakeLonger) {
  const std::int64_t every = GetParam();
  Steps steps(every);
  constexpr int checks = 25;
  steps.run(checks * every + 2);  // up to the second step after the last check
  EXPECT_EQ(steps.notes, checks);
  EXPECT_FLOAT_EQ(steps.last_note.check_ms, check_ms);
  EXPECT_FLOAT_EQ(steps.last_note.step_ms, plain_ms);
  const double all = static_cast<double>(checks * every + 2) * plain_ms + checks * check_ms;
  EXPECT_NEAR(steps.costs.fraction().value_or(-1), checks * check_ms / all, 1e-9);
}
INSTANTIATE_TEST_SUITE_P(Steps, StepCostsEvery, ::testing::Values(4, 100));

TEST(StepCosts, ANoteIsTakenOnce) {
  Steps steps(4);
  steps.run(5);
  EXPECT_EQ(steps.costs.take_note().step_ms, 0) << "the second step behind the check is not over";
  steps.costs.add(5, 12.0);
  EXPECT_FLOAT_EQ(steps.costs.take_note().step_ms, plain_ms);
  EXPECT_EQ(steps.costs.take_note().step_ms, 0);
}

TEST(StepCosts, AStepOfUnknownTimeMakesItsCheckUnknownNotFree) {
  Steps steps(4);
  steps.run(4);
  steps.step(std::nullopt);
  steps.run(1);
  EXPECT_EQ(steps.notes, 1) << "the schedule waits for it";
  EXPECT_TRUE(std::isnan(steps.last_note.check_ms));
  EXPECT_TRUE(std::isnan(steps.last_note.step_ms));
  EXPECT_FALSE(steps.costs.fraction().has_value());
  steps.run(4);  // the next check
  EXPECT_FLOAT_EQ(steps.last_note.check_ms, check_ms);
}

TEST(StepCosts, ADisturbedCheckSaysNothing) {
  Steps steps(4);
  steps.run(4);
  steps.costs.disturb();
  steps.step(500.0);
  steps.step(500.0);
  EXPECT_EQ(steps.notes, 1);
  EXPECT_TRUE(std::isnan(steps.last_note.check_ms));
  EXPECT_FALSE(steps.costs.fraction().has_value());
  steps.run(4);
  EXPECT_FLOAT_EQ(steps.last_note.check_ms, check_ms) << "only the one";
}

TEST(StepCosts, WithoutAPlainStepNothingIsKnown) {
  StepCosts costs;
  costs.check_enqueued(-1);  // before the first step
  costs.add(0, 14.0);
  costs.add(1, 12.0);
  EXPECT_TRUE(std::isnan(costs.take_note().check_ms));
  EXPECT_FALSE(costs.fraction().has_value());
}

TEST(StepCosts, AnOutlierAmongPlainStepsDoesNotMakeAChecksCostNegative) {
  Steps steps(100);
  steps.run(97);
  steps.step(1000.0);
  steps.run(4);
  EXPECT_FLOAT_EQ(steps.last_note.check_ms, check_ms);
  EXPECT_FLOAT_EQ(steps.last_note.step_ms, plain_ms);
}

}  // namespace
}  // namespace egt
