#include "egt/core/histogram.hpp"

#include <gtest/gtest.h>

#include <initializer_list>

namespace egt {
namespace {

TEST(Histogram, IsZeroWhenEmpty) {
  const Histogram histogram;
  EXPECT_EQ(histogram.count(), 0u);
  EXPECT_EQ(histogram.quantile(0.5), 0.0);
  EXPECT_EQ(histogram.mean(), 0.0);
  EXPECT_EQ(histogram.max(), 0.0);
}

TEST(Histogram, QuantilesAreRightWithinOnePercent) {
  Histogram histogram;
  for (int i = 1000; i >= 1; --i) histogram.add(i);
  for (const double q : {0.01, 0.1, 0.5, 0.95, 0.99})
    EXPECT_NEAR(histogram.quantile(q), 1000 * q, 10 * q + 1);
  EXPECT_EQ(histogram.count(), 1000u);
  EXPECT_EQ(histogram.max(), 1000.0);
  EXPECT_DOUBLE_EQ(histogram.mean(), 500.5);
}

TEST(Histogram, NoQuantileIsAboveTheMaximum) {
  Histogram histogram;
  histogram.add(7.0);
  EXPECT_LE(histogram.quantile(1.0), 7.0);
  EXPECT_NEAR(histogram.quantile(0.5), 7.0, 0.07);
}

TEST(Histogram, KeepsWhatLiesOutsideItsRange) {
  Histogram histogram;
  for (const double value : {0.0, 1e-9, 1e12}) histogram.add(value);
  EXPECT_EQ(histogram.count(), 3u);
  EXPECT_EQ(histogram.max(), 1e12);
  EXPECT_LT(histogram.quantile(0.5), 0.0011);
}

}  // namespace
}  // namespace egt
