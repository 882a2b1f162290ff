#include "egt/core/load_control.hpp"

#include <gtest/gtest.h>

#include "egt/core/clock.hpp"

namespace egt {
namespace {

TEST(LoadControl, RestsForTheDutyAndNoLongerThanSomeSeconds) {
  LoadControl load;
  EXPECT_EQ(load.rest_after(2), 0);
  load.set_duty(0.5);
  EXPECT_DOUBLE_EQ(load.rest_after(2), 2);
  load.set_duty(0);
  EXPECT_DOUBLE_EQ(load.rest_after(0.1), 1.9) << "the least duty is 5 %";
  EXPECT_EQ(load.rest_after(60), LoadControl::longest_rest_seconds);
}

TEST(LoadControl, ARestEndsSoonWhenItIsOver) {
  LoadControl load;
  load.set_duty(LoadControl::least_duty);
  const auto start = Clock::now();
  load.rest(10, [&] { return seconds_since(start) > 0.2; });
  EXPECT_GE(seconds_since(start), 0.2);
  EXPECT_LT(seconds_since(start), 2.0) << "of five";
}

TEST(LoadControl, WithoutAnEndItRestsItsTime) {
  LoadControl load;
  load.set_duty(0.5);
  const auto start = Clock::now();
  load.rest(0.1, [] { return false; });
  EXPECT_GE(seconds_since(start), 0.1);
}

}  // namespace
}  // namespace egt
