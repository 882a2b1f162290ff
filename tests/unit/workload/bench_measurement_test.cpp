#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "workload/bench/bench_measurement.hpp"

namespace egt {
namespace {

using ::testing::Gt;
using ::testing::IsNan;
using ::testing::SizeIs;

constexpr double step_ms = 10;

/// Takes no time and reports `step_ms` per iteration.
class QuickJob final : public BenchJob {
 public:
  Result<Answers> answers() override { return Answers(); }
  Result<BurstTimes> burst(int chunks, std::int64_t per_chunk) override {
    ++bursts;
    const double chunk_ms = step_ms * static_cast<double>(per_chunk);
    BurstTimes times{.chunk_ms = std::vector<double>(static_cast<std::size_t>(chunks), chunk_ms),
                     .busy_ms = chunk_ms * chunks};
    // One of 10 steps is slower by this amount.
    for (int i = 0; i < 10; ++i) times.step_ms.push_back(i == 0 ? 11 : 10);
    return times;
  }
  Result<JobReport> check() override {
    JobReport report;
    report.figures.sums[0] = {4096, 2};
    report.figures.sums[1] = {64, 1};
    return report;
  }
  Status give_up(double) override { return {}; }

  int bursts = 0;
};

/// One rank with a sensor whose readings change each time.
struct Alone {
  BenchTrialMaker::Context context() {
    return {.meet = [](std::span<const double> own, const char*) -> Result<Meeting> {
              Meeting met;
              met.figures.emplace_back(own.begin(), own.end());
              return met;
            },
            .reading =
                [this] {
                  ++looks;
                  return looks == silent_look ? SensorReading() : reading();
                },
            .memory_bytes = [] { return std::optional(1e9); }};
  }
  SensorReading reading() const {
    SensorReading now;
    now.power_w = 100.0 * looks;
    now.sm_clock_mhz = 2000.0 - looks;
    return now;
  }

  int looks = 0;
  int silent_look = 0;
};

TEST(BenchTrials, FiguresOfTheDeviceAreMeansOfTheMeasurement) {
  Alone world;
  const auto context = world.context();
  QuickJob job;
  const auto measured = BenchTrialMaker(context, 1).make(&job);
  ASSERT_TRUE(measured.ok()) << measured.status().what();
  EXPECT_DOUBLE_EQ(measured.value().step.p50, step_ms);
  ASSERT_THAT(measured.value().ranks, SizeIs(1));
  const RankFigures& device = measured.value().ranks.front();
  ASSERT_THAT(world.looks, Gt(3)) << "a look a burst";
  EXPECT_LT(world.looks, job.bursts) << "none in the warm-up";
  EXPECT_NEAR(device.power_w, 50.0 * (world.looks + 1), 1e-9);
  EXPECT_NEAR(device.sm_clock_mhz, 2000 - 0.5 * (world.looks + 1), 1e-9);
  EXPECT_THAT(device.gpu_utilization_percent, IsNan()) << "the sensor does not tell it";
  EXPECT_EQ(device.memory_bytes, 1e9);
  EXPECT_NEAR(device.busy_ms, step_ms, 1e-9);
  EXPECT_NEAR(device.sigma_ms, 1 / 1.6449, 1e-4) << "of steps, not of chunks, which are all alike";
  EXPECT_EQ(device.sums[0].bytes, 4096);
  EXPECT_EQ(device.sums[1].ms, 1);
  EXPECT_THAT(device.sums[2].ms, IsNan()) << "there were two";
}

TEST(BenchTrials, ALookThatTellsNothingIsNoZero) {
  Alone world;
  world.silent_look = 2;
  const auto context = world.context();
  QuickJob job;
  const auto measured = BenchTrialMaker(context, 1).make(&job);
  ASSERT_TRUE(measured.ok()) << measured.status().what();
  const double looks = world.looks, sum = 50.0 * looks * (looks + 1) - 200;
  EXPECT_NEAR(measured.value().ranks.front().power_w, sum / (looks - 1), 1e-9);
}

TEST(BenchTrials, WhoTakesNoPartHasNoFigures) {
  Alone world;
  const auto context = world.context();
  const auto measured = BenchTrialMaker(context, 1).make(nullptr);
  ASSERT_TRUE(measured.ok()) << measured.status().what();
  EXPECT_EQ(world.looks, 0);
  EXPECT_THAT(measured.value().ranks.front().power_w, IsNan());
  EXPECT_THAT(measured.value().ranks.front().busy_ms, IsNan());
  EXPECT_THAT(measured.value().ranks.front().sigma_ms, IsNan());
}

}  // namespace
}  // namespace egt
