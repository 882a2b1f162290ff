#include "session/recovery/failure_detector.hpp"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/watch_fixture.hpp"

namespace egt::test {
namespace {

using testing::ElementsAre;

TEST(WatchNews, ComeBackFromTheirText) {
  WatchNews news;
  news.activities = {waiting(7, 1.5),
                     {.line = "file",
                      .phase = "write \xff",
                      .patience_seconds = 30,
                      .seconds = 2,
                      .file = "/a",
                      .task_state = "D"}};
  news.activities[0].beats = true;
  news.failed = "why";
  news.fault = {{"kind", "device-error"}, {"step", 7}};
  news.arrived = 2;
  news.resumed = 1;
  news.steps_ended = true;
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
  EXPECT_TRUE(again->activities[0].beats);
  EXPECT_EQ(again->activities[1].line, "file");
  EXPECT_EQ(again->activities[1].patience_seconds, 30);
  EXPECT_EQ(again->activities[1].file, "/a");
  EXPECT_EQ(again->activities[1].task_state, "D");
  EXPECT_EQ(again->failed, "why");
  EXPECT_EQ(again->fault, news.fault);
  EXPECT_EQ(again->arrived, 2);
  EXPECT_EQ(again->resumed, 1);
  EXPECT_TRUE(again->steps_ended);
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
}  // namespace egt::test
