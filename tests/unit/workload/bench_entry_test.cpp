#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "workload/bench/scaling_entry.hpp"

namespace egt {
namespace {

using ::testing::DoubleEq;
using ::testing::DoubleNear;
using ::testing::HasSubstr;
using ::testing::Optional;

BenchEntry entry(BenchMode mode, std::vector<int> ranks, double step_ms) {
  BenchEntry made;
  made.trial.workload = BenchWorkload::voxelize;
  made.trial.size = 1000;
  made.trial.mode = mode;
  made.trial.name = "voxelize 1000 points";
  made.shares.assign(ranks.size(), 1000);
  made.trial.ranks = std::move(ranks);
  made.own_ms = step_ms;
  made.step = ScalingTimes{.min = step_ms * 0.9, .p50 = step_ms, .p95 = step_ms * 1.1, .max = step_ms * 1.1};
  return made;
}

TEST(BenchEntries, SpeedUpIsAgainstTheMeanOfItsDevicesAlone) {
  std::vector<BenchEntry> singles;
  singles.push_back(entry(BenchMode::single, {0}, 2));
  BenchEntry both = entry(BenchMode::p2p, {0, 1}, 4);
  complete(both, singles);
  EXPECT_EQ(both.speedup, std::nullopt) << "one of them was not measured alone";
  singles.push_back(entry(BenchMode::single, {1}, 4));
  complete(both, singles);
  EXPECT_THAT(both.items_per_second(), Optional(DoubleEq(500'000)));
  EXPECT_THAT(both.speedup, Optional(DoubleNear(500'000 / 375'000.0, 1e-9)));
  EXPECT_THAT(both.efficiency(), Optional(DoubleNear(500'000 / 750'000.0, 1e-9)));
  EXPECT_THAT(both.exposed_communication_ms, Optional(DoubleEq(1)));
  EXPECT_THAT(both.efficiency_slowest, Optional(DoubleNear(1, 1e-9))) << "as fast as twice the slower one";
  BenchEntry faster = entry(BenchMode::collective, {0, 1}, 2.5);
  complete(faster, singles);
  EXPECT_THAT(faster.exposed_communication_ms, Optional(DoubleEq(0))) << "never below 0";
}

TEST(BenchEntries, ASharedBatchIsOneBatch) {
  const std::vector<BenchEntry> singles = {entry(BenchMode::single, {0}, 2),
                                           entry(BenchMode::single, {1}, 4)};
  BenchEntry both = entry(BenchMode::strong, {0, 1}, 2.5);
  both.shares = {500, 500};
  complete(both, singles);
  EXPECT_THAT(both.efficiency_slowest, Optional(DoubleNear(4 / 2.5 / 2, 1e-9)));
  EXPECT_EQ(both.exposed_communication_ms, std::nullopt) << "half a batch alone was not measured";
  EXPECT_DOUBLE_EQ(report_of(both).figures.at("ms_per_batch").get<double>(), 2.5);
}

TEST(BenchEntries, CompressedGradientsAreHeldAgainstWholeOnesOfTheSameRanks) {
  std::vector<BenchEntry> entries;
  for (const int devices : {2, 3}) {
    entries.push_back(entry(BenchMode::collective, first_ranks(devices), devices));
    entries.back().loss = 0.1 * devices;
    entries.back().sent_bytes = 1000;
  }
  BenchEntry compressed = entry(BenchMode::compressed, {0, 1, 2}, 2);
  compressed.loss = 0.36;
  EXPECT_EQ(compressed.loss_excess_percent(), std::nullopt);
  complete(compressed, entries);
  EXPECT_THAT(compressed.whole_step_ms, Optional(DoubleEq(3)));
  EXPECT_THAT(compressed.whole_sent_bytes, Optional(DoubleEq(1000)));
  EXPECT_THAT(compressed.loss_excess_percent(), Optional(DoubleNear(20, 1e-9)));
  BenchEntry whole = entry(BenchMode::collective, {0, 1, 2}, 2);
  whole.loss = 1;
  complete(whole, entries);
  EXPECT_EQ(whole.loss_excess_percent(), std::nullopt);
}

BenchEntry divided(const ParallelPlan& plan, double step_ms) {
  BenchEntry made = entry(plan.pipeline > 1 ? BenchMode::pipeline : BenchMode::tensor, {0, 1}, step_ms);
  made.trial.plan = plan;
  made.trial.micro_batches = 8;
  made.exposed_communication_ms = 0.1 * step_ms;
  if (plan.pipeline > 1) made.bubble_share = 0.2;
  return made;
}

TEST(BenchEntries, RecommendTheFastestModeAndSayWhy) {
  std::vector<BenchEntry> entries = {entry(BenchMode::single, {0}, 1), entry(BenchMode::strong, {0, 1}, 0.1),
                                     entry(BenchMode::collective, {0, 1}, 5), divided({.tensor = 2}, 2),
                                     divided({.pipeline = 2}, 4)};
  recommend(entries);
  EXPECT_EQ(entries[3].recommendation,
            "voxelize 1000 points: use tensor on these 2 devices: 1 M points/s, 10.0 % of its step exposed "
            "communication, 2.00 times the next, pipeline: 500 k points/s, 10.0 % of its step exposed "
            "communication, 20.0 % its bubble");
  for (const std::size_t other : {0, 1, 2, 4}) EXPECT_EQ(entries[other].recommendation, "");
  entries.resize(4);
  entries[3].recommendation.clear();
  entries[2].step.reset();
  entries[2].not_possible = "it does not fit";
  recommend(entries);
  EXPECT_THAT(entries[3].recommendation, HasSubstr("; collective is not possible: it does not fit"));
  std::vector<BenchEntry> data = {entry(BenchMode::single, {0}, 1), entry(BenchMode::collective, {0, 1}, 5)};
  recommend(data);
  EXPECT_EQ(data[1].recommendation, "") << "nothing was divided but the batch";
}

TEST(BenchEntries, TellHowANetworkIsDivided) {
  BenchEntry made = divided({.pipeline = 2}, 4);
  made.stages = {{0, 3}, {3, 4}};
  const Json figures = report_of(made).figures;
  EXPECT_EQ(figures.at("mode"), "pipeline");
  EXPECT_EQ(figures.at("parallel"), Json({{"data", 1}, {"tensor", 1}, {"pipeline", 2}}));
  EXPECT_EQ(figures.at("stages"), Json({{1, 3}, {4, 4}}));
  EXPECT_DOUBLE_EQ(figures.at("bubble_share_formula").get<double>(), 1.0 / 9);
  EXPECT_DOUBLE_EQ(figures.at("exposed_communication_share").get<double>(), 0.1);
  EXPECT_TRUE(report_of(entry(BenchMode::p2p, {0, 1}, 1)).figures.at("bubble_share_formula").is_null());
}

TEST(BenchEntries, WhatWasNotMeasuredIsNull) {
  BenchEntry none = entry(BenchMode::p2p, {0, 1, 2}, 1);
  none.step.reset();
  none.not_possible = "ranks 0 and 2 are on different hosts";
  complete(none, {});
  const PartReport report = report_of(none);
  EXPECT_TRUE(report.success);
  for (const char* name : {"step_ms", "ms_per_batch", "items_per_second", "speedup", "efficiency",
                           "exposed_communication_ms", "memory_bytes", "power_w", "tflops"})
    EXPECT_TRUE(report.figures.at(name).is_null()) << name;
  EXPECT_EQ(report.figures.at("not_possible"), "ranks 0 and 2 are on different hosts");
  EXPECT_THAT(line_of(none), HasSubstr("3 devices, p2p: not possible: ranks 0 and 2"));
}

TEST(BenchEntries, AreTheContracts) {
  BenchEntry both = entry(BenchMode::p2p, {0, 1}, 4);
  complete(both, {});
  const PartReport report = report_of(both);
  EXPECT_TRUE(report.of_all_ranks);
  EXPECT_EQ(report.name, "voxelize 1000 points");
  const Json& figures = report.figures;
  EXPECT_EQ(figures.at("workload"), "voxelize");
  EXPECT_EQ(figures.at("mode"), "p2p");
  EXPECT_EQ(figures.at("devices"), 2);
  EXPECT_EQ(figures.at("ranks"), Json({0, 1}));
  EXPECT_EQ(figures.at("items"), "points");
  EXPECT_DOUBLE_EQ(figures.at("ms_per_batch").get<double>(), 2);
  EXPECT_DOUBLE_EQ(figures.at("step_ms").at("p50").get<double>(), 4);
  EXPECT_NEAR(figures.at("spread_percent").get<double>(), 20, 1e-9);
}

TEST(BenchEntries, AFailureIsTold) {
  BenchEntry failed = entry(BenchMode::single, {1}, 1);
  failed.step.reset();
  failed.failure = "rank 1: out_of_memory";
  EXPECT_FALSE(report_of(failed).success);
  EXPECT_THAT(line_of(failed), HasSubstr("rank 1 alone: failed: rank 1: out_of_memory"));
}

TEST(BenchEntries, ASlowDeviceIsSeenAmongItsLike) {
  std::vector<BenchEntry> singles;
  for (const char* test : {"a", "b"})
    for (int rank = 0; rank < 4; ++rank) {
      BenchEntry one = entry(BenchMode::single, {rank}, rank == 2 ? 2 : 1);
      one.trial.name = test;
      singles.push_back(one);
    }
  const std::vector<int> alike(4, 0);
  EXPECT_THAT(slowness(singles, 2, alike, 2), Optional(DoubleNear(2, 1e-9)));
  EXPECT_THAT(slowness(singles, 0, alike, 2), Optional(DoubleNear(1, 1e-9)));
  EXPECT_EQ(slowness(singles, 2, alike, 3), std::nullopt) << "there are two tests";
  EXPECT_EQ(slowness(singles, 2, {0, 0, 1, 0}, 1), std::nullopt) << "of another model";
  BenchEntry fast = entry(BenchMode::single, {2}, 1.2);
  fast.trial.name = "c";
  singles.push_back(fast);
  for (const int rank : {0, 1}) {
    BenchEntry other = entry(BenchMode::single, {rank}, 1);
    other.trial.name = "c";
    singles.push_back(other);
  }
  EXPECT_THAT(slowness(singles, 2, alike, 2), Optional(DoubleNear(1.2, 1e-9))) << "it must be slow in all";
}

}  // namespace
}  // namespace egt
