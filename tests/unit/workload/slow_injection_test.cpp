#include <cmath>
#include <memory>
#include <numeric>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/workload_fixture.hpp"
#include "workload/train/slow_injection.hpp"

namespace egt::test {
namespace {

constexpr double timeout_s = 60;

MlpConfig network() {
  MlpConfig config;
  config.neurons = {64, 256, 128, 32};
  config.batch = {.global = 64, .first = 0, .local = 64};
  config.precisions = {Precision::fp32};
  config.extreme_iterations = 20;
  config.learning_rate = default_learning_rate(config.neurons, config.optimizer, config.batch.global);
  config.seed = 5;
  return config;
}

struct Steps {
  std::vector<double> losses, extra_ms, compute_ms;
};

/// Training with these injected faults and two steps in flight, as in a real run.
Steps run(World& world, int steps) {
  std::unique_ptr<SlowInjection> slow;
  auto made = MlpTrainer::create(*world.device, world.communicator, network());
  EXPECT_TRUE(made.ok()) << made.status().what();
  slow = std::make_unique<SlowInjection>(world.environment, *made.value());
  MlpTrainer& trainer = *made.value();
  Steps all;
  for (std::int64_t s = 0; s < steps + MlpTrainer::depth; ++s) {
    if (s < steps) {
      EXPECT_TRUE(slow->before_step(s).ok());
      EXPECT_TRUE(trainer.enqueue_step(s, {}, false).ok());
    }
    if (s < MlpTrainer::depth) continue;
    const auto result = trainer.retire_step(s - MlpTrainer::depth, timeout_s);
    EXPECT_TRUE(result.ok()) << result.status().what();
    EXPECT_TRUE(slow->learn(s - MlpTrainer::depth, result.value()).ok());
    all.losses.push_back(result.value().loss);
    all.compute_ms.push_back(*result.value().compute_ms);
    all.extra_ms.push_back(slow->extra_ms());
  }
  made.value().reset();  // the trainer is destroyed first
  return all;
}

double sum_of_last(const std::vector<double>& values, int count) {
  return std::accumulate(values.end() - count, values.end(), 0.0);
}

std::vector<Json> injections_of(World& world) {
  std::vector<Json> reported;
  for (const Record& record : world.records.drain())
    if (record.kind == RecordKind::injection) reported.push_back(record.body);
  return reported;
}

/// Relative increase of the pass time over the last steps.
double share_added(const Steps& steps) {
  const double extra = sum_of_last(steps.extra_ms, 40);
  return extra / (sum_of_last(steps.compute_ms, 40) - extra);
}

TEST(SlowInjection, AddsFivePercentToEveryStepAndTellsOnce) {
  World world(small_host_device(), {parse_injection("slow:rank=3,step=20").value()});
  const Steps steps = run(world, 80);
  for (std::size_t s = 0; s < 20; ++s) EXPECT_EQ(steps.extra_ms[s], 0) << s;
  EXPECT_NEAR(share_added(steps), 0.05, 0.01);
  const std::vector<Json> reported = injections_of(world);
  ASSERT_EQ(reported.size(), 1u);
  EXPECT_EQ(reported[0]["kind"], "slow");
  EXPECT_EQ(reported[0]["struck_step"], 20);
  EXPECT_THAT(reported[0]["where"].get<std::string>(), testing::StartsWith("every step from 20 on, +"));
}

TEST(SlowInjection, AddsThePercentThatIsAskedFor) {
  World world(small_host_device(), {parse_injection("slow:rank=3,step=5,count=20").value()});
  EXPECT_NEAR(share_added(run(world, 80)), 0.2, 0.03);
}

TEST(SlowInjection, AddsTheMillisecondsThatAreAskedFor) {
  World world(small_host_device(), {parse_injection("slow:rank=3,step=10,ms=3").value()});
  EXPECT_NEAR(sum_of_last(run(world, 80).extra_ms, 40) / 40, 3, 0.4);
}

TEST(SlowInjection, LeavesTheTrainingAsItIs) {
  World slowed(small_host_device(), {parse_injection("slow:rank=3,step=3").value()}), plain;
  EXPECT_EQ(run(slowed, 20).losses, run(plain, 20).losses);
}

TEST(SlowInjection, StrikesItsOwnRankOnly) {
  World world(small_host_device(), {parse_injection("slow:rank=2,step=3").value()});
  EXPECT_EQ(sum_of_last(run(world, 20).extra_ms, 20), 0);
  EXPECT_TRUE(injections_of(world).empty());
}

}  // namespace
}  // namespace egt::test
