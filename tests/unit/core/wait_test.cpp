#include "egt/core/wait.hpp"

#include <gtest/gtest.h>

#include <ctime>
#include <limits>
#include <thread>

#include "egt/core/load_control.hpp"

namespace egt {
namespace {

Result<bool> never() {
  return false;
}

TEST(WaitUntil, EndsAtOnceWhenDone) {
  int polls = 0;
  const auto done = [&]() -> Result<bool> {
    ++polls;
    return true;
  };
  EXPECT_TRUE(wait_until(done, {.seconds = 0, .what = "nothing"}).ok());
  EXPECT_EQ(polls, 1);
}

TEST(WaitUntil, EndsWhenItBecomesTrue) {
  int polls = 0;
  const auto done = [&]() -> Result<bool> { return ++polls == 40; };
  EXPECT_TRUE(wait_until(done, {.seconds = 20, .what = "the fortieth poll"}).ok());
  EXPECT_EQ(polls, 40);
}

TEST(WaitUntil, TimesOutAndSaysWhatItWaitedFor) {
  const auto start = Clock::now();
  const Status status = wait_until(never, {.seconds = 0.05, .what = "the all-reduce of step 7"});
  EXPECT_EQ(status.code(), StatusCode::timeout);
  EXPECT_NE(status.what().find("the all-reduce of step 7"), std::string::npos) << status.what();
  EXPECT_GE(seconds_since(start), 0.05);
}

TEST(WaitUntil, ADeadlineThatIsNoNumberOrPastCountsAsPassed) {
  EXPECT_EQ(wait_until(never, {.seconds = std::numeric_limits<double>::quiet_NaN()}).code(),
            StatusCode::timeout);
  EXPECT_EQ(wait_until(never, {.seconds = -1}).code(), StatusCode::timeout);
}

TEST(WaitUntil, AStopEndsIt) {
  std::stop_source source;
  const std::jthread stopper([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    source.request_stop();
  });
  const Status status = wait_until(never, {.seconds = 3600, .stop = source.get_token(), .what = "a stop"});
  EXPECT_EQ(status.code(), StatusCode::stopped);
}

TEST(WaitUntil, WhatIsDoneCountsEvenWhenAStopWasAskedFor) {
  std::stop_source source;
  source.request_stop();
  const auto done = []() -> Result<bool> { return true; };
  EXPECT_TRUE(wait_until(done, {.seconds = 1, .stop = source.get_token()}).ok());
}

TEST(WaitUntil, RelaysTheErrorOfThePoll) {
  const auto broken = []() -> Result<bool> { return Status(StatusCode::aborted, "the peer is lost", 42); };
  const Status status = wait_until(broken, {.seconds = 60, .what = "a peer"});
  EXPECT_EQ(status.code(), StatusCode::aborted);
  EXPECT_EQ(status.native(), 42);
  EXPECT_EQ(status.what(), "the peer is lost");
}

TEST(WaitUntil, LeavesTheCoreToOthers) {
  const std::clock_t before = std::clock();
  EXPECT_EQ(wait_until(never, {.seconds = 0.5}).code(), StatusCode::timeout);
  const double cpu_seconds = static_cast<double>(std::clock() - before) / CLOCKS_PER_SEC;
  EXPECT_LT(cpu_seconds, 0.2) << "it must sleep, not spin";
}

}  // namespace
}  // namespace egt
