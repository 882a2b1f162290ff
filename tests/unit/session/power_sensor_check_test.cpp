#include <cmath>
#include <functional>
#include <optional>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "session/health/mix_control.hpp"
#include "tests/support/mix_loop_fixture.hpp"

namespace egt::test {
namespace {

using ::testing::HasSubstr;

/// Reported once; from then on the share is fixed.
void expect_told(Loop& loop, const Show& show, const char* what, double within_s) {
  loop.run(within_s, show);
  ASSERT_EQ(loop.warnings.size(), 1u);
  EXPECT_THAT(loop.warnings[0], HasSubstr("the power sensor cannot be right: "));
  EXPECT_THAT(loop.warnings[0], HasSubstr(what));
  loop.run(300, show);
  EXPECT_EQ(loop.warnings.size(), 1u);
  EXPECT_EQ(loop.mix.products_duty(), 1);
  EXPECT_EQ(loop.mix.summary()["control"], "the power sensor is wrong");
  EXPECT_THAT(loop.mix.summary()["power_sensor"].get<std::string>(), HasSubstr(what));
}

Show with(const std::function<void(SensorReading&)>& lie) {
  return [lie](double, SensorReading reading) {
    lie(reading);
    return std::optional(reading);
  };
}

/// Uncapped, and no load reaches its limit.
const Card weak{.extreme = 0.6, .products = 0.1, .products_lead = 0.8, .cap = {}};

TEST(PowerSensorCheck, AReadingThatStaysWhileTheLoadIsSwitchedIsTold) {
  const Show stuck = with([](SensorReading& r) { r = without_energy(r), r.power_w = 250; });
  Loop loop(weak);
  expect_told(loop, stuck, "it stays at 250.00 W for 3", 60);
  Loop steady(weak);
  steady.products_s = 0;
  steady.run(600, stuck);
  EXPECT_TRUE(steady.warnings.empty()) << "nothing was switched";
  Loop capped({.extreme = 1.1});
  capped.run(600, with([](SensorReading& r) { r = without_energy(r), r.power_w = 690; }));
  EXPECT_TRUE(capped.warnings.empty()) << "it may well be held there";
  Loop far_below_its_cap({.extreme = 1.1});
  expect_told(far_below_its_cap, stuck, "it stays at 250.00 W", 60);
}

TEST(PowerSensorCheck, AReadingThatMovesSlowlyIsNoLie) {
  Loop loop(weak);
  loop.card.lag_s = 5;
  loop.run(600, with([](SensorReading& r) { r.power_w = std::round(*r.power_w), r = without_energy(r); }));
  EXPECT_TRUE(loop.warnings.empty());
  Loop idle(weak);
  idle.run(600, with([](SensorReading& r) {
             r.power_w = 70, r.gpu_utilization_percent = 0, r = without_energy(r);
           }));
  EXPECT_TRUE(idle.warnings.empty());
}

TEST(PowerSensorCheck, AReadingAndACounterThatDifferAreTold) {
  for (const double factor : {0.7, 1.3}) {
    Loop loop(weak);
    expect_told(loop, with([factor](SensorReading& r) { *r.power_w *= factor; }), "its energy counter to ",
                40);
  }
  Loop stopped({.extreme = 0.9});
  expect_told(stopped, with([](SensorReading& r) { r.energy_j = 5; }), "its energy counter to 0 W", 40);
  Loop near({.extreme = 0.9});
  near.run(600, with([](SensorReading& r) { *r.power_w *= 0.85; }));
  EXPECT_TRUE(near.warnings.empty()) << "sensors are that wrong";
}

TEST(PowerSensorCheck, AnInstantReadingOfALoadThatTheGuardTurnsOnAndOffIsNoLie) {
  Loop loop({.extreme = 1.0, .rise_c = 90});
  loop.run(600, [&](double, SensorReading reading) {
    if (loop.duty < 0.99) reading.power_w = 690;
    return std::optional(reading);
  });
  EXPECT_LT(loop.duty, 0.9);
  EXPECT_TRUE(loop.warnings.empty());
}

TEST(PowerSensorCheck, ASlowReadingBesideACounterIsNoLie) {
  Loop loop(weak);
  loop.card.lag_s = 5;
  loop.card.shown_w = 70;
  loop.run(600);
  EXPECT_TRUE(loop.warnings.empty());
}

TEST(PowerSensorCheck, APowerLikeAnIdleDevicesUnderFullLoadIsTold) {
  const auto reported = [](const std::function<void(SensorReading&)>& also) {
    Loop loop(weak);
    loop.run(120, with([&](SensorReading& r) { *r.power_w *= 0.15, r = without_energy(r), also(r); }));
    return !loop.warnings.empty();
  };
  Loop loop(weak);
  expect_told(loop, with([](SensorReading& r) { *r.power_w *= 0.15, r = without_energy(r); }),
              "at 99 % of utilization, of 700 W, and no throttle reason", 40);
  EXPECT_FALSE(reported([](SensorReading& r) { r.gpu_utilization_percent = 60; })) << "a small load";
  EXPECT_FALSE(reported([](SensorReading& r) { r.gpu_utilization_percent.reset(); }))
      << "as a part of a device";
  EXPECT_FALSE(reported([](SensorReading& r) { r.event_reasons = power_cap; })) << "another cap";
  EXPECT_FALSE(reported([](SensorReading& r) { r.event_reasons = sw_thermal; }));
  EXPECT_FALSE(reported([](SensorReading& r) { r.event_reasons.reset(); })) << "it may be capped";
}

TEST(PowerSensorCheck, AnImpossiblePowerIsTold) {
  Loop loop({});
  expect_told(loop, with([](SensorReading& r) { *r.power_w *= 1.6, r = without_energy(r); }),
              "at a limit of 700 W", 15);
  Loop moment({});
  moment.run(8, with([](SensorReading& r) { *r.power_w *= 3, r = without_energy(r); }));
  moment.run(100, with([](SensorReading& r) { r = without_energy(r); }));
  EXPECT_TRUE(moment.warnings.empty());
}

}  // namespace
}  // namespace egt::test
