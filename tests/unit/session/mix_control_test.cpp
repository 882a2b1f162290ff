#include "session/health/mix_control.hpp"

#include <cmath>
#include <limits>
#include <optional>
#include <random>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/mix_loop_fixture.hpp"

namespace egt::test {
namespace {

/// The controller settles within ten minutes; ten more minutes are then checked.
void expect_it_holds(Loop& loop, const Show& show = as_it_is, double max_above_needed = 0.055) {
  loop.run(600, show);
  EXPECT_GE(loop.mean, 0.98);
  EXPECT_GE(loop.min_ten, 0.95);
  loop.run(600, show);
  EXPECT_GE(loop.mean, 0.98);
  EXPECT_GE(loop.min_ten, 0.95);
  EXPECT_LE(loop.changes_since(600), 6) << "it does not swing";
  EXPECT_GE(loop.mix.products_duty(), loop.card.needed() - 0.11);
  EXPECT_LE(loop.mix.products_duty(), loop.card.needed() + max_above_needed) << "no more than it takes";
  EXPECT_EQ(loop.moves_while_held, 0);
  EXPECT_TRUE(loop.warnings.empty());
  EXPECT_EQ(loop.mix.summary()["control"], "power");
  EXPECT_TRUE(loop.mix.summary()["power_sensor"].is_null());
}

TEST(MixControl, HoldsAnyCardAtItsLimitWithTheLeastProducts) {
  for (const double limit_w : {150.0, 300.0, 700.0, 1000.0})
    for (const double extreme : {0.5, 0.7, 0.8, 0.9, 0.97, 1.05})
      for (const double cap : {0.982, 0.995}) {
        SCOPED_TRACE(testing::Message() << limit_w << " W, " << extreme << " without products, cap " << cap);
        Loop loop({.limit_w = limit_w, .extreme = extreme, .products = 0.7, .cap = cap});
        expect_it_holds(loop);
      }
}

TEST(MixControl, ACardThatReachesItsLimitWithoutProductsHasNoneWhereExtremeTermsLead) {
  Loop loop({.extreme = 1.1});
  loop.run(600);
  EXPECT_EQ(loop.mix.products_duty(), 0);
  EXPECT_GE(loop.mean, 0.985);
}

/// Its driver always reports "capped", as an H200's does.
TEST(MixControl, ACardWhoseCapMeetsPeaksIsHeldAtItsLimitToo) {
  for (const double extreme : {0.88, 0.92, 0.96}) {
    Loop loop({.extreme = extreme, .products = 0.15, .cap = 0.992, .peaks_from = 0.9});
    expect_it_holds(loop);
  }
}

TEST(MixControl, ProductsKeepTheirLeastShare) {
  MixControl mix(700, "");
  Card card{.extreme = 1.1};
  for (int now = 0; now < 600; ++now) {
    mix.look(now, card.reading(), LoadLead::extreme, 1);
    card.go_on(LoadLead::extreme, mix.products_duty(), 1, 1);
  }
  EXPECT_EQ(mix.products_duty(), MixControl::usual_least_duty);
}

TEST(MixControl, HoldsWithSlowSensors) {
  for (const double lag_s : {0.1, 0.5, 1.0, 2.0, 5.0})
    for (const bool capped : {true, false}) {
      SCOPED_TRACE(testing::Message() << lag_s << " s, " << (capped ? "capped" : "no reasons told"));
      Loop loop({.extreme = 0.8, .products = 0.4, .cap = 0.99, .lag_s = lag_s});
      expect_it_holds(
          loop,
          [&](double, SensorReading reading) -> std::optional<SensorReading> {
            if (!capped) reading.event_reasons.reset();
            return without_energy(reading);
          },
          0.2);
    }
}

/// The reading still falls after the share has become right again.
TEST(MixControl, ASlowSensorDoesNotSendItFarUp) {
  Loop loop({.extreme = 0.95, .products = 0.3, .lag_s = 5});
  loop.products_s = 0;
  const Show show = [](double, SensorReading reading) {
    reading.event_reasons.reset();
    return std::optional(without_energy(reading));
  };
  loop.run(600, show);
  loop.card.extreme = 0.92;
  const double needed = loop.card.needed();
  loop.run(60, show);
  EXPECT_GE(loop.mix.products_duty(), needed - 0.01);
  EXPECT_LE(loop.mix.products_duty(), needed + 0.1);
}

TEST(MixControl, HoldsWithoutAnEnergyCounterAndWithoutAReading) {
  Loop by_reading({});
  expect_it_holds(by_reading,
                  [](double, const SensorReading& r) { return std::optional(without_energy(r)); });
  Loop by_counter({});
  expect_it_holds(by_counter, [](double, SensorReading reading) -> std::optional<SensorReading> {
    reading.power_w.reset();
    return reading;
  });
}

/// With strong noise the share is higher than needed, never lower.
TEST(MixControl, HoldsWithANoisySensor) {
  for (const auto& [deviation, max_above_needed] : {std::pair(0.02, 0.3), std::pair(0.04, 1.0)}) {
    std::mt19937 random(7);
    std::normal_distribution<double> noise(1, deviation);
    Loop loop({});
    expect_it_holds(
        loop,
        [&](double, SensorReading reading) -> std::optional<SensorReading> {
          *reading.power_w *= noise(random);
          return without_energy(reading);
        },
        max_above_needed);
  }
}

TEST(MixControl, HoldsWithACounterThatMovesInSteps) {
  Loop loop({});
  expect_it_holds(
      loop,
      [](double, SensorReading reading) -> std::optional<SensorReading> {
        reading.energy_j = std::floor(*reading.energy_j / 60) * 60;
        return reading;
      },
      0.3);
}

/// As with the precisions of a cycle.
TEST(MixControl, WhereOnePartOfTheLoadNeedsMoreAllHaveAsMuch) {
  Loop loop({.extreme = 0.95});
  loop.products_s = 10, loop.extreme_s = 25;
  double changes = 0;
  for (int round = 0; round < 60; ++round) {
    loop.card.extreme = round % 3 == 0 ? 0.75 : 0.95;
    loop.run(35);
    EXPECT_GE(loop.mean, round < 20 ? 0.95 : 0.965) << round;
    if (round == 20) changes = static_cast<double>(loop.changed_at.size());
  }
  EXPECT_LE(static_cast<double>(loop.changed_at.size()) - changes, 16) << "in 23 minutes";
}

TEST(MixControl, HoldsWithReadingsMissing) {
  std::mt19937 random(3);
  Loop loop({});
  expect_it_holds(loop, [&](double, const SensorReading& reading) -> std::optional<SensorReading> {
    if (random() % 3 == 0) return std::nullopt;
    if (random() % 4 == 0) return SensorReading{};
    return reading;
  });
}

TEST(MixControl, ALongGapMovesNothing) {
  Loop loop({});
  loop.run(600);
  const double duty = loop.mix.products_duty();
  loop.run(300, [](double, const SensorReading&) { return std::optional<SensorReading>(); });
  EXPECT_EQ(loop.mix.products_duty(), duty);
  loop.card.joules = 0;  // the driver was reloaded
  loop.run(120);
  EXPECT_GE(loop.mix.products_duty(), duty - 0.06);
  EXPECT_TRUE(loop.warnings.empty());
}

TEST(MixControl, SamplesThatComeOftenAreNoMoreLooks) {
  MixControl mix(700, "");
  Card card;
  for (double now = 0; now < 9; now += 0.05) {
    mix.look(now, card.reading(), LoadLead::extreme, 1);
    card.go_on(LoadLead::extreme, mix.products_duty(), 1, 0.05);
  }
  EXPECT_EQ(mix.products_duty(), 1) << "ten seconds at the limit are wanted";
}

TEST(MixControl, WhereMuchIsMissingItIsBackWithinSeconds) {
  Loop loop({.extreme = 0.95});
  loop.products_s = 0;
  loop.run(600);
  EXPECT_LT(loop.mix.products_duty(), 0.2);
  loop.card.extreme = 0.3;  // another precision
  loop.run(6);
  EXPECT_EQ(loop.mix.products_duty(), 1);
  loop.run(60);
  EXPECT_EQ(loop.mix.products_duty(), 1) << "and tries nothing for a minute";
}

TEST(MixControl, OneLookBelowIsAMoment) {
  Loop loop({.extreme = 1.1});
  loop.products_s = 0;
  loop.run(600);
  loop.card.extreme = 0.3;
  loop.run(1);
  loop.card.extreme = 1.1;
  loop.run(30);
  EXPECT_EQ(loop.mix.products_duty(), 0);
}

TEST(MixControl, WhatWasTooLittleIsNotTriedAgainForAMinute) {
  Loop loop({.extreme = 0.95, .products = 0.7});
  loop.products_s = 0;
  loop.run(1800);
  const std::vector<double>& at = loop.changed_at;
  // Decreases come about every ten seconds. The change after a raise waits, longer each time.
  std::vector<double> waits;
  for (std::size_t i = 1; i < at.size(); ++i)
    if (at[i] - at[i - 1] > 15) waits.push_back(at[i] - at[i - 1]);
  ASSERT_GE(waits.size(), 2u);
  for (std::size_t i = 0; i < waits.size(); ++i) EXPECT_GE(waits[i], i == 0 ? 60 : 1.5 * waits[i - 1]);
}

TEST(MixControl, ChangesOfTheLeadThatComeFasterThanItSeesMoveNothing) {
  Loop loop({.extreme = 0.9});
  loop.products_s = loop.extreme_s = 1;
  loop.run(600);
  EXPECT_EQ(loop.mix.products_duty(), 1);
  EXPECT_TRUE(loop.warnings.empty());
}

TEST(MixControl, YieldsToTheGuardAndToHeat) {
  for (const double rise_c : {50.0, 58.0, 65.0, 80.0})
    for (const double slows_c : {80.0, 95.0}) {
      SCOPED_TRACE(testing::Message() << rise_c << " C, slows at " << slows_c);
      Loop loop({.extreme = 0.9, .rise_c = rise_c, .slows_c = slows_c});
      loop.run(1200);
      EXPECT_EQ(loop.moves_while_held, 0);
      EXPECT_TRUE(loop.warnings.empty());
      EXPECT_LE(loop.changes_since(600), 8);
    }
  Loop hot({.extreme = 0.9, .rise_c = 80});
  hot.run(600);
  EXPECT_LT(hot.duty, 0.9) << "the guard is in it";
}

TEST(MixControl, GoesOnWhenTheGuardLetsGo) {
  Loop loop({.extreme = 1.05, .rise_c = 70});
  loop.run(300);
  EXPECT_LT(loop.duty, 1);
  const double duty = loop.mix.products_duty();
  loop.run(300);
  EXPECT_EQ(loop.mix.products_duty(), duty);
  loop.card.rise_c = 30;
  loop.run(900);
  EXPECT_EQ(loop.duty, 1);
  EXPECT_EQ(loop.mix.products_duty(), 0);
}

TEST(MixControl, ACardThatCannotReachItsLimitIsLeftAtFullDutyAndToldSo) {
  Loop loop({.extreme = 0.5, .products = 0.2, .products_lead = 0.8, .cap = {}});
  loop.run(600);
  EXPECT_EQ(loop.mix.products_duty(), 1);
  EXPECT_TRUE(loop.changed_at.empty());
  EXPECT_TRUE(loop.warnings.empty());
  EXPECT_GT(loop.mix.summary()["unreached_seconds"], 500);
  EXPECT_EQ(loop.mix.summary()["control"], "power");
  Loop other({});
  other.run(600);
  EXPECT_EQ(other.mix.summary()["unreached_seconds"], 0);
}

// Without a power reading

TEST(MixControl, WithoutAPowerReadingTheShareIsFixedAndThatIsSaid) {
  Loop loop({});
  loop.run(120, [](double, SensorReading reading) -> std::optional<SensorReading> {
    reading.power_w = reading.energy_j = {};
    return reading;
  });
  EXPECT_EQ(loop.mix.products_duty(), 1);
  EXPECT_EQ(loop.mix.summary()["control"], "no power reading");
  EXPECT_TRUE(loop.warnings.empty());
  Loop nonsense({});
  nonsense.run(120, [](double, SensorReading reading) -> std::optional<SensorReading> {
    reading.power_w = std::numeric_limits<double>::quiet_NaN();
    reading.energy_j = -1;
    return reading;
  });
  EXPECT_EQ(nonsense.mix.summary()["control"], "no power reading");
}

TEST(MixControl, WithoutALimitOrWhereItIsNotWantedTheShareIsFixed) {
  for (const auto& [limit_w, fixed, control] : {std::tuple(std::optional<double>(), "", "no power limit"),
                                                std::tuple(std::optional(0.0), "", "no power limit"),
                                                std::tuple(std::optional(700.0), "pulse", "pulse")}) {
    MixControl mix(limit_w, fixed);
    Card card;
    for (int now = 0; now < 120; ++now) {
      EXPECT_EQ(mix.look(now, card.reading(), LoadLead::extreme, 1), "");
      card.go_on(LoadLead::extreme, mix.products_duty(), 1, 1);
    }
    EXPECT_EQ(mix.products_duty(), 1);
    EXPECT_EQ(mix.summary()["control"], control);
  }
}

TEST(MixControl, ACapThatOnlyMeetsPeaksIsNotTheLimit) {
  MixControl peaks(700, ""), limit(700, "");
  SensorReading reading = Card().reading();
  reading.event_reasons = power_cap;
  for (int second = 0; second < 60; ++second) {
    for (const auto& [mix, watts] : {std::pair(&peaks, 0.93 * 700), std::pair(&limit, 0.98 * 700)}) {
      reading.power_w = watts + second % 2;
      reading.energy_j = watts * second;
      EXPECT_EQ(mix->look(second, reading, LoadLead::extreme, 1), "");
    }
  }
  EXPECT_EQ(peaks.products_duty(), 1);
  EXPECT_LT(limit.products_duty(), 1);
}

}  // namespace
}  // namespace egt::test
