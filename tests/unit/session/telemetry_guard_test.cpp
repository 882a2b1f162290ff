#include <thread>

#include <gtest/gtest.h>

#include "tests/support/telemetry_fixture.hpp"

namespace egt::test {
namespace {

TEST(Telemetry, ItsGuardLowersTheLoadAndTellsWhy) {
  Guarded guarded;
  const auto sensor = std::make_shared<FakeSensor>();
  sensor->hot = true;
  Telemetry telemetry(sensor, 0.02, Clock::now(), guarded.guarding());
  wait_for_reads(*sensor, 10);
  telemetry.stop();
  EXPECT_LT(guarded.load.duty(), 1);
  const Json summary = telemetry.summary();
  EXPECT_EQ(summary["duty"]["last"], guarded.load.duty());
  EXPECT_LT(summary["duty"]["min"], 1);
  EXPECT_EQ(summary["memory_share"]["last"], 1);
  EXPECT_GT(summary["guard"]["heat_seconds"], 0);
  const auto notices = guarded.reported(RecordKind::notice);
  ASSERT_EQ(notices.size(), 2u);
  EXPECT_EQ(notices[1]["level"], "warning");
  EXPECT_TRUE(guarded.reported(RecordKind::finding).empty()) << "less than 2 s: a warning only";
}

TEST(Telemetry, ItsMixControlSetsTheShareOfProductsAndTellsOfASensorThatLies) {
  Guarded guarded;
  const auto sensor = std::make_shared<FakeSensor>();  // soon above its limit
  sensor->counts_energy = false;
  guarded.load.set_products_duty(0.5);
  Telemetry telemetry(sensor, 0.02, Clock::now(), guarded.guarding_by_clock());
  for (; telemetry.summary()["mix"]["power_sensor"].is_null() && guarded.now < 400;
       guarded.now = guarded.now + 1)
    wait_for_reads(*sensor, sensor->reads + 2);
  telemetry.stop();
  const Json summary = telemetry.summary();
  EXPECT_EQ(summary["products_duty"]["last"], 1.0);
  EXPECT_EQ(summary["mix"]["control"], "the power sensor is wrong");
  int reported = 0;
  for (const Json& notice : guarded.reported(RecordKind::notice))
    reported += notice["text"].get<std::string>().starts_with("the power sensor cannot be right: ");
  EXPECT_EQ(reported, 1);
}

TEST(Telemetry, AMixThatIsFixedIsToldWithTheReason) {
  Guarded guarded;
  Guarding guarding = guarded.guarding();
  guarding.fixed_mix = "pulse";
  Telemetry telemetry(std::make_shared<FakeSensor>(), 0.02, Clock::now(), guarding);
  telemetry.stop();
  EXPECT_EQ(telemetry.summary()["mix"]["control"], "pulse");
}

TEST(Telemetry, ItsGuardLooksOnceASecondWhateverTheSampleRate) {
  Guarded guarded;
  const auto sensor = std::make_shared<FakeSensor>();
  Telemetry telemetry(sensor, 60, Clock::now(), guarded.guarding());
  sensor->hot = true;
  const Clock::time_point start = Clock::now();
  while (guarded.load.duty() >= 1 && seconds_since(start) < 5)
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_LT(guarded.load.duty(), 1);
}

TEST(Telemetry, ItsGuardJudgesTheRunAtTheEndAndOnce) {
  Guarded guarded;
  const auto sensor = std::make_shared<FakeSensor>();  // thermally throttled in every sample
  Telemetry telemetry(sensor, 0.05, Clock::now(), guarded.guarding());
  std::this_thread::sleep_for(std::chrono::milliseconds(2400));
  telemetry.stop();
  telemetry.stop();
  const auto findings = guarded.reported(RecordKind::finding);
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0]["kind"], "throttle");
  EXPECT_EQ(findings[0]["rank"], 2);
}

TEST(Telemetry, AGuardThatIsLeftBehindTouchesNothingMore) {
  auto guarded = std::make_unique<Guarded>();
  const auto sensor = std::make_shared<FakeSensor>();
  sensor->hot = sensor->hang = true;
  auto telemetry = std::make_unique<Telemetry>(sensor, 0.02, Clock::now(), guarded->guarding());
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  telemetry->stop(0.05);
  telemetry.reset();
  EXPECT_EQ(guarded->load.duty(), 1);
  sensor->hang = false;
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_EQ(guarded->load.duty(), 1) << "what it read came too late";
  EXPECT_EQ(sensor->reads, 1) << "and it looks no more";
  guarded.reset();
}

