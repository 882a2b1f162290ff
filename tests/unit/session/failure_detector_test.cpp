#include "session/recovery/failure_detector.hpp"

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace egt {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using Act = WatchDecision::Act;

Activity working(std::int64_t step, double seconds, double patience = 0) {
  return {.line = "main",
          .phase = "train: forward",
          .step = step,
          .patience_seconds = patience,
          .seconds = seconds};
}

Activity waiting(std::int64_t step, double seconds) {
  return {.line = "main", .phase = "train: sums", .step = step, .waits_for_peers = true, .seconds = seconds};
}

/// Ranks that all do well at `now`; a test changes what it is about.
struct WatchRules : testing::Test {
  explicit WatchRules(int size = 3) {
    for (int rank = 0; rank < size; ++rank) {
      RankView view;
      view.who = {"node" + std::to_string(rank), "uuid" + std::to_string(rank)};
      view.news.activities = {working(20, 0.1)};
      view.heard_at = now - 0.1;
      table.ranks.push_back(view);
    }
  }

  RankView& rank(int number) { return table.ranks[static_cast<std::size_t>(number)]; }
  void set(int number, const Activity& main) { rank(number).news.activities = {main}; }
  void all_but(int number, const Activity& main) {
    for (int other = 0; other < static_cast<int>(table.ranks.size()); ++other)
      if (other != number) set(other, main);
  }
  /// Time passes, and all but `silent` still send the same.
  void pass(double seconds, int silent = -1) {
    now += seconds;
    for (int other = 0; other < static_cast<int>(table.ranks.size()); ++other) {
      if (other == silent || !table.ranks[static_cast<std::size_t>(other)].news.activities.size()) continue;
      rank(other).heard_at += seconds;
      for (Activity& activity : rank(other).news.activities) activity.seconds += seconds;
    }
  }
  void order(int number, std::vector<Loss> waited_for = {}) {
    table.as_ordered = main_threads(table, options, now);
    table.order = {number, std::move(waited_for)};
    table.ordered_at = now;
    table.all_arrived_at.reset();
  }
  WatchDecision decision() const { return judge(table, options, now); }
  std::vector<int> lost() const {
    std::vector<int> ranks;
    for (const Loss& loss : decision().losses) ranks.push_back(loss.rank);
    return ranks;
  }

  WatchTable table;
  WatchOptions options{.collective_timeout_seconds = 3, .max_restarts = 1};
  double now = 1000;
};

struct WatchRulesAlone : WatchRules {
  WatchRulesAlone() : WatchRules(1) {}
};

TEST_F(WatchRules, AllWellIsNoCase) {
  EXPECT_EQ(decision().act, Act::none);
  set(1, waiting(19, 2.8));
  EXPECT_EQ(decision().act, Act::none);
}

class WatchRulesOfRank : public WatchRules, public testing::WithParamInterface<int> {};
INSTANTIATE_TEST_SUITE_P(EachRank, WatchRulesOfRank, testing::Values(0, 1, 2));

TEST_P(WatchRulesOfRank, TheOneThatHangsIsNamedNotThoseThatWait) {
  all_but(GetParam(), waiting(20, 3.5));
  set(GetParam(), working(20, 3.2));
  EXPECT_EQ(decision().act, Act::restart);
  EXPECT_THAT(lost(), ElementsAre(GetParam()));
  const Loss loss = decision().losses.front();
  EXPECT_EQ(loss.how, Loss::How::stuck);
  EXPECT_EQ(loss.phase, "train: forward");
  EXPECT_EQ(loss.step, 20);
  EXPECT_EQ(loss.hostname, "node" + std::to_string(GetParam()));
  EXPECT_EQ(loss.device_uuid, "uuid" + std::to_string(GetParam()));
  EXPECT_NEAR(loss.seconds, 3.3, 1e-9) << "0.1 s passed since the news came";
}

TEST_P(WatchRulesOfRank, WhereAllWaitTheHindmostIsNamed) {
  all_but(GetParam(), waiting(21, 3.5));
  set(GetParam(), waiting(20, 3.5));
  EXPECT_EQ(decision().act, Act::restart);
  EXPECT_THAT(lost(), ElementsAre(GetParam()));
}

TEST_P(WatchRulesOfRank, AStoppedOneIsSilentAfterTheTimeout) {
  if (GetParam() == 0) table.self = 1;
  all_but(GetParam(), waiting(20, 0.5));
  set(GetParam(), working(20, 0.1));
  pass(2.8, GetParam());
  EXPECT_EQ(decision().act, Act::none) << "the others wait 3.4 s, but its 3 s are not over";
  pass(0.2, GetParam());
  EXPECT_EQ(decision().act, Act::restart);
  EXPECT_THAT(lost(), ElementsAre(GetParam()));
  EXPECT_EQ(decision().losses.front().how, Loss::How::silent);
  EXPECT_EQ(decision().losses.front().phase, "train: forward");
  EXPECT_NEAR(decision().losses.front().seconds, 3.1, 1e-9);
}

TEST_P(WatchRulesOfRank, AKilledOneIsGivenUpAtOnce) {
  if (GetParam() == 0) table.self = 1;
  rank(GetParam()).gone_at = now;
  EXPECT_EQ(decision().act, Act::none) << "others may end in the same moment";
  pass(0.15, GetParam());
  EXPECT_EQ(decision().act, Act::give_up);
  EXPECT_THAT(lost(), ElementsAre(GetParam()));
  EXPECT_EQ(decision().losses.front().how, Loss::How::vanished);
  EXPECT_EQ(decision().losses.front().phase, "train: forward");
  EXPECT_NEAR(decision().losses.front().seconds, 0.2, 1e-9) << "up to its end";
}

TEST_P(WatchRulesOfRank, WhoSaidGoodbyeIsNeverMissed) {
  if (GetParam() == 0) table.self = 1;
  rank(GetParam()).left = true;
  pass(100, GetParam());
  for (auto& view : table.ranks)
    if (!view.left) view.news.activities = {working(20, 0.1)};
  EXPECT_EQ(decision().act, Act::none);
}

TEST_F(WatchRules, SeveralThatEndTogetherAreNamedTogether) {
  rank(1).gone_at = now;
  rank(2).gone_at = now + 0.05;
  now += 0.15;
  EXPECT_THAT(lost(), ElementsAre(1, 2));
}

TEST_F(WatchRules, AFailureIsToldWithItsReason) {
  rank(2).news.failed = "device 0 answers no more";
  rank(2).failed_at = now - 0.2;
  EXPECT_EQ(decision().act, Act::give_up);
  EXPECT_THAT(lost(), ElementsAre(2));
  EXPECT_EQ(decision().losses.front().how, Loss::How::failed);
  EXPECT_EQ(decision().losses.front().text, "device 0 answers no more");
}

TEST_F(WatchRules, WhoFailsBecauseAnotherVanishedIsNotNamed) {
  rank(0).news.failed = "the all-reduce of step 20: connection reset";
  rank(0).failed_at = now;
  rank(1).gone_at = now + 0.03;
  now += 0.12;
  EXPECT_THAT(lost(), ElementsAre(1));
}

TEST_F(WatchRules, WhoFailedAndThenEndedHasFailed) {
  rank(1).news.failed = "no memory";
  rank(1).failed_at = rank(1).gone_at = now - 1;
  EXPECT_EQ(decision().losses.front().how, Loss::How::failed);
}

TEST_F(WatchRules, EqualOnesAreAllNamedAndSaidToBeAmbiguous) {
  for (int one : {0, 1, 2}) set(one, waiting(20, 3.5));
  EXPECT_EQ(decision().act, Act::restart);
  EXPECT_THAT(lost(), ElementsAre(0, 1, 2));
  EXPECT_THAT(decision().losses.front().text, HasSubstr("not known"));
}

TEST_F(WatchRules, SeveralThatHangAreAllNamed) {
  set(0, waiting(20, 3.5));
  set(1, working(20, 3.5));
  set(2, working(20, 4.5));
  EXPECT_THAT(lost(), ElementsAre(1, 2));
  EXPECT_THAT(decision().losses.front().text, IsEmpty());
}

TEST_F(WatchRules, AStoppedAndAHungOneAreBothNamed) {
  set(0, waiting(20, 0));
  set(1, working(20, 0));
  pass(3.5, 2);
  EXPECT_THAT(lost(), ElementsAre(1, 2));
  EXPECT_EQ(decision().losses.front().how, Loss::How::stuck);
  EXPECT_EQ(decision().losses.back().how, Loss::How::silent);
}

TEST_F(WatchRules, NoJudgementOverOthersWhileOneMayBeSilent) {
  options.collective_timeout_seconds = 1.2;  // less than the least silence
  all_but(2, waiting(20, 0.1));
  pass(1.5, 2);
  EXPECT_EQ(decision().act, Act::none);
  pass(0.6, 2);
  EXPECT_THAT(lost(), ElementsAre(2));
  EXPECT_EQ(decision().losses.front().how, Loss::How::silent);
}

TEST_F(WatchRules, ThoseWhoFallSilentOneAfterTheOtherAreNamedTogether) {
  const double last_word = now;
  now += 3.1;
  rank(0).heard_at = now;
  rank(1).heard_at = last_word;
  rank(2).heard_at = last_word + 0.2;
  EXPECT_EQ(decision().act, Act::none) << "rank 2 has said nothing for a while either";
  now += 0.2;
  rank(0).heard_at = now;
  EXPECT_THAT(lost(), ElementsAre(1, 2));
}

TEST_F(WatchRules, LongPatienceIsKept) {
  set(1, working(20, 50, 60));
  EXPECT_EQ(decision().act, Act::none);
  set(1, working(20, 61, 60));
  EXPECT_THAT(lost(), ElementsAre(1));
}

TEST_F(WatchRules, WhoWaitsForOneThatMayTakeLongIsNotStuck) {
  all_but(1, waiting(20, 30));
  set(1, working(20, 30, 60));
  EXPECT_EQ(decision().act, Act::none);
  set(1, working(20, 61, 60));
  EXPECT_THAT(lost(), ElementsAre(1));
}

TEST_F(WatchRules, WhoMakesSmallStepsButHoldsAllUpIsNamed) {
  all_but(1, waiting(20, 3.5));
  set(1, working(19, 0.5));
  EXPECT_EQ(decision().act, Act::restart);
  EXPECT_THAT(lost(), ElementsAre(1));
}

TEST_F(WatchRules, WhoWorksAtTheStepThatAllWaitForIsNamedAlone) {
  all_but(1, waiting(20, 3.5));
  set(1, working(20, 0.5));
  EXPECT_THAT(lost(), ElementsAre(1));
}

TEST_F(WatchRules, WhoRestsIsNotStuck) {
  set(1, {.line = "main", .phase = "", .seconds = 100});
  EXPECT_EQ(decision().act, Act::none);
}

TEST_F(WatchRules, ABackgroundThreadHasItsOwnPatience) {
  Activity file{.line = "file", .phase = "write", .patience_seconds = 30, .seconds = 29};
  rank(2).news.activities.push_back(file);
  EXPECT_EQ(decision().act, Act::none);
  rank(2).news.activities.back().seconds = 31;
  EXPECT_EQ(decision().act, Act::give_up) << "a restart does not help";
  EXPECT_THAT(lost(), ElementsAre(2));
  EXPECT_EQ(decision().losses.front().phase, "file: write");
  EXPECT_EQ(decision().losses.front().step, 20) << "of its training";
  EXPECT_NEAR(decision().losses.front().seconds, 31.1, 1e-9);
}

TEST_F(WatchRules, ABackgroundThreadWithoutPatienceHasALongOne) {
  Activity memory{.line = "memory", .phase = "patrol", .seconds = 150};
  EXPECT_EQ(watch::patience(memory, options), 120);
  options.collective_timeout_seconds = 40;
  EXPECT_EQ(watch::patience(memory, options), 160);
  rank(2).news.activities.push_back(memory);
  EXPECT_EQ(decision().act, Act::none);
  rank(2).news.activities.back().seconds = 161;
  EXPECT_EQ(decision().act, Act::give_up);
}

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
  pass(5.1);
  EXPECT_EQ(decision().act, Act::give_up);
  EXPECT_THAT(lost(), ElementsAre(1));
  EXPECT_EQ(decision().losses.front().phase, "train: forward");
  EXPECT_EQ(decision().losses.front().step, 20);
  EXPECT_NEAR(decision().losses.front().seconds, 3.6, 1e-9);
  EXPECT_EQ(decision().losses.front().text, "it did not come to restart 1 within 5 s");
}

