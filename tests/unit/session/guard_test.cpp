#include "session/health/guard.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/guard_fixture.hpp"

namespace egt::test {
namespace {

using ::testing::HasSubstr;

// Power

SensorReading watts(double w, std::uint64_t reasons = 0) {
  SensorReading reading;
  reading.power_w = w;
  reading.event_reasons = reasons;
  return reading;
}

TEST(GuardPower, AtTheCapIsTheAim) {
  Watched watched;
  for (int i = 0; i < 600; ++i) watched.look(watts(i % 2 ? 699 : 715, 0x4));
  watched.finish();
  EXPECT_TRUE(watched.warnings.empty());
  EXPECT_TRUE(watched.findings.empty());
  EXPECT_EQ(watched.last.duty, 1);
}

TEST(GuardPower, ShortPeaksAreNoFinding) {
  Watched watched;
  for (int i = 0; i < 600; ++i) watched.look(watts(i % 10 ? 800 : 690));
  EXPECT_TRUE(watched.findings.empty());
  EXPECT_EQ(watched.last.duty, 1);
}

TEST(GuardPower, AboveTheLimitForTenSecondsIsAFindingAndLessDuty) {
  Watched watched;
  for (int i = 0; i < 10; ++i) watched.look(watts(770));
  EXPECT_TRUE(watched.findings.empty());
  watched.look(watts(770));
  ASSERT_EQ(watched.kinds(), std::vector<std::string>{"power"});
  EXPECT_EQ(watched.findings[0].expected, 700);
  EXPECT_EQ(watched.findings[0].actual, 770);
  EXPECT_DOUBLE_EQ(watched.last.duty, 0.9);
  ASSERT_EQ(watched.warnings.size(), 1u);
  EXPECT_THAT(watched.warnings[0], HasSubstr("the load is lowered to 90 %"));
}

TEST(GuardPower, InAClosedLoopItSettlesBelowTheLimit) {
  Watched watched;
  std::vector<double> duties;
  for (int i = 0; i < 1200; ++i) {
    watched.look(watts(900 * watched.last.duty));
    if (i >= 600) duties.push_back(watched.last.duty);
  }
  const auto [low, high] = std::minmax_element(duties.begin(), duties.end());
  EXPECT_EQ(*low, *high) << "it does not swing";
  EXPECT_LE(900 * *high, 735);
  EXPECT_EQ(watched.findings.size(), 1u);
}

TEST(GuardPower, IsRaisedAgainWhenTheLimitAllowsIt) {
  Watched watched;
  for (int i = 0; i < 25; ++i) watched.look(watts(800));
  EXPECT_LT(watched.last.duty, 0.85);
  for (int i = 0; i < 200; ++i) watched.look(watts(400));
  EXPECT_EQ(watched.last.duty, 1);
}

TEST(GuardPower, NoLimitNoJudgement) {
  Watched watched({}, SensorLimits{});
  for (int i = 0; i < 100; ++i) watched.look(watts(5000));
  EXPECT_TRUE(watched.findings.empty());
}

// Throttled clocks

/// Output of a run of 200 s with these throttle reasons in the first `seconds`.
Watched held_down(std::uint64_t reasons, int seconds) {
  Watched watched;
  for (int i = 0; i < 201; ++i) watched.look(watts(600, i >= 1 && i <= seconds ? reasons : 0));
  watched.finish();
  return watched;
}

TEST(GuardClocks, EachReasonIsNamedWithItsSeconds) {
  const std::pair<std::uint64_t, const char*> cases[] = {
      {0x20, "(sw_thermal) for 20.0 s"},       {0x40, "(hw_thermal) for 20.0 s"},
      {0x80, "(hw_power_brake) for 20.0 s"},   {0x8, "(hw_slowdown) for 20.0 s"},
      {0x8 | 0x40, "(hw_thermal) for 20.0 s"}, {0x8 | 0x80, "(hw_power_brake) for 20.0 s"},
  };
  for (const auto& [reasons, text] : cases) {
    const Watched watched = held_down(reasons, 20);
    ASSERT_EQ(watched.kinds(), std::vector<std::string>{"throttle"}) << text;
    EXPECT_THAT(watched.findings[0].text, HasSubstr(text));
    EXPECT_DOUBLE_EQ(watched.findings[0].actual.value(), 20);
    EXPECT_DOUBLE_EQ(watched.findings[0].expected.value(), 10);
    EXPECT_EQ(watched.last.duty, 1);
  }
}

TEST(GuardClocks, WithinThePolicyIsNoFinding) {
  EXPECT_TRUE(held_down(0x20 | 0x40, 10).findings.empty());
}

TEST(GuardClocks, ThePowerCapAndIdlenessAreNoFinding) {
  EXPECT_TRUE(held_down(0x1 | 0x2 | 0x4 | 0x10 | 0x100, 200).findings.empty());
}

TEST(GuardClocks, TheDevicesCountersAreBelievedFirst) {
  Watched watched;
  for (int i = 0; i < 100; ++i) {
    SensorReading reading = watts(600, i % 10 == 0 ? 0x20 : 0);  // 10 s by samples
    reading.throttle.sw_thermal_s = 1000 + 0.02 * i;             // 2 s by the counter
    watched.look(reading);
  }
  watched.finish();
  EXPECT_TRUE(watched.findings.empty());

  Watched unseen;
  for (int i = 0; i < 100; ++i) {
    SensorReading reading = watts(600);
    reading.throttle.hw_thermal_s = 1000 + 0.3 * i;
    unseen.look(reading);
  }
  unseen.finish();
  ASSERT_EQ(unseen.kinds(), std::vector<std::string>{"throttle"});
  EXPECT_NEAR(unseen.findings[0].actual.value(), 29.7, 0.01);
}

TEST(GuardClocks, ACounterThatNeverMovesIsNoWitness) {
  Watched watched;
  for (int i = 0; i < 100; ++i) {
    SensorReading reading = watts(600, 0x20);
    reading.throttle.sw_thermal_s = 0;
    watched.look(reading);
  }
  watched.finish();
  EXPECT_EQ(watched.kinds(), std::vector<std::string>{"throttle"});
}

TEST(GuardClocks, ThePolicyIsAnOption) {
  Watched strict({.throttle_limit = 0.02, .corrected_limit = {}}),
      lax({.throttle_limit = 0.5, .corrected_limit = {}});
  for (int i = 0; i < 200; ++i) {
    strict.look(watts(600, i < 8 ? 0x20 : 0));
    lax.look(watts(600, i < 80 ? 0x20 : 0));
  }
  strict.finish();
  lax.finish();
  EXPECT_EQ(strict.findings.size(), 1u);
  EXPECT_TRUE(lax.findings.empty());
}

// Memory

SensorReading memory_used(double share) {
  SensorReading reading;
  reading.memory_total_bytes = 1'000'000'000;
  reading.memory_used_bytes = static_cast<std::uint64_t>(share * 1e9);
  return reading;
}

TEST(GuardMemory, ThePlannedFillIsNoPressure) {
  Watched watched;
  for (int i = 0; i < 600; ++i) watched.look(memory_used(0.95), {.cpu_percent = {}, .memory_percent = 94.9});
  EXPECT_EQ(watched.last.memory_share, 1);
  EXPECT_TRUE(watched.warnings.empty());
}

TEST(GuardMemory, OneLookIsNoPressure) {
  Watched watched;
  for (int i = 0; i < 100; ++i) watched.look(memory_used(i % 5 ? 0.5 : 0.97));
  EXPECT_EQ(watched.last.memory_share, 1);
}

TEST(GuardMemory, TheFillShrinksUntilItFits) {
  Watched watched;
  double others = 0.2;
  for (int i = 0; i < 60; ++i) watched.look(memory_used(others + 0.85 * watched.last.memory_share));
  // A use of 1.05 becomes 0.965 and 0.88.
  EXPECT_NEAR(watched.last.memory_share, 0.8, 1e-9);
  ASSERT_EQ(watched.warnings.size(), 2u);
  EXPECT_THAT(watched.warnings[0], HasSubstr("105.0 % of the device's memory is in use, the limit is 95 %"));
  EXPECT_THAT(watched.warnings[0], HasSubstr("to 90 % of what was planned"));
  EXPECT_TRUE(watched.findings.empty());
  others = 0;
  for (int i = 0; i < 60; ++i) watched.look(memory_used(others + 0.85 * watched.last.memory_share));
  EXPECT_NEAR(watched.last.memory_share, 0.8, 1e-9) << "what was given back stays given back";
}

TEST(GuardMemory, EachStepHasTimeToSettle) {
  Watched watched;
  std::vector<int> steps;
  for (int i = 0; i < 14; ++i) {
    const double before = watched.last.memory_share;
    watched.look(memory_used(0.99 - 0.01 * i));
    if (watched.last.memory_share < before) steps.push_back(i);
  }
  ASSERT_GE(steps.size(), 1u);
  for (std::size_t i = 1; i < steps.size(); ++i) EXPECT_GE(steps[i] - steps[i - 1], 5);
}

TEST(GuardMemory, TheHostsMemoryCountsToo) {
  Watched watched;
  for (int i = 0; i < 4; ++i) watched.look(std::nullopt, {.cpu_percent = {}, .memory_percent = 97});
  EXPECT_NEAR(watched.last.memory_share, 0.9, 1e-9);
  ASSERT_EQ(watched.warnings.size(), 1u);
  EXPECT_THAT(watched.warnings[0], HasSubstr("97.0 % of the host's memory"));
}

TEST(GuardMemory, GivesUpWhereItDoesNotHelp) {
  Watched watched;
  for (int i = 0; i < 600; ++i) watched.look(memory_used(0.97));
  EXPECT_NEAR(watched.last.memory_share, 0.7, 1e-9);
  ASSERT_EQ(watched.warnings.size(), 4u);
  EXPECT_THAT(watched.warnings[3], HasSubstr("does not help"));
}

TEST(GuardMemory, TheLimitIsAnOption) {
  Watched watched({.memory_limit = 0.5, .corrected_limit = {}});
  for (int i = 0; i < 4; ++i) watched.look(memory_used(0.6));
  EXPECT_LT(watched.last.memory_share, 1);
}

TEST(Guard, ItsSummaryTellsWhatItDid) {
  Watched watched;
  for (int i = 0; i < 20; ++i) {
    SensorReading reading = memory_used(0.97);
    reading.temperature_c = 86;
    reading.event_reasons = 0x20;
    watched.look(reading);
  }
  const Json summary = watched.guard.summary();
  EXPECT_EQ(summary["temperature_limit_c"], 85);
  EXPECT_EQ(summary["heat_seconds"], 19);
  EXPECT_EQ(summary["power_seconds"], 0);
  EXPECT_EQ(summary["throttle_seconds"]["sw_thermal"], 19);
  EXPECT_EQ(summary["memory_steps"], 3);
  EXPECT_DOUBLE_EQ(summary["least_heat_duty"].get<double>(), watched.min_duty);
}

}  // namespace
}  // namespace egt::test
