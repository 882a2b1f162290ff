#include "workload/train/check_schedule.hpp"

#include <gmock/gmock.h>

#include <functional>
#include <limits>
#include <optional>
#include <vector>

#include "egt/core/pattern.hpp"

namespace egt {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr double nan = std::numeric_limits<double>::quiet_NaN();
constexpr double infinite = std::numeric_limits<double>::infinity();
/// Steps are retired, and checks are collected, two steps later.
constexpr std::int64_t lag = 2;

using Time = std::function<double(std::int64_t step)>;
/// The real times of one rank in ms.
struct Rank {
  CheckSchedule schedule;
  Time check, step;
  double checks_ms = 0, steps_ms = 0;

  double share() const { return checks_ms / steps_ms; }
};

Time always(double ms) {
  return [=](std::int64_t) { return ms; };
}

Answers proposing(std::uint32_t period) {
  return {Digest{1, 2}, stamp(period)};
}

/// Returns the steps that a check followed. All ranks must decide alike.
std::vector<std::int64_t> simulate(std::vector<Rank>& ranks, std::int64_t first, std::int64_t end) {
  std::vector<std::int64_t> checks;
  std::vector<Answers> answers;
  std::optional<std::int64_t> under_way;
  for (std::int64_t step = first; step < end; ++step) {
    const bool is_due = !under_way && ranks[0].schedule.due(step), is_done = under_way == step - lag;
    if (is_due) {
      checks.push_back(step);
      under_way = step;
      answers.clear();
    }
    for (Rank& rank : ranks) {
      EXPECT_EQ(is_due, rank.schedule.due(step) && (is_due || !under_way)) << step;
      if (is_due) answers.push_back(proposing(rank.schedule.proposal()));
      if (is_due) rank.checks_ms += rank.check(step);
      rank.steps_ms += rank.step(step);
      if (step >= first + lag) rank.schedule.add_step(rank.step(step - lag));
      if (!is_done) continue;
      rank.schedule.agree(*under_way, answers);
      rank.schedule.add_check(rank.check(*under_way));
    }
    if (is_done) under_way.reset();
  }
  return checks;
}

std::vector<std::int64_t> simulate(CheckSchedule schedule, std::int64_t steps, double check_ms,
                                   double step_ms) {
  std::vector<Rank> ranks = {{schedule, always(check_ms), always(step_ms)}};
  return simulate(ranks, 0, steps);
}

TEST(CheckSchedule, EveryComesAfterEachEverythStep) {
  EXPECT_THAT(simulate(CheckSchedule(4, 0.01), 17, 1000, 1), ElementsAre(3, 7, 11, 15));
  EXPECT_EQ(CheckSchedule(4, 0.01).period(), 4);
}

TEST(CheckSchedule, NoBudgetNoChecks) {
  EXPECT_THAT(simulate(CheckSchedule(0, 0), 100'000, 0.001, 1), IsEmpty());
}

TEST(CheckSchedule, TheFirstCheckIsEarlyAndCompensatedAsIfItTookAStepUntilItsTimeIsKnown) {
  // At 95 % of 1 %, two checks of one step need 211 steps, three of ten steps 3158, each further one 1053.
  EXPECT_THAT(simulate(CheckSchedule(0, 0.01), 4300, 10, 1), ElementsAre(4, 213, 3160, 4213));
}

TEST(CheckSchedule, CheapChecksComeAtTheMinPeriod) {
  EXPECT_THAT(simulate(CheckSchedule(0, 1), 12, 0.01, 5), ElementsAre(4, 7, 10));
}

/// Times `mean` 0.1 to 1.9, the same in each call for a step.
double noisy(double mean, std::int64_t step, std::uint64_t seed) {
  const std::uint64_t random = mix64(static_cast<std::uint64_t>(step) * 977 + seed);
  return mean * (0.1 + 1.8 * static_cast<double>(random >> 11) * 0x1p-53);
}

TEST(CheckSchedule, EveryRankStaysWithinTheBudgetAndTheSlowestUsesIt) {
  std::uint64_t seed = 0;
  for (const double budget : {0.01, 0.1})
    for (const double cost : {0.3, 3.0, 20.0})      // mean cost of a check in steps
      for (const double later : {1.0, 0.2, 5.0}) {  // its factor in the later part of the run
        SCOPED_TRACE(testing::Message() << budget << ", " << cost << " steps, later times " << later);
        const auto steps = static_cast<std::int64_t>(40 * (1 + later) * (cost / budget + 1));
        std::vector<Rank> ranks;
        for (const double slower : {1.0, 0.5, 1.2}) {
          ++seed;
          const double ms = 10 * cost * slower;
          const auto check = [=](std::int64_t at) { return noisy(at < steps ? ms : later * ms, at, seed); };
          const auto step = [=](std::int64_t at) { return noisy(10, at, ~seed); };
          ranks.push_back({CheckSchedule(0, budget), check, step});
        }
        simulate(ranks, 0, steps);
        for (Rank& rank : ranks) rank.schedule.restart(steps - 1);
        EXPECT_EQ(simulate(ranks, steps, 2 * steps).at(0), steps - 1 + CheckSchedule::first_check);
        for (const Rank& rank : ranks) {
          EXPECT_LE(rank.share(), budget);
          EXPECT_NEAR(rank.schedule.fraction().value_or(-1), rank.share(), budget / 20);
        }
        const double possible = cost * std::min(1.0, later) / static_cast<double>(CheckSchedule::min_period);
        EXPECT_GE(ranks[2].share(), 0.8 * std::min(budget, possible));
      }
}

TEST(CheckSchedule, InvalidTimesAndProposalsAreIgnored) {
  EXPECT_EQ(CheckSchedule(0, 0.01).proposal(), 211u) << "nothing is known";
  for (const double bad : {nan, infinite, -infinite, 0.0, -3.0}) {
    EXPECT_EQ(simulate(CheckSchedule(0, 0.01), 1000, bad, 10).size(), 9u) << "a check is one step: " << bad;
    CheckSchedule schedule(0, 0.01);
    schedule.add_step(bad);
    EXPECT_EQ(schedule.fraction(), std::nullopt);
    EXPECT_EQ(schedule.proposal(), 211u) << bad;
  }
  Answers changed = proposing(1'000'000);
  changed.back().a ^= 1u << 20;
  CheckSchedule schedule(0, 0.01);
  schedule.agree(20, {proposing(7), proposing(300), changed});
  EXPECT_EQ(schedule.period(), 300);
  schedule.agree(20, {proposing(0), changed});
  EXPECT_EQ(schedule.period(), CheckSchedule::min_period);
  EXPECT_TRUE(!schedule.due(22) && schedule.due(23));
}

}  // namespace
}  // namespace egt