TEST(Telemetry, WithoutAGuardTheFiguresOfItAreNull) {
  Telemetry telemetry(std::make_shared<FakeSensor>(), 0.02, Clock::now());
  telemetry.stop();
  for (const char* name : {"duty", "memory_share", "products_duty", "guard", "mix"})
    EXPECT_TRUE(telemetry.summary()[name].is_null()) << name;
}

TEST(Telemetry, WhatTheSensorCannotTellIsToldOnce) {
  Guarded guarded;
  Telemetry telemetry(std::make_shared<FakeSensor>(), 0.02, Clock::now(), guarded.guarding());
  telemetry.stop();
  const auto notices = guarded.reported(RecordKind::notice);
  ASSERT_EQ(notices.size(), 1u);
  EXPECT_EQ(notices[0],
            Json({{"level", "info"}, {"text", "rank 2: not reported: Xid events: Not Supported"}}));
}

TEST(Telemetry, WhatMovedBeforeTheFirstSampleIsAFaultToo) {
  Guarded guarded;
  const auto sensor = std::make_shared<FakeSensor>();
  Guarding guarding = guarded.guarding();
  guarding.counters_before = sensor->counters();
  sensor->uncorrected = 5;  // during preparation
  Telemetry telemetry(sensor, 0.02, Clock::now(), guarding);
  telemetry.stop();
  EXPECT_EQ(guarded.reported(RecordKind::fault).size(), 1u);
  EXPECT_EQ(telemetry.counters()["ecc_uncorrected"]["before"], 3);
}

TEST(Telemetry, ACounterThatMovesIsOneFaultWithStepAndPhase) {
  Guarded guarded;
  const auto sensor = std::make_shared<FakeSensor>();
  Telemetry telemetry(sensor, 0.02, Clock::now(), guarded.guarding_by_clock());
  guarded.board.line("file").begin("write", 16);
  guarded.board.line("main").begin("train: sums", 17);
  sensor->uncorrected = 5;
  guarded.now = 105;
  guarded.wait_for_fault();
  guarded.board.line("main").begin("step", 18);
  sensor->uncorrected = 6;
  guarded.now = 110;
  telemetry.stop();
  const auto faults = guarded.reported(RecordKind::fault);
  ASSERT_EQ(faults.size(), 1u);
  const Json& fault = faults[0];
  EXPECT_EQ(fault["kind"], "ecc");
  EXPECT_EQ(fault["detector"], "NVML");
  EXPECT_EQ(fault["rank"], 2);
  EXPECT_EQ(fault["hostname"], "node7");
  EXPECT_EQ(fault["device_uuid"], "GPU-2");
  EXPECT_EQ(fault["step"], 17);
  EXPECT_EQ(fault["phase"], "train: sums");
  EXPECT_EQ(fault["expected"], "3");
  EXPECT_EQ(fault["actual"], "5");
  EXPECT_EQ(telemetry.counters()["ecc_uncorrected"],
            Json({{"before", 3}, {"after", 6}, {"moved", {{"train: sums", 2}, {"step", 1}}}}));
}

TEST(Telemetry, TheLastLookAtTheCountersIsJudged) {
  Guarded guarded;
  const auto sensor = std::make_shared<FakeSensor>();
  Telemetry telemetry(sensor, 0.02, Clock::now(), guarded.guarding_by_clock());
  guarded.board.line("main").begin("finish", 29);
  sensor->uncorrected = 4;
  telemetry.stop();
  const auto faults = guarded.reported(RecordKind::fault);
  ASSERT_EQ(faults.size(), 1u);
  EXPECT_EQ(faults[0]["phase"], "finish");
  EXPECT_EQ(faults[0]["step"], 29);
}

