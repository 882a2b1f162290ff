#include "workload/train/check_schedule.hpp"

#include <gmock/gmock.h>

#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <vector>

namespace egt {
namespace {

using testing::ElementsAre;

constexpr double nan = std::numeric_limits<double>::quiet_NaN();
constexpr double infinite = std::numeric_limits<double>::infinity();
/// Steps from a check until its cost is known: steps are retired two steps later.
constexpr std::int64_t lag = 2;

/// In milliseconds.
struct Cost {
  double check = 0, step = 0;
};

/// The time of a check and of the steps since the last one, and the reported values.
struct Costs {
  std::function<Cost(std::int64_t step)> real;
  std::function<Cost(Cost)> reported = [](Cost cost) { return cost; };
};

struct Checked {
  std::vector<std::int64_t> checks;  ///< the steps that a check followed
  double checks_ms = 0, steps_ms = 0;

  double share() const { return checks_ms / steps_ms; }
};

Checked simulate(CheckSchedule& schedule, std::int64_t steps, const Costs& costs) {
  Checked run;
  double since_ms = 0;
  std::int64_t since = 0;
  for (std::int64_t step = 0; step < steps; ++step) {
    const Cost cost = costs.real(step);
    run.steps_ms += cost.step;
    since_ms += cost.step;
    ++since;
    if (schedule.due(step)) {
      run.checks.push_back(step);
      run.checks_ms += cost.check;
    }
    if (!run.checks.empty() && run.checks.back() == step - lag) {
      const Cost reported =
          costs.reported({costs.real(step - lag).check, since_ms / static_cast<double>(since)});
      schedule.learn(reported.check, reported.step);
      since_ms = 0;
      since = 0;
    }
  }
  return run;
}

Costs constant(double check, double step) {
  return {.real = [=](std::int64_t) { return Cost{check, step}; }};
}

/// The same for the same step, so that calls can repeat: `mean` times 0.5 to 1.5.
double noisy(double mean, std::int64_t step, std::uint64_t seed) {
  std::uint64_t mixed = (static_cast<std::uint64_t>(step) + seed * 0x1000003) * 0x9E3779B97F4A7C15ull;
  mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9ull;
  return mean * (0.5 + static_cast<double>(mixed >> 11) * 0x1p-53);
}

TEST(CheckSchedule, EveryComesBehindEachEverythStep) {
  CheckSchedule schedule(4, 0.01);
  EXPECT_EQ(schedule.period(), 4);
  EXPECT_THAT(simulate(schedule, 17, constant(1000, 1)).checks, ElementsAre(3, 7, 11, 15));
  EXPECT_EQ(schedule.period(), 4);
}

TEST(CheckSchedule, EveryOneComesBehindEachStep) {
  CheckSchedule schedule(1, 0.01);
  EXPECT_EQ(simulate(schedule, 100, constant(1000, 1)).checks.size(), 100u);
}

TEST(CheckSchedule, TheFirstCheckComesEarlyAndIsPaidForBeforeTheNext) {
  CheckSchedule schedule(0, 0.01);
  EXPECT_EQ(schedule.period(), CheckSchedule::first_check);
  // Two checks of 10 ms at 95 % of 1 % need 2106 steps of 1 ms, each further one 1053 steps.
  const Checked run = simulate(schedule, 4500, constant(10, 1));
  EXPECT_THAT(run.checks, ElementsAre(4, 2105, 3157, 4210));
  EXPECT_EQ(schedule.period(), 1053);
}

TEST(CheckSchedule, NoBudgetNoChecks) {
  CheckSchedule schedule(0, 0);
  EXPECT_TRUE(simulate(schedule, 10'000, constant(0, 1)).checks.empty());
}

TEST(CheckSchedule, OneCheckAtATime) {
  CheckSchedule schedule(0, 1);
  std::int64_t step = 0;
  while (!schedule.due(step)) ++step;
  for (int i = 0; i < 1000; ++i) ASSERT_FALSE(schedule.due(++step));
  schedule.learn(0, 1);
  EXPECT_TRUE(schedule.due(++step));
}

TEST(CheckSchedule, ChecksThatCostNothingComeAtTheLeastPeriod) {
  CheckSchedule schedule(0, 0.01);
  EXPECT_THAT(simulate(schedule, 12, constant(0, 5)).checks, ElementsAre(4, 7, 10));
  EXPECT_EQ(schedule.period(), CheckSchedule::min_period);
}

TEST(CheckSchedule, TheShareStaysAtOrBelowTheBudgetAndNotIdle) {
  for (const double budget : {0.001, 0.01, 0.1})
    for (const double step_ms : {1.0, 30.0, 1000.0})
      for (const double check_steps : {0.3, 1.0, 3.0, 20.0}) {  // cost of a check in steps
        const std::uint64_t seed = static_cast<std::uint64_t>(step_ms * check_steps);
        const Costs costs{.real = [=](std::int64_t step) {
          return Cost{noisy(step_ms * check_steps, step, seed), noisy(step_ms, step, seed + 1)};
        }};
        CheckSchedule schedule(0, budget);
        const auto steps = static_cast<std::int64_t>(20 * std::max(check_steps / budget, 10.0));
        const double share = simulate(schedule, steps, costs).share();
        EXPECT_LE(share, budget) << step_ms << " ms, check of " << check_steps << " steps";
        const double possible = check_steps / static_cast<double>(CheckSchedule::min_period);
        EXPECT_GE(share, std::min(budget, possible) / 2)
            << step_ms << " ms, check of " << check_steps << " steps";
      }
}

TEST(CheckSchedule, TheShareHoldsWhenItIsToldWithNoise) {
  // A small check's cost as a difference of large, noisy times is often negative.
  std::mt19937_64 random(7);
  std::normal_distribution<double> noise(0, 3);
  const Costs costs{.real =
                        [](std::int64_t) {
                          return Cost{2, 20};
                        },
                    .reported =
                        [&](Cost cost) {
                          return Cost{cost.check + noise(random), cost.step};
                        }};
  CheckSchedule schedule(0, 0.01);
  const double share = simulate(schedule, 200'000, costs).share();
  EXPECT_LE(share, 0.01);
  EXPECT_GE(share, 0.01 / 2);
}

TEST(CheckSchedule, AChangeOfCostsIsFollowed) {
  for (const double factor : {0.2, 50.0}) {
    const Costs costs{.real = [=](std::int64_t step) {
      return step < 50'000 ? Cost{5, 10} : Cost{5 * factor, 10};
    }};
    CheckSchedule schedule(0, 0.01);
    const Checked run = simulate(schedule, 200'000, costs);
    EXPECT_LE(run.share(), 0.01) << factor;
    EXPECT_GE(run.share(), 0.01 / 2) << factor;
    EXPECT_NEAR(static_cast<double>(schedule.period()), 50 * factor / 0.95, 1 + factor);
  }
}

TEST(CheckSchedule, CheapChecksBeforeDoNotBuyABurstOfDearOnes) {
  const Costs costs{.real = [](std::int64_t step) {
    return step < 100'000 ? Cost{0.01, 10} : Cost{10, 10};  // the min period, then 100 steps each
  }};
  CheckSchedule schedule(0, 0.01);
  const Checked run = simulate(schedule, 110'000, costs);
  std::int64_t behind = 0;
  for (const std::int64_t step : run.checks) behind += step >= 101'000;
  EXPECT_LE(behind, 9'000 / (100 / CheckSchedule::haste) + 1);
  EXPECT_GE(behind, 9'000 / 100 - 1);
}

TEST(CheckSchedule, AStallDoesNotPutOffChecksForLong) {
  CheckSchedule schedule(0, 0.01);
  const Costs costs{.real =
                        [](std::int64_t) {
                          return Cost{10, 10};
                        },
                    .reported =
                        [&, n = 0](Cost cost) mutable {
                          return Cost{++n == 10 ? 60'000.0 : cost.check, cost.step};
                        }};
  const Checked run = simulate(schedule, 10'000, costs);
  std::int64_t longest = 0;
  for (std::size_t i = 2; i < run.checks.size(); ++i)
    longest = std::max(longest, run.checks[i] - run.checks[i - 1]);
  EXPECT_LE(longest, 1000);  // 10 periods; unclipped: 600,000 steps
  EXPECT_GE(longest, 400);
}

TEST(CheckSchedule, FiguresThatCannotBeAreReplaced) {
  for (const double bad : {nan, infinite, -infinite, 0.0, -3.0}) {
    CheckSchedule never_known(0, 0.01);
    const Checked blind = simulate(never_known, 1000,
                                   {.real =
                                        [](std::int64_t) {
                                          return Cost{10, 10};
                                        },
                                    .reported =
                                        [&](Cost) {
                                          return Cost{nan, bad};
                                        }});
    EXPECT_EQ(never_known.period(), 106) << bad;  // as if it cost as much as a step, at 95 % of 1 %
    EXPECT_EQ(blind.checks.size(), 10u) << bad;

    CheckSchedule sometimes(0, 0.01);
    const Costs costs{.real =
                          [](std::int64_t) {
                            return Cost{10, 10};
                          },
                      .reported =
                          [&, n = 0](Cost cost) mutable {
                            return ++n % 2 ? cost : Cost{std::isfinite(bad) ? cost.check : bad, bad};
                          }};
    const double share = simulate(sometimes, 20'000, costs).share();
    EXPECT_LE(share, 0.01) << bad;
    EXPECT_GE(share, 0.005) << bad;
  }
}

TEST(CheckSchedule, ASenselessNegativeCostIsNoCreditForEver) {
  const Costs costs{.real =
                        [](std::int64_t) {
                          return Cost{10, 10};
                        },
                    .reported =
                        [n = 0](Cost cost) mutable {
                          return ++n == 5 ? Cost{-1e12, 10} : cost;
                        }};
  CheckSchedule schedule(0, 0.01);
  EXPECT_LE(simulate(schedule, 20'000, costs).share(), 0.011);
}

TEST(CheckSchedule, TwoFedAlikeDecideAlike) {
  std::mt19937_64 random(11);
  std::uniform_real_distribution<double> uniform(-5, 50);
  CheckSchedule one(0, 0.02), other(0, 0.02);
  std::int64_t checks = 0, last = -1;
  for (std::int64_t step = 0; step < 100'000; ++step) {
    const bool due = one.due(step);
    ASSERT_EQ(other.due(step), due) << step;
    if (due) last = step, ++checks;
    if (last >= 0 && step == last + lag) {
      const double check_ms = uniform(random), step_ms = uniform(random);
      one.learn(check_ms, step_ms);
      other.learn(check_ms, step_ms);
      ASSERT_EQ(one.period(), other.period());
    }
  }
  EXPECT_GT(checks, 100);
}

}  // namespace
}  // namespace egt
