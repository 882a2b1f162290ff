#include "egt/core/load_control.hpp"

#include <gtest/gtest.h>

#include <set>

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

TEST(LoadControl, ProductsMayRunAllTheTimeUnlessToldOtherwise) {
  LoadControl load;
  EXPECT_EQ(load.products_duty(), 1);
  load.set_products_duty(-0.1);
  EXPECT_EQ(load.products_duty(), 0);
  load.set_products_duty(1.1);
  EXPECT_EQ(load.products_duty(), 1);
}

TEST(LoadControl, ARestEndsAsSoonAsItIsOver) {
  LoadControl load;
  load.set_duty(LoadControl::min_duty);
  int asked = 0;
  load.rest(10, [&] { return ++asked >= 3; });
  EXPECT_EQ(asked, 3);
}

TEST(LoadControl, WithoutAnEndItRestsItsTime) {
  LoadControl load;
  load.set_duty(0.5);
  const auto start = Clock::now();
  load.rest(0.1, [] { return false; });
  EXPECT_GE(seconds_since(start), 0.1);
}

TEST(LoadControl, ProductsLeadInTheFirstTwoOfSevenEpochsAndSoInEveryPrecision) {
  constexpr std::int64_t epoch_steps = 10;
  for (std::int64_t step = 0; step < 200; ++step) {
    const bool first = step % 70 < 20;
    ASSERT_EQ(lead_of(step, epoch_steps) == LoadLead::products, first) << "step " << step;
  }
  for (std::int64_t precisions = 1; precisions <= 6; ++precisions) {
    std::set<std::int64_t> met;
    for (std::int64_t epoch = 0; epoch < 7 * precisions; ++epoch)
      if (lead_of(epoch * epoch_steps, epoch_steps) == LoadLead::products) met.insert(epoch % precisions);
    EXPECT_EQ(met.size(), static_cast<std::size_t>(precisions)) << precisions << " precisions";
  }
}

}  // namespace
}  // namespace egt
