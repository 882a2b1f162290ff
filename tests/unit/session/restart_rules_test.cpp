#include "session/recovery/failure_detector.hpp"

#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/watch_fixture.hpp"

namespace egt::test {
namespace {

using testing::ElementsAre;

TEST_F(WatchRules, NoRestartsLeftIsTheEnd) {
  all_but(1, waiting(20, 3.5));
  set(1, working(20, 3.5));
  options.max_restarts = 0;
  EXPECT_EQ(decision().act, Act::give_up);
  EXPECT_THAT(lost(), ElementsAre(1));
}

TEST_F(WatchRules, TheRestartsAreCounted) {
  options.max_restarts = 2;
  order(1);
  for (auto& view : table.ranks) view.news.arrived = view.news.resumed = 1;
  table.watched_from = now - 100;
  set(1, working(20, 3.5));
  EXPECT_EQ(decision().act, Act::restart);
  order(2);
  for (auto& view : table.ranks) view.news.arrived = view.news.resumed = 2;
  EXPECT_EQ(decision().act, Act::give_up);
}

TEST_F(WatchRules, WhoComesToTheRestartIsNotJudgedAgain) {
  all_but(1, waiting(20, 3.5));
  set(1, working(20, 3.5));
  order(1, decision().losses);
  pass(4.9);
  EXPECT_EQ(decision().act, Act::none) << "the grace is 5 s";
  for (auto& view : table.ranks) view.news.arrived = 1;
  table.all_arrived_at = now;
  pass(1);
  EXPECT_EQ(decision().act, Act::none) << "what was before the arrival does not count";
  EXPECT_TRUE(restart_open(table));
  for (auto& view : table.ranks) view.news.resumed = 1;
  EXPECT_FALSE(restart_open(table));
}

TEST_F(WatchRules, WhoDoesNotComeIsLostAsItWasWhenTheTimeoutStruck) {
  all_but(1, waiting(20, 3.5));
  set(1, working(20, 3.5));
  order(1, decision().losses);
  rank(0).news.arrived = rank(2).news.arrived = 1;
  set(1, {.line = "main", .phase = "elsewhere", .step = 99, .seconds = 0.1});
  pass(10.1);
  EXPECT_EQ(decision().act, Act::give_up);
  EXPECT_THAT(lost(), ElementsAre(1));
  EXPECT_EQ(decision().losses.front().phase, "train: forward");
  EXPECT_EQ(decision().losses.front().step, 20);
  EXPECT_NEAR(decision().losses.front().seconds, 3.6, 1e-9);
  EXPECT_EQ(decision().losses.front().text, "it did not come to restart 1 within 10 s");
}

TEST_F(WatchRules, WhoDoesNotComeIsNamedAsTheOneSawItThatOrderedTheRestart) {
  Loss seen = main_threads(table, options, now)[1];
  seen.how = Loss::How::silent;
  seen.seconds = 3.4;
  order(1, {seen});
  rank(0).news.arrived = rank(2).news.arrived = 1;
  pass(10.1);
  ASSERT_THAT(lost(), ElementsAre(1));
  EXPECT_EQ(decision().losses.front().how, Loss::How::silent);
  EXPECT_EQ(decision().losses.front().seconds, 3.4);
}

TEST_F(WatchRules, AnInnocentThatDoesNotComeIsNamedAndNotTheOneThatCame) {
  all_but(1, waiting(20, 3.5));
  set(1, working(20, 3.5));
  order(1, decision().losses);
  rank(0).news.arrived = rank(1).news.arrived = 1;
  pass(10.1);
  EXPECT_THAT(lost(), ElementsAre(2));
  EXPECT_EQ(decision().losses.front().phase, "train: sums");
}

TEST_F(WatchRules, AStoppedOneDoesNotComeAndStaysSilent) {
  set(0, waiting(20, 0.1));
  set(1, waiting(20, 0.1));
  pass(3.1, 2);
  ASSERT_THAT(lost(), ElementsAre(2));
  order(1, decision().losses);
  rank(0).news.arrived = rank(1).news.arrived = 1;
  pass(10.1, 2);
  EXPECT_EQ(decision().act, Act::give_up);
  EXPECT_THAT(lost(), ElementsAre(2));
  EXPECT_EQ(decision().losses.front().how, Loss::How::silent);
  EXPECT_NEAR(decision().losses.front().seconds, 3.2, 1e-9);
}

TEST_F(WatchRules, AStoppedOneIsGivenUpAtOnceWhereAnotherHasDoneItsSteps) {
  for (const int done : {0, 2}) {
    rank(done).news.steps_ended = true;
    set(done, {.line = "main", .phase = "last words", .patience_seconds = 300, .seconds = 0.1});
  }
  pass(3.1, 1);
  EXPECT_EQ(decision().act, Act::give_up) << "who has done its steps comes to no restart";
  EXPECT_THAT(lost(), ElementsAre(1));
}

TEST_F(WatchRules, WhoHadDoneItsStepsWhenTheRestartCameIsNotMissedThere) {
  all_but(1, waiting(20, 3.5));
  set(1, working(20, 3.5));
  order(1, decision().losses);
  rank(0).news.steps_ended = true;
  rank(1).news.arrived = 1;
  pass(10.1);
  EXPECT_THAT(lost(), ElementsAre(2)) << "another that does not come";
  rank(2).news.arrived = 1;
  EXPECT_EQ(decision().act, Act::give_up);
  EXPECT_THAT(lost(), ElementsAre(1)) << "the one for which the restart was ordered";
}

TEST_F(WatchRules, AKillDuringARestartIsGivenUpAtOnce) {
  order(1);
  rank(1).gone_at = now;
  pass(0.2, 1);
  EXPECT_EQ(decision().act, Act::give_up);
  EXPECT_THAT(lost(), ElementsAre(1));
}

TEST_F(WatchRules, WhoHangsWhileTheCommunicatorIsBuiltIsFound) {
  options.max_restarts = 2;
  order(1);
  for (auto& view : table.ranks) view.news.arrived = 1;
  table.all_arrived_at = now;
  rank(0).news.resumed = rank(2).news.resumed = 1;
  all_but(1, waiting(20, 0));
  set(1, working(20, 0));
  pass(2.9);
  EXPECT_EQ(decision().act, Act::none);
  pass(0.3);
  EXPECT_EQ(decision().act, Act::restart);
  EXPECT_THAT(lost(), ElementsAre(1));
}

TEST_F(WatchRules, StepsAfterARestartAreWatchedAnew) {
  order(1);
  for (auto& view : table.ranks) view.news.arrived = view.news.resumed = 1;
  table.watched_from = now;
  set(1, working(20, 50));
  rank(1).heard_at = now;
  EXPECT_EQ(decision().act, Act::none);
}

}  // namespace
}  // namespace egt::test
