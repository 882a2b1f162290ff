#include "session/health/guard.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/guard_fixture.hpp"

namespace egt::test {
namespace {

using ::testing::HasSubstr;

SensorReading degrees(double c) {
  SensorReading reading;
  reading.temperature_c = c;
  return reading;
}

// Temperature in a closed loop

/// First-order model: tends to `ambient_c` plus `rise_c` at full duty cycle, with a time constant.
struct Plant {
  double ambient_c = 30;
  double rise_c = 62;
  double time_constant_s = 30;
  double c = 30;

  void go_on(double duty, double seconds) {
    const double end = ambient_c + rise_c * duty;
    c += (end - c) * (1 - std::exp(-seconds / time_constant_s));
  }
};

struct LoopEnd {
  double hottest_c = 0;
  double hottest_late_c = 0;  ///< in the last third
  double coolest_late_c = 1000;
  double duty_late_min = 1, duty_late_max = 0;
};

/// `show`: the sensor's reading of the temperature.
LoopEnd run_loop(Watched& watched, Plant& plant, int seconds,
                 const std::function<std::optional<SensorReading>(int, double)>& show) {
  LoopEnd end;
  for (int s = 0; s < seconds; ++s) {
    watched.look(show(s, plant.c));
    for (int i = 0; i < 10; ++i) {
      plant.go_on(watched.last.duty, 0.1);
      end.hottest_c = std::max(end.hottest_c, plant.c);
    }
    if (3 * s < 2 * seconds) continue;
    end.hottest_late_c = std::max(end.hottest_late_c, plant.c);
    end.coolest_late_c = std::min(end.coolest_late_c, plant.c);
    end.duty_late_min = std::min(end.duty_late_min, watched.last.duty);
    end.duty_late_max = std::max(end.duty_late_max, watched.last.duty);
  }
  return end;
}

std::optional<SensorReading> whole_degrees(int, double c) {
  return degrees(std::round(c));
}

/// The example of the issue: 70 to 92 C and back. The ambient temperature rises, so that full load would mean
/// 92 C, and falls again.
TEST(GuardLoop, From70To92AndBack) {
  Watched watched;
  Plant plant{.ambient_c = 8, .rise_c = 62, .time_constant_s = 20, .c = 70};
  run_loop(watched, plant, 60, whole_degrees);
  EXPECT_EQ(watched.min_duty, 1) << "70 C is no reason";
  plant.ambient_c = 30;
  const LoopEnd hot = run_loop(watched, plant, 300, whole_degrees);
  EXPECT_LT(hot.hottest_c, slowdown_c);
  EXPECT_LE(hot.hottest_late_c, 85.0);
  EXPECT_LT(hot.duty_late_max, 0.95);
  ASSERT_EQ(watched.warnings.size(), 1u);
  EXPECT_THAT(watched.warnings[0], HasSubstr("limit is 85 C: the load is lowered"));
  plant.ambient_c = 8;
  run_loop(watched, plant, 120, whole_degrees);
  EXPECT_EQ(watched.last.duty, 1) << "restored";
  ASSERT_EQ(watched.notices.size(), 1u);
  EXPECT_THAT(watched.notices[0], HasSubstr("full load again"));
  watched.finish();
  EXPECT_EQ(watched.kinds(), std::vector<std::string>{"temperature"}) << "more than 5 % of the run";
  EXPECT_EQ(watched.warnings.size(), 1u);
}

TEST(GuardLoop, HoldsAnyPlantBelowItsSlowdown) {
  for (const double time_constant : {3.0, 5.0, 10.0, 30.0, 60.0, 120.0, 200.0})
    for (const double ambient : {15.0, 30.0, 45.0})
      for (const double full_load : {90.0, 100.0, 120.0}) {
        SCOPED_TRACE(testing::Message() << time_constant << " s, " << ambient << " C, " << full_load << " C");
        Watched watched;
        Plant plant{ambient, full_load - ambient, time_constant, ambient};
        const LoopEnd end = run_loop(watched, plant, 1200, whole_degrees);
        EXPECT_LT(end.hottest_c, slowdown_c);
        EXPECT_LE(end.hottest_late_c, 85.6);
        EXPECT_GE(end.coolest_late_c, 78) << "no more is given away than has to be";
        EXPECT_LT(end.duty_late_max - end.duty_late_min, 0.16) << "it does not swing";
        EXPECT_LE(watched.warnings.size(), 2u);
      }
}

TEST(GuardLoop, AFullLoadBelowTheLimitIsLeftAlone) {
  Watched watched;
  Plant plant{.ambient_c = 25, .rise_c = 58, .time_constant_s = 30, .c = 25};
  run_loop(watched, plant, 600, whole_degrees);
  EXPECT_EQ(watched.min_duty, 1);
  EXPECT_TRUE(watched.warnings.empty());
}

TEST(GuardLoop, HoldsWithANoisySensor) {
  std::mt19937 random(7);
  std::normal_distribution<double> noise(0, 1);
  for (const double time_constant : {5.0, 30.0, 120.0}) {
    SCOPED_TRACE(time_constant);
    Watched watched;
    Plant plant{30, 70, time_constant, 30};
    const LoopEnd end =
        run_loop(watched, plant, 900, [&](int, double c) { return degrees(c + noise(random)); });
    EXPECT_LT(end.hottest_c, slowdown_c);
    EXPECT_GE(end.coolest_late_c, 74);
    EXPECT_LE(watched.warnings.size(), 3u);
  }
}

TEST(GuardLoop, HoldsWithReadingsMissing) {
  std::mt19937 random(3);
  Watched watched;
  Plant plant{30, 70, 30, 30};
  const LoopEnd end = run_loop(watched, plant, 900, [&](int, double c) -> std::optional<SensorReading> {
    if (random() % 3 == 0) return std::nullopt;
    if (random() % 3 == 0) return SensorReading{};
    return degrees(c);
  });
  EXPECT_LT(end.hottest_c, slowdown_c);
  EXPECT_LE(end.hottest_late_c, 87);
}

TEST(GuardLoop, HoldsWithLooksFarApart) {
  Watched watched;
  Plant plant{30, 70, 60, 30};
  double hottest = 0;
  for (int look = 0; look < 300; ++look) {
    watched.look(degrees(plant.c));
    watched.now += 2;  // three seconds between samples
    for (int i = 0; i < 30; ++i) {
      plant.go_on(watched.last.duty, 0.1);
      hottest = std::max(hottest, plant.c);
    }
  }
  EXPECT_LT(hottest, slowdown_c);
}

TEST(GuardLoop, ASensorThatFailsWhileHotDoesNotRaiseTheLoad) {
  Watched watched;
  Plant plant{30, 80, 30, 30};
  run_loop(watched, plant, 300, whole_degrees);
  const double duty = watched.last.duty;
  EXPECT_LT(duty, 0.9);
  const LoopEnd blind =
      run_loop(watched, plant, 600, [](int, double) -> std::optional<SensorReading> { return std::nullopt; });
  EXPECT_EQ(watched.last.duty, duty);
  EXPECT_LT(blind.hottest_c, slowdown_c);
  ASSERT_EQ(watched.warnings.size(), 2u);
  EXPECT_THAT(watched.warnings[1], HasSubstr("does not tell its temperature any more: the load stays at"));
}

TEST(GuardLoop, TheSlowdownTemperatureIsRespectedWhateverIsAskedFor) {
  Watched watched({.temperature_limit_c = 110, .corrected_limit = {}});
  EXPECT_EQ(watched.guard.temperature_limit(), slowdown_c - 4);
  Plant plant{30, 90, 20, 30};
  EXPECT_LT(run_loop(watched, plant, 600, whole_degrees).hottest_c, slowdown_c);
}

TEST(GuardLoop, ALowerLimitIsHeldToo) {
  Watched watched({.temperature_limit_c = 60, .corrected_limit = {}});
  Plant plant{25, 60, 30, 25};
  const LoopEnd end = run_loop(watched, plant, 900, whole_degrees);
  EXPECT_LE(end.hottest_late_c, 60.6);
  EXPECT_LT(end.hottest_c, 63);
}

TEST(GuardLoop, TheMemorysTemperatureIsHeldToo) {
  Watched watched;
  Plant plant{30, 80, 30, 30};
  const LoopEnd end = run_loop(watched, plant, 900, [](int, double c) {
    SensorReading reading = degrees(60);
    reading.memory_temperature_c = c;
    return reading;
  });
  EXPECT_LE(end.hottest_late_c, 95.6);
  ASSERT_FALSE(watched.warnings.empty());
  EXPECT_THAT(watched.warnings[0], HasSubstr("memory temperature of 95 C, the limit is 95 C"));
}

// Temperature as a fixture

TEST(GuardHeat, IsLoweredStepByStepAndRaisedSlowly) {
  Watched watched;
  watched.look(degrees(84));
  EXPECT_EQ(watched.last.duty, 1);
  double before = 1;
  for (int i = 0; i < 5; ++i) {
    watched.look(degrees(86));
    EXPECT_LT(watched.last.duty, before);
    EXPECT_GT(watched.last.duty, 0.5);
    before = watched.last.duty;
  }
  for (int i = 0; i < 5; ++i) {
    watched.look(degrees(60));
    EXPECT_LE(watched.last.duty, before + 0.031);
    before = watched.last.duty;
  }
  for (int i = 0; i < 60; ++i) watched.look(degrees(60));
  EXPECT_EQ(watched.last.duty, 1);
}

TEST(GuardHeat, AtTheSlowdownTheLeastDutyAtOnce) {
  Watched watched;
  watched.look(degrees(70));
  watched.look(degrees(89));
  EXPECT_DOUBLE_EQ(watched.last.duty, 0.05);
}

TEST(GuardHeat, ASteepRiseIsMetBeforeItArrives) {
  Watched watched;
  watched.look(degrees(76));
  watched.look(degrees(83));
  EXPECT_LE(watched.last.duty, 0.5) << "90 C at the next look";
}

TEST(GuardHeat, AShortExcursionInALongRunIsAWarningOnly) {
  Watched watched;
  for (int i = 0; i < 3600; ++i) watched.look(degrees(i >= 100 && i < 110 ? 86 : 70));
  watched.finish();
  EXPECT_EQ(watched.warnings.size(), 1u);
  EXPECT_TRUE(watched.findings.empty());
  EXPECT_LT(watched.min_duty, 1);
  EXPECT_EQ(watched.last.duty, 1);
}

TEST(GuardHeat, AFindingNamesTheDeviceAndTheFigures) {
  Watched watched;
  for (int i = 0; i < 60; ++i) watched.look(degrees(i < 30 ? 87 : 70));
  watched.finish();
  ASSERT_EQ(watched.kinds(), std::vector<std::string>{"temperature"});
  const Finding& finding = watched.findings[0];
  EXPECT_EQ(finding.rank, 1);
  EXPECT_EQ(finding.hostname, "node7");
  EXPECT_EQ(finding.device_uuid, "GPU-1");
  EXPECT_EQ(finding.expected, 85);
  EXPECT_EQ(finding.actual, 87);
  EXPECT_THAT(finding.text, HasSubstr("allowed are 5 % of the run: improve the cooling"));
  watched.finish();
  EXPECT_EQ(watched.findings.size(), 1u) << "once a run";
}

TEST(GuardHeat, APlannedRunIsJudgedAsSoonAsItIsCertain) {
  Watched watched({}, limits_of_a_gpu(), 200.0);
  for (int i = 0; i < 9; ++i) watched.look(degrees(87));
  EXPECT_TRUE(watched.findings.empty()) << "8 s of 10 that are allowed";
  for (int i = 0; i < 5; ++i) watched.look(degrees(87));
  EXPECT_EQ(watched.kinds(), std::vector<std::string>{"temperature"});
}

TEST(GuardHeat, NonsenseIsNoTemperature) {
  Watched watched;
  for (const double c : {255.0, -273.0, std::nan("")}) watched.look(degrees(c));
  EXPECT_EQ(watched.last.duty, 1);
  SensorLimits odd;
  odd.slowdown_temperature_c = 2;  // a difference, not a temperature
  Watched other({}, odd);
  EXPECT_EQ(other.guard.temperature_limit(), 85);
}

TEST(GuardHeat, AnUnknownSlowdownIsJudgedByTheShutdown) {
  SensorLimits limits;
  limits.shutdown_temperature_c = 90;
  Watched watched({}, limits);
  EXPECT_EQ(watched.guard.temperature_limit(), 83);
  watched.look(degrees(86));
  EXPECT_DOUBLE_EQ(watched.last.duty, 0.05);
}

TEST(GuardHeat, NoSensorNoDuty) {
  Watched watched;
  for (int i = 0; i < 100; ++i) watched.look(std::nullopt);
  watched.finish();
  EXPECT_EQ(watched.last.duty, 1);
  EXPECT_TRUE(watched.warnings.empty());
}

TEST(GuardHeat, ComingAndGoingIsNoFlood) {
  Watched watched;
  for (int i = 0; i < 600; ++i) watched.look(degrees(i % 40 < 4 ? 86 : 60));
  EXPECT_LE(watched.warnings.size(), 11u);
  EXPECT_LE(watched.notices.size(), 11u);
}

}  // namespace
}  // namespace egt::test
