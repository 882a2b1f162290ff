#include "session/injection/injecting_sensor.hpp"

#include <gtest/gtest.h>

#include "egt/core/record_queue.hpp"

namespace egt {
namespace {

/// 60 C, 10 of 100 GB in use, 7 uncorrectable errors; can be lost.
class CalmSensor final : public Sensor {
 public:
  SensorLimits limits() override {
    SensorLimits limits;
    limits.power_limit_w = 700;
    return limits;
  }
  Result<SensorReading> read() override {
    if (lost) return Status(StatusCode::aborted, "lost");
    SensorReading reading;
    reading.temperature_c = 60;
    reading.power_w = 500;
    reading.memory_used_bytes = 10'000'000'000;
    reading.memory_total_bytes = 100'000'000'000;
    return reading;
  }
  Result<SensorCounters> counters() override {
    if (lost) return Status(StatusCode::aborted, "lost");
    SensorCounters counters;
    counters.ecc_uncorrected = 7;
    return counters;
  }
  bool lost = false;
};

/// A sensor with injected faults; the test sets time and step.
struct World {
  explicit World(std::vector<std::string> texts,
                 std::shared_ptr<Sensor> real = std::make_shared<CalmSensor>())
      : injector(parsed(texts), place, records),
        sensor(
            std::move(real), injector,
            {.temperature_limit_c = 85, .step = [this] { return step; }, .seconds = [this] { return now; }}) {
  }

  static std::vector<Injection> parsed(const std::vector<std::string>& texts) {
    std::vector<Injection> all;
    for (const std::string& text : texts) all.push_back(parse_injection(text).value());
    return all;
  }
  SensorReading read() { return sensor.read().value(); }
  std::vector<Json> reported() {
    std::vector<Json> bodies;
    for (const Record& record : records.drain())
      if (record.kind == RecordKind::injection) bodies.push_back(record.body);
    return bodies;
  }

  std::int64_t step = 0;
  double now = 100;
  RankPlace place{.rank = 1, .size = 2, .local_rank = 1, .local_size = 2, .hostname = "node7"};
  RecordQueue records{1};
  Injector injector;
  InjectingSensor sensor;
};

TEST(InjectingSensor, TemperatureRisesTo92ForItsTime) {
  World world({"temperature:rank=1,step=5,ms=6000"});
  EXPECT_EQ(world.read().temperature_c, 60.0);
  EXPECT_TRUE(world.reported().empty());
  world.step = 6;
  EXPECT_EQ(world.read().temperature_c, 86.0);
  world.now += 2;
  EXPECT_EQ(world.read().temperature_c, 89.0);
  world.now += 3;
  EXPECT_EQ(world.read().temperature_c, 92.0);
  EXPECT_EQ(world.read().power_w, 500.0) << "the others are the real ones";
  world.now += 1;
  EXPECT_EQ(world.read().temperature_c, 60.0) << "over";
  const auto reported = world.reported();
  ASSERT_EQ(reported.size(), 1u);
  EXPECT_EQ(reported[0]["kind"], "temperature");
  EXPECT_EQ(reported[0]["struck_step"], 6);
}

TEST(InjectingSensor, TemperatureLastsTenSecondsUnasked) {
  World world({"temperature:rank=1,step=0"});
  EXPECT_EQ(world.read().temperature_c, 86.0);
  world.now += 9.9;
  EXPECT_EQ(world.read().temperature_c, 92.0);
  world.now += 0.1;
  EXPECT_EQ(world.read().temperature_c, 60.0);
}

TEST(InjectingSensor, TemperatureForSoManyReadings) {
  World world({"temperature:rank=1,step=0,count=3"});
  for (int i = 0; i < 3; ++i) EXPECT_GT(world.read().temperature_c, 85.0);
  EXPECT_EQ(world.read().temperature_c, 60.0);
}

TEST(InjectingSensor, AnotherRanksFaultIsNotPutIn) {
  World world({"temperature:rank=0,step=0", "memory-pressure:rank=0,step=0"});
  EXPECT_EQ(world.read().temperature_c, 60.0);
  EXPECT_EQ(world.read().memory_used_bytes, 10'000'000'000u);
  EXPECT_TRUE(world.reported().empty());
}

TEST(InjectingSensor, MemoryPressureShows97PercentInUse) {
  World world({"memory-pressure:rank=1,step=2"});
  EXPECT_EQ(world.read().memory_used_bytes, 10'000'000'000u);
  world.step = 2;
  EXPECT_EQ(world.read().memory_used_bytes, 97'000'000'000u);
  world.now += 10;
  EXPECT_EQ(world.read().memory_used_bytes, 10'000'000'000u);
  EXPECT_EQ(world.reported().size(), 1u);
}

TEST(InjectingSensor, AnUncorrectableErrorAndAnXidStay) {
  World world({"ecc:rank=1,step=3", "xid:rank=1,step=4"});
  SensorCounters counters = world.sensor.counters().value();
  EXPECT_EQ(counters.ecc_uncorrected, 7u);
  EXPECT_TRUE(counters.xids_told);
  EXPECT_TRUE(counters.xids.empty());
  world.step = 4;
  for (int i = 0; i < 2; ++i) {
    counters = world.sensor.counters().value();
    EXPECT_EQ(counters.ecc_uncorrected, 8u);
    ASSERT_EQ(counters.xids.size(), 1u);
    EXPECT_EQ(counters.xids.front().xid, 48u);
  }
  EXPECT_EQ(world.reported().size(), 2u);
}

TEST(InjectingSensor, CorrectedErrorsGrowWithEachReading) {
  World world({"ecc-corrected:rank=1,step=3,count=50"});
  const auto before = world.sensor.counters().value().ecc_corrected.value_or(0);
  world.step = 3;
  for (std::uint64_t reading = 1; reading <= 3; ++reading)
    EXPECT_EQ(world.sensor.counters().value().ecc_corrected, before + 50 * reading);
}

TEST(InjectingSensor, WithoutARealSensorItHasFiguresOfItsOwn) {
  World world({"temperature:rank=1,step=1", "memory-pressure:rank=1,step=1", "ecc:rank=1,step=1"}, nullptr);
  EXPECT_FALSE(world.read().temperature_c.has_value());
  EXPECT_EQ(world.sensor.counters().value().ecc_uncorrected, 0u)
      << "a count from the start, so that it can rise";
  world.step = 1;
  const SensorReading reading = world.read();
  EXPECT_EQ(reading.temperature_c, 86.0);
  EXPECT_NEAR(static_cast<double>(reading.memory_used_bytes.value()) /
                  static_cast<double>(reading.memory_total_bytes.value()),
              0.97, 1e-6);
  EXPECT_EQ(world.sensor.counters().value().ecc_uncorrected, 1u);
}

TEST(InjectingSensor, WhatIsNotPlannedIsNotMadeUp) {
  World world({"temperature:rank=1,step=1"}, nullptr);
  EXPECT_FALSE(world.sensor.counters().value().ecc_uncorrected.has_value());
  EXPECT_FALSE(world.sensor.counters().value().xids_told);
}

TEST(InjectingSensor, ALostDeviceStaysLost) {
  auto real = std::make_shared<CalmSensor>();
  World world({"temperature:rank=1,step=0", "ecc:rank=1,step=0"}, real);
  real->lost = true;
  EXPECT_EQ(world.sensor.read().status().code(), StatusCode::aborted);
  EXPECT_EQ(world.sensor.counters().status().code(), StatusCode::aborted);
}

}  // namespace
}  // namespace egt