TEST_F(WatchRules, WhoDoesNotComeIsNamedAsTheOneSawItThatOrderedTheRestart) {
  Loss seen = main_threads(table, options, now)[1];
  seen.how = Loss::How::silent;
  seen.seconds = 3.4;
  order(1, {seen});
  rank(0).news.arrived = rank(2).news.arrived = 1;
  pass(5.1);
  ASSERT_THAT(lost(), ElementsAre(1));
  EXPECT_EQ(decision().losses.front().how, Loss::How::silent);
  EXPECT_EQ(decision().losses.front().seconds, 3.4);
}

TEST_F(WatchRules, AnInnocentThatDoesNotComeIsNamedAndNotTheOneThatCame) {
  all_but(1, waiting(20, 3.5));
  set(1, working(20, 3.5));
  order(1, decision().losses);
  rank(0).news.arrived = rank(1).news.arrived = 1;
  pass(5.1);
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
  pass(5.1, 2);
  EXPECT_EQ(decision().act, Act::give_up);
  EXPECT_THAT(lost(), ElementsAre(2));
  EXPECT_EQ(decision().losses.front().how, Loss::How::silent);
  EXPECT_NEAR(decision().losses.front().seconds, 3.2, 1e-9);
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

TEST_F(WatchRules, TheGraceFollowsTheTimeoutWithinLimits) {
  for (const auto& [timeout, grace] : {std::pair{1.0, 5.0}, {7.0, 7.0}, {30.0, 10.0}})
    EXPECT_EQ(watch::arrival_grace({.collective_timeout_seconds = timeout}), grace);
}

TEST_F(WatchRules, WhoSleptItselfNamesNobody) {
  pass(60, 1);
  pass(0, 2);
  rank(2).heard_at = now - 60;
  set(0, waiting(20, 60));
  EXPECT_EQ(decision().act, Act::restart) << "it was awake: they are silent";
  table.watched_from = now;  // it was asleep
  EXPECT_EQ(decision().act, Act::none);
  EXPECT_EQ(leader(table, options, now), 0);
  now += 2.9;
  EXPECT_EQ(decision().act, Act::none) << "they have the whole time again";
  now += 0.2;
  EXPECT_EQ(decision().act, Act::restart);
}

TEST_F(WatchRules, AVanishedPeerAfterAStopSignalIsNoLoss) {
  rank(1).gone_at = now;
  rank(1).gone_in_stop = true;
  all_but(1, waiting(20, 3.5));
  pass(1, 1);
  EXPECT_EQ(decision().act, Act::none) << "nor are those stuck that wait for it";
}

TEST_F(WatchRules, WhoOutlivesTheSignalCallsTheVanishedOnesLost) {
  rank(1).gone_at = now;
  rank(1).gone_in_stop = true;
  pass(5.1, 1);
  EXPECT_EQ(decision().act, Act::give_up);
  EXPECT_THAT(lost(), ElementsAre(1));
}

TEST_F(WatchRules, ANewcomerThatNeverSpokeIsSilent) {
  rank(1).news = {};
  rank(1).heard_at = now;  // the start
  table.watched_from = now;
  pass(3.1, 1);
  all_but(1, working(20, 0.1));
  EXPECT_THAT(lost(), ElementsAre(1));
  EXPECT_THAT(decision().losses.front().phase, IsEmpty());
  EXPECT_EQ(decision().losses.front().step, -1);
}

TEST_F(WatchRulesAlone, ItNamesItselfAndDoesNotRestart) {
  set(0, working(20, 3.5));
  EXPECT_EQ(decision().act, Act::give_up);
  EXPECT_THAT(lost(), ElementsAre(0));
}

TEST_F(WatchRulesAlone, ItsSleepIsNotItsFault) {
  set(0, working(20, 60));
  table.watched_from = now - 1;
  EXPECT_EQ(decision().act, Act::none);
}

TEST_F(WatchRulesAlone, ItsFailureEndsItAtOnce) {
  rank(0).news.failed = "no device";
  rank(0).failed_at = now;
  EXPECT_EQ(decision().act, Act::give_up);
}

TEST_F(WatchRules, TheLastOneThatIsLeftDoesNotRestart) {
  rank(1).left = rank(2).left = true;
  set(0, working(20, 3.5));
  EXPECT_EQ(decision().act, Act::give_up);
}

TEST_F(WatchRules, TheLowestThatAnswersLeads) {
  table.self = 2;
  EXPECT_EQ(leader(table, options, now), 0);
  rank(0).gone_at = now;
  EXPECT_EQ(leader(table, options, now), 1);
  rank(1).heard_at = now - 3.1;
  EXPECT_EQ(leader(table, options, now), 2);
}

TEST(Deputy, IsTheLowestSurvivor) {
  const auto loss = [](int rank, Loss::How how) {
    Loss lost;
    lost.rank = rank;
    lost.how = how;
    return lost;
  };
  EXPECT_EQ(deputy({}, 3), 0);
  EXPECT_EQ(deputy({loss(2, Loss::How::vanished)}, 3), 0);
  EXPECT_EQ(deputy({loss(0, Loss::How::silent)}, 3), 1);
  EXPECT_EQ(deputy({loss(0, Loss::How::stuck), loss(1, Loss::How::vanished)}, 3), 2);
  EXPECT_EQ(deputy({loss(0, Loss::How::silent), loss(1, Loss::How::stuck)}, 2), 1) << "all are lost";
  EXPECT_EQ(deputy({loss(0, Loss::How::stuck)}, 1), 0);
}

TEST(WatchNews, ComeBackFromTheirText) {
  WatchNews news;
  news.activities = {waiting(7, 1.5),
                     {.line = "file", .phase = "write \xff", .patience_seconds = 30, .seconds = 2}};
  news.failed = "why";
  news.arrived = 2;
  news.resumed = 1;
  Loss loss;
  loss.how = Loss::How::silent;
  loss.rank = 3;
  loss.hostname = "node";
  loss.device_uuid = "uuid";
  loss.phase = "train";
  loss.step = 8;
  loss.seconds = 4.5;
  loss.text = "text";
  news.order = {2, {loss}};
  news.given_up = {loss, {}};
  news.words = {"result"};
  const auto again = parse_watch_news(to_text(news));
  ASSERT_TRUE(again);
  ASSERT_EQ(again->activities.size(), 2u);
  EXPECT_EQ(again->activities[0].phase, "train: sums");
  EXPECT_EQ(again->activities[0].step, 7);
  EXPECT_TRUE(again->activities[0].waits_for_peers);
  EXPECT_EQ(again->activities[0].seconds, 1.5);
  EXPECT_EQ(again->activities[1].line, "file");
  EXPECT_EQ(again->activities[1].patience_seconds, 30);
  EXPECT_EQ(again->failed, "why");
  EXPECT_EQ(again->arrived, 2);
  EXPECT_EQ(again->resumed, 1);
  EXPECT_EQ(again->order.number, 2);
  ASSERT_EQ(again->order.waited_for.size(), 1u);
  EXPECT_EQ(to_json(again->order.waited_for[0]), to_json(loss));
  EXPECT_EQ(again->given_up.size(), 2u);
  EXPECT_THAT(again->words, ElementsAre("result"));
}

TEST(WatchNews, OtherTextsAreNone) {
  for (const char* text : {"", "{}", "[1]", "{\"activities\": 3}", "{\"activ"})
    EXPECT_FALSE(parse_watch_news(text));
}

}  // namespace
}  // namespace egt
