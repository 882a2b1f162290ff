#include "session/recovery/failure_detector.hpp"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/watch_fixture.hpp"

namespace egt::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

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

TEST_P(WatchRulesOfRank, TheOneWhoseDiskHoldsItsJournalIsNamedNotThoseThatWaitWithIt) {
  all_but(GetParam(), waiting(20, 3.5));
  rank(GetParam()).news.activities = {waiting(20, 3.5),
                                      {.line = "journal", .phase = "write", .seconds = 3.2}};
  EXPECT_THAT(lost(), ElementsAre(GetParam()));
  EXPECT_EQ(decision().losses.front().phase, "journal: write");
  EXPECT_EQ(decision().losses.front().text,
            "the disk of the run directory does not complete a write; use another --output");
  EXPECT_EQ(decision().losses.front().step, 20);
  EXPECT_NEAR(decision().losses.front().seconds, 3.3, 1e-9);
}

TEST_P(WatchRulesOfRank, AStoppedOneThatWasWritingItsJournalIsNotHeldUpByThat) {
  if (GetParam() == 0) table.self = 1;
  all_but(GetParam(), waiting(20, 0.5));
  rank(GetParam()).news.activities = {working(20, 0.1),
                                      {.line = "journal", .phase = "write", .seconds = 0.01}};
  pass(3, GetParam());
  EXPECT_THAT(lost(), ElementsAre(GetParam()));
  EXPECT_EQ(decision().losses.front().how, Loss::How::silent);
  EXPECT_EQ(decision().losses.front().phase, "train: forward");
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

TEST_F(WatchRules, WhoFailsBecauseOfARestartThatItCannotJoinIsNotNamed) {
  Loss silent;
  silent.rank = 1;
  table.order = {.number = 1, .waited_for = {silent}};
  table.ordered_at = now - 0.2;
  for (const int interrupted : {0, 2}) {
    rank(interrupted).news.failed = "the communicator was aborted";
    rank(interrupted).news.by_restart = true;
    rank(interrupted).failed_at = now - 0.2;
  }
  EXPECT_EQ(decision().act, Act::give_up);
  EXPECT_THAT(lost(), ElementsAre(1));
  EXPECT_EQ(decision().losses.front().text, "the ranks can restart only in their steps");
  rank(2).news.by_restart = false;  // the restart has another cause
  EXPECT_THAT(lost(), ElementsAre(2));
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
  options.collective_timeout_seconds = 1.2;  // below the min silence
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

/// Rank 1 waits for its own disk, and all other ranks wait in a collective for rank 1.
TEST_F(WatchRules, AFileOperationThatDoesNotReturnIsBlamedBeforeAnyCollective) {
  const Activity write{.line = "file",
                       .phase = "write",
                       .patience_seconds = 120,
                       .seconds = 4,
                       .file = "/mnt/a",
                       .task_state = "D"};
  for (int one : {0, 1, 2}) set(one, waiting(20, 3.5));
  rank(1).news.activities.push_back(write);
  const WatchDecision blocked = decision();
  EXPECT_EQ(blocked.act, Act::give_up) << "no restart ends a system call";
  ASSERT_THAT(lost(), ElementsAre(1));
  EXPECT_EQ(blocked.losses.front().phase, "file: write");
  EXPECT_EQ(blocked.losses.front().text,
            "write of /mnt/a has not returned for 4.1 s (task state D: it waits for the disk)");
  rank(1).news.activities.back().seconds = 1;
  EXPECT_EQ(decision().act, Act::restart) << "a short one explains nothing";
  rank(1).heard_at = now - 10;
  EXPECT_EQ(decision().losses.front().how, Loss::How::silent) << "it was stopped in the middle of one";
}

TEST_F(WatchRules, TheJournalsDiskIsNamedWithTheMainThreadThatWritesToIt) {
  set(1, waiting(20, 3.5));
  rank(1).news.activities.push_back(
      {.line = "journal", .phase = "write", .seconds = 4, .file = "the journal", .task_state = "D"});
  const WatchDecision stuck = decision();
  EXPECT_EQ(stuck.act, Act::restart) << "a slow disk may answer meanwhile";
  ASSERT_THAT(lost(), ElementsAre(1));
  EXPECT_THAT(stuck.losses.front().text, HasSubstr("write of the journal has not returned for"));
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

TEST_F(WatchRules, WhoSleptItselfNamesNobody) {
  pass(60, 1);
  pass(0, 2);
  rank(2).heard_at = now - 60;
  set(0, waiting(20, 60));
  EXPECT_EQ(decision().act, Act::restart) << "it was awake: they are silent";
  table.watched_from = now;  // the process was suspended
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
  rank(1).heard_at = now;  // time of the start
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
  EXPECT_EQ(deputy({loss(0, Loss::How::failed)}, 2), 0) << "it has the records of all ranks";
  EXPECT_EQ(deputy({loss(0, Loss::How::stuck), loss(1, Loss::How::failed)}, 3), 1);
}

TEST_F(WatchRules, OfAStopThatComesLateTheMainThreadsAreToldThatAreStillThere) {
  set(0, waiting(20, 6));
  set(1, working(19, 6.5));
  rank(2).left = true;
  const auto stops = late_stops(table, now);
  ASSERT_THAT(stops, SizeIs(2));
  EXPECT_EQ(stops[0].rank, 0);
  EXPECT_TRUE(stops[0].waits_for_peers);
  EXPECT_EQ(stops[1].rank, 1);
  EXPECT_EQ(stops[1].phase, "train: forward");
  EXPECT_EQ(stops[1].step, 19);
  EXPECT_FALSE(stops[1].waits_for_peers);
  EXPECT_NEAR(stops[1].seconds, 6.6, 1e-9);
}

}  // namespace
}  // namespace egt::test