TEST(Telemetry, AnXidOfTheHardwareIsAFault) {
  Guarded guarded;
  const auto sensor = std::make_shared<FakeSensor>();
  Telemetry telemetry(sensor, 0.02, Clock::now(), guarded.guarding_by_clock());
  sensor->xid = 48;
  guarded.now = 105;
  guarded.wait_for_fault();
  telemetry.stop();
  const auto faults = guarded.reported(RecordKind::fault);
  ASSERT_EQ(faults.size(), 1u);
  EXPECT_EQ(faults[0]["kind"], "xid");
  EXPECT_EQ(faults[0]["actual"], "48");
  EXPECT_EQ(faults[0]["phase"], "idle") << "nothing is on the board";
}

TEST(Telemetry, AnXidOfAProgramIsANotice) {
  Guarded guarded;
  const auto sensor = std::make_shared<FakeSensor>();
  Telemetry telemetry(sensor, 0.02, Clock::now(), guarded.guarding_by_clock());
  sensor->xid = 13;
  telemetry.stop();
  EXPECT_FALSE(guarded.records.has_fault());
  const auto notices = guarded.reported(RecordKind::notice);
  ASSERT_EQ(notices.size(), 2u);
  EXPECT_NE(notices[1]["text"].get<std::string>().find("Xid 13"), std::string::npos);
}

TEST(Telemetry, ALostDeviceIsOneFault) {
  Guarded guarded;
  const auto sensor = std::make_shared<FakeSensor>();
  Telemetry telemetry(sensor, 0.02, Clock::now(), guarded.guarding_by_clock());
  guarded.board.line("main").begin("step", 8);
  sensor->lost = true;
  guarded.now = 105;
  guarded.wait_for_fault();
  telemetry.stop();
  const auto faults = guarded.reported(RecordKind::fault);
  ASSERT_EQ(faults.size(), 1u);
  EXPECT_EQ(faults[0]["kind"], "gpu-lost");
  EXPECT_EQ(faults[0]["where"], "lost");
  EXPECT_EQ(faults[0]["step"], 8);
}

TEST(Telemetry, WhatWasSoBeforeTheRunIsAFinding) {
  Guarded guarded;
  const auto sensor = std::make_shared<FakeSensor>();
  sensor->pending = true;
  Telemetry telemetry(sensor, 0.02, Clock::now(), guarded.guarding_by_clock());
  sensor->pending = false;
  telemetry.stop();
  EXPECT_FALSE(guarded.records.has_fault());
  const auto findings = guarded.reported(RecordKind::finding);
  ASSERT_EQ(findings.size(), 1u) << "the first look is made before the load";
  EXPECT_EQ(findings[0]["kind"], "remap");
}

TEST(Telemetry, ASensorThatStallsIsOneFindingAndStopDoesNotWaitForIt) {
  Guarded guarded;
  const auto sensor = std::make_shared<FakeSensor>();
  Telemetry telemetry(sensor, 0.02, Clock::now(), guarded.guarding_by_clock());
  telemetry.ask_overdue();
  EXPECT_TRUE(guarded.reported(RecordKind::finding).empty());
  sensor->counters_hang = true;
  for (guarded.now = 105; guarded.now < 130; guarded.now = guarded.now + 1) telemetry.ask_overdue();
  const auto findings = guarded.reported(RecordKind::finding);
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0]["kind"], "sensor");
  EXPECT_EQ(findings[0]["text"], "NVML does not answer since 15 s");
  telemetry.stop(0.1);
  const auto notices = guarded.reported(RecordKind::notice);
  ASSERT_EQ(notices.size(), 2u);
  EXPECT_EQ(notices[1]["level"], "warning");
  EXPECT_NE(notices[1]["text"].get<std::string>().find("NVML does not answer at the end"), std::string::npos);
  sensor->uncorrected = 9;
  sensor->counters_hang = false;
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_EQ(telemetry.counters()["ecc_uncorrected"]["after"], 3) << "it came too late";
  EXPECT_TRUE(guarded.reported(RecordKind::fault).empty());
}

TEST(Telemetry, AStallThatNobodyAskedAboutIsToldAtTheEnd) {
  Guarded guarded;
  const auto sensor = std::make_shared<FakeSensor>();
  Telemetry telemetry(sensor, 0.02, Clock::now(), guarded.guarding_by_clock());
  sensor->hang = true;
  guarded.now = 120;
  telemetry.stop(0.1);
  EXPECT_EQ(guarded.reported(RecordKind::finding).size(), 1u);
  sensor->hang = false;
}

}  // namespace
}  // namespace egt::test
