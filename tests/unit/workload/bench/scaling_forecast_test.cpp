#include "workload/bench/scaling_forecast.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace egt {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

const std::vector<std::int64_t> layers = {32, 64, 64, 16};

BenchEntry entry(BenchMode mode, int first, int devices, double step_ms) {
  BenchEntry made;
  made.trial.size = 64;
  made.trial.mode = mode;
  made.trial.name = "mlp batch 64";
  for (int rank = first; rank < first + devices; ++rank) made.trial.ranks.push_back(rank);
  made.shares.assign(static_cast<std::size_t>(devices), mode == BenchMode::strong ? 64 / devices : 64);
  made.step = ScalingTimes{.min = step_ms, .p50 = step_ms, .p95 = step_ms, .max = step_ms};
  made.compute_ms = step_ms;
  if (devices > 1) made.sums = {{32768, 0.5}, {512, 0.1}, {8, 0.09}};
  return made;
}

/// Of 4 ranks, of which rank 1 is the slower one of the first two.
std::vector<BenchEntry> four_ranks() {
  std::vector<BenchEntry> entries = {
      entry(BenchMode::single, 0, 1, 2),     entry(BenchMode::single, 1, 1, 2.5),
      entry(BenchMode::single, 2, 1, 9),     entry(BenchMode::single, 3, 1, 9),
      entry(BenchMode::collective, 0, 2, 3), entry(BenchMode::collective, 0, 4, 4),
      entry(BenchMode::strong, 0, 2, 2),     entry(BenchMode::strong, 0, 4, 1.5)};
  return entries;
}

std::vector<int> devices_of(const Json& rows, const std::string& mode) {
  std::vector<int> devices;
  for (const Json& row : rows)
    if (row.at("mode") == mode) devices.push_back(row.at("devices").get<int>());
  return devices;
}

TEST(ScalingForecast, GoesFromWhatWasMeasuredTo4096) {
  std::vector<BenchEntry> entries = four_ranks();
  const auto reports = forecast(entries, layers);
  ASSERT_THAT(reports, SizeIs(1));
  EXPECT_EQ(reports[0].name, "mlp batch 64 forecast");
  EXPECT_TRUE(reports[0].of_all_ranks);
  const Json& figures = reports[0].figures;
  EXPECT_TRUE(figures.at("forecast").get<bool>());
  EXPECT_TRUE(figures.at("no_forecast").is_null());
  EXPECT_EQ(figures.at("model").at("slowest_alone_ms"), 2.5) << "of ranks 0 and 1, the only ones that it saw";
  const Json& rows = figures.at("rows");
  EXPECT_THAT(devices_of(rows, "collective"), ElementsAre(8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096));
  EXPECT_THAT(devices_of(rows, "strong"), ElementsAre(8, 16, 32, 64)) << "a sample each";
  for (const Json& row : rows) {
    EXPECT_TRUE(row.at("forecast").get<bool>());
    const double n = row.at("devices"), step = row.at("step_ms").at("p50");
    const double batches = row.at("mode") == "strong" ? 1 : n;
    EXPECT_NEAR(row.at("items_per_second").get<double>(), batches * 64e3 / step, 1e-6);
    EXPECT_NEAR(row.at("efficiency_slowest").get<double>(), batches * 2.5 / (n * step), 1e-9);
  }
}

TEST(ScalingForecast, IsHeldAgainstWhatItHasNotSeen) {
  std::vector<BenchEntry> entries = four_ranks();
  const Json figures = forecast(entries, layers)[0].figures;
  EXPECT_EQ(entries[4].forecast_step_ms, std::nullopt) << "2 devices with a batch each are what it saw";
  for (const std::size_t unseen : {5, 6, 7}) {
    ASSERT_TRUE(entries[unseen].forecast_step_ms) << unseen;
    EXPECT_NEAR(*entries[unseen].forecast_error_percent(),
                100 * (*entries[unseen].forecast_step_ms / entries[unseen].step->p50 - 1), 1e-9);
  }
  const double worst = std::max({std::abs(*entries[5].forecast_error_percent()),
                                 std::abs(*entries[6].forecast_error_percent()),
                                 std::abs(*entries[7].forecast_error_percent())});
  EXPECT_THAT(std::abs(figures.at("forecast_error_percent").get<double>()), DoubleNear(worst, 1e-9));
  // What it has not seen does not change it.
  std::vector<BenchEntry> others = four_ranks();
  others[5].step->p50 = 40;
  others[7].step->p50 = 40;
  const Json again = forecast(others, layers)[0].figures;
  EXPECT_EQ(again.at("rows"), figures.at("rows"));
  EXPECT_NE(again.at("forecast_error_percent"), figures.at("forecast_error_percent"));
}

TEST(ScalingForecast, OfTwoRanksBeginsAtFour) {
  std::vector<BenchEntry> entries = four_ranks();
  std::erase_if(entries, [](const BenchEntry& one) { return one.trial.ranks.back() > 1; });
  const Json rows = forecast(entries, layers)[0].figures.at("rows");
  EXPECT_EQ(devices_of(rows, "collective").front(), 4);
  EXPECT_EQ(devices_of(rows, "strong").front(), 4);
  std::erase_if(entries, [](const BenchEntry& one) { return one.trial.mode == BenchMode::strong; });
  EXPECT_THAT(devices_of(forecast(entries, layers)[0].figures.at("rows"), "strong"), IsEmpty());
}

TEST(ScalingForecast, SaysWhyThereIsNone) {
  const auto why = [](auto&& left_out) {
    std::vector<BenchEntry> entries = four_ranks();
    std::erase_if(entries, left_out);
    const Json figures = forecast(entries, layers)[0].figures;
    EXPECT_TRUE(figures.at("model").is_null());
    EXPECT_THAT(figures.at("rows"), IsEmpty());
    for (const BenchEntry& one : entries) EXPECT_EQ(one.forecast_step_ms, std::nullopt);
    return figures.at("no_forecast").get<std::string>();
  };
  EXPECT_THAT(why([](const BenchEntry& one) { return one.trial.ranks.back() > 0; }),
              HasSubstr("a second rank alone was not measured; it wants 2 ranks or more"));
  EXPECT_THAT(why([](const BenchEntry& one) { return one.trial.mode == BenchMode::collective; }),
              HasSubstr("2 devices in the mode collective were not measured"));
  std::vector<BenchEntry> entries = four_ranks();
  entries[4].failure = "rank 1 found wrong results";
  EXPECT_THAT(forecast(entries, layers)[0].figures.at("no_forecast").get<std::string>(),
              HasSubstr("collective"));
}

TEST(ScalingForecast, IsOfTrainingOnly) {
  std::vector<BenchEntry> entries = four_ranks();
  for (BenchEntry& one : entries) one.trial.workload = BenchWorkload::voxelize;
  EXPECT_THAT(forecast(entries, layers), IsEmpty());
}

TEST(ScalingForecast, SumsHideBehindWhatFollowsTheFirst) {
  // Gradients come in the order of layers 2, 0, 1: three buckets, and what is told of the step.
  EXPECT_EQ(sums_per_step(layers), 4);
  // Half the operations, by layer: outputs 2048 + 4096 + 1024, weight gradients likewise, input gradients
  // 4096 + 1024. Before the first sum: all outputs, and of layer 2 the input and the weight gradient.
  EXPECT_NEAR(overlap_share(layers), 1 - (7168 + 2 * 1024) / (2 * 7168 + 5120.0), 1e-12);
  EXPECT_EQ(overlap_share({32, 64}), 0) << "one layer has nothing behind it";
}

}  // namespace
}  // namespace egt
