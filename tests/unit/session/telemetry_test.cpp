#include <array>
#include <atomic>
#include <thread>

#include <gtest/gtest.h>

#include "session/health/telemetry.hpp"

namespace egt {
namespace {

/// Answers power 100, 200, 300 .. W by the sample; can be lost, can hang, and counts errors as it is told.
class FakeSensor final : public Sensor {
 public:
  SensorLimits limits() override {
    SensorLimits limits;
    limits.power_limit_w = 700;
    limits.untold = {"Xid events: Not Supported"};
    return limits;
  }
  Result<SensorReading> read() override {
    while (hang) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    if (lost) return Status(StatusCode::aborted, "lost");
    SensorReading reading;
    if (reads < static_cast<int>(begun.size())) begun[static_cast<std::size_t>(reads)] = Clock::now();
    const int n = ++reads;
    reading.power_w = 100.0 * n;
    if (counts_energy) reading.energy_j = 1000.0 + joules_a_read * n;
    reading.gpu_utilization_percent = n >= 3 ? 95.0 : 10.0;
    reading.event_reasons = 0x4 | 0x20;
    reading.memory_used_bytes = 1u << 20;
    if (hot) reading.temperature_c = 88;
    return reading;
  }
  Result<SensorCounters> counters() override {
    while (counters_hang) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    if (lost) return Status(StatusCode::aborted, "lost");
    SensorCounters counters;
    counters.ecc_corrected = static_cast<std::uint64_t>(reads * 2);
    counters.ecc_uncorrected = uncorrected;
    counters.remap_pending = pending;
    counters.xids_told = true;
    if (xid != 0) counters.xids.push_back({.xid = xid, .time = 1e9, .detail = {}});
    return counters;
  }

  std::atomic<int> reads{0};
  /// When each read began; to be read once the telemetry stopped.
  std::array<Clock::time_point, 1024> begun{};
  std::atomic<std::uint64_t> uncorrected{3};
  std::atomic<unsigned> xid{0};
  std::atomic<double> joules_a_read{5};
  std::atomic<bool> lost{false}, hang{false}, counters_hang{false}, hot{false}, pending{false},
      counts_energy{true};
};

void wait_for_reads(const FakeSensor& sensor, int reads) {
  const Clock::time_point start = Clock::now();
  while (sensor.reads < reads && seconds_since(start) < 10)
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
}

TEST(Telemetry, SummarizesTheSamples) {
  constexpr double period_s = 0.02;
  const auto sensor = std::make_shared<FakeSensor>();
  const Clock::time_point begun = Clock::now(), started = begun - std::chrono::seconds(100);
  Telemetry telemetry(sensor, period_s, started);
  wait_for_reads(*sensor, 10);
  telemetry.stop();
  const double longest_s = seconds_since(begun);
  const int n = sensor->reads;
  ASSERT_LE(n, static_cast<int>(sensor->begun.size()));
  const Json summary = telemetry.summary();
  EXPECT_EQ(summary["power_w"]["min"], 100.0);
  EXPECT_EQ(summary["power_w"]["max"], 100.0 * n);
  EXPECT_EQ(summary["power_w"]["last"], 100.0 * n);
  EXPECT_DOUBLE_EQ(summary["power_w"]["avg"].get<double>(), 50.0 * (n + 1));
  EXPECT_EQ(summary["power_limit_w"], 700.0);
  EXPECT_EQ(summary["energy_j"], 5.0 * (n - 1));
  EXPECT_LE(summary["power_w_between"]["min"], summary["power_w_mean"]);
  EXPECT_GE(summary["power_w_between"]["max"], summary["power_w_mean"]);
  // A reading's time is taken behind its read and before the next read begins.
  const auto begun_s = [&](int read) {
    return std::chrono::duration<double>(sensor->begun[static_cast<std::size_t>(read)] - begun).count();
  };
  EXPECT_LE(summary["power_w_mean"].get<double>(), 5.0 * (n - 1) / (begun_s(n - 1) - begun_s(1)));
  EXPECT_GE(summary["power_w_mean"].get<double>(), 5.0 * (n - 1) / (longest_s - begun_s(0)));
  EXPECT_EQ(summary["memory_used_bytes"]["max"], 1048576.0);
  EXPECT_TRUE(summary["temperature_c"].is_null()) << "not answered is null";
  EXPECT_GT(summary["host_memory_percent"]["avg"].get<double>(), 0.0);
  EXPECT_EQ(summary["sensor_failures"], 0);
  EXPECT_DOUBLE_EQ(telemetry.latest().power_w.value(), 100.0 * n);
  // 0x4 and 0x20 held for all the time of the samples, which are a period apart at least.
  EXPECT_EQ(summary["throttle_seconds"].size(), 2u);
  for (const char* reason : {"sw_power_cap", "sw_thermal"}) {
    EXPECT_GE(summary["throttle_seconds"][reason].get<double>(), 0.99 * period_s * n) << reason;
    EXPECT_LE(summary["throttle_seconds"][reason].get<double>(), longest_s) << reason;
  }
  // The third sample is the first with 90 % or more.
  EXPECT_GE(summary["time_to_full_load_s"].get<double>(), 100 + 2.97 * period_s);
  EXPECT_LE(summary["time_to_full_load_s"].get<double>(), 100 + longest_s);
  EXPECT_TRUE(summary["time_to_full_power_s"].is_null()) << "some 250 W of 700 W";
}

TEST(Telemetry, TellsWhenThePowerFirstCameNearItsLimit) {
  const auto sensor = std::make_shared<FakeSensor>();
  sensor->joules_a_read = 1e5;
  Telemetry telemetry(sensor, 0.02, Clock::now() - std::chrono::seconds(100));
  wait_for_reads(*sensor, 3);
  telemetry.stop();
  EXPECT_NEAR(telemetry.summary()["time_to_full_power_s"].get<double>(), 105, 5);
}

TEST(Telemetry, CountersBeforeAndAfter) {
  const auto sensor = std::make_shared<FakeSensor>();
  Telemetry telemetry(sensor, 0.02, Clock::now());
  wait_for_reads(*sensor, 2);
  telemetry.stop();
  const Json counters = telemetry.counters();
  EXPECT_EQ(counters["ecc_corrected"]["before"], 0);
  EXPECT_EQ(counters["ecc_corrected"]["after"], 2 * sensor->reads);
  EXPECT_EQ(counters["remap_pending"]["after"], false);
  EXPECT_TRUE(counters["nvlink_crc"]["before"].is_null());
}

TEST(Telemetry, AShortRunHasASampleToo) {
  const auto sensor = std::make_shared<FakeSensor>();
  Telemetry telemetry(sensor, 60, Clock::now());
  telemetry.stop();
  EXPECT_EQ(sensor->reads, 1);
  EXPECT_EQ(telemetry.summary()["power_w"]["avg"], 100.0);
  EXPECT_TRUE(telemetry.summary()["power_w_mean"].is_null()) << "of one sample";
}

TEST(Telemetry, ALostDeviceIsCountedAndAnswersNothingMore) {
  const auto sensor = std::make_shared<FakeSensor>();
  Telemetry telemetry(sensor, 0.02, Clock::now());
  wait_for_reads(*sensor, 1);
  sensor->lost = true;
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  telemetry.stop();
  EXPECT_GT(telemetry.summary()["sensor_failures"], 0);
  EXPECT_FALSE(telemetry.latest().power_w.has_value());
  EXPECT_EQ(telemetry.counters()["ecc_uncorrected"], Json({{"before", 3}, {"after", 3}}))
      << "the last answer";
}

TEST(Telemetry, WatchesTheNodeWithoutASensor) {
  Telemetry telemetry(nullptr, 0.02, Clock::now());
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  telemetry.stop();
  const Json summary = telemetry.summary();
  EXPECT_TRUE(summary["power_w"].is_null());
  EXPECT_TRUE(summary["throttle_seconds"].is_null());
  EXPECT_FALSE(summary["host_memory_percent"].is_null());
}

TEST(Telemetry, StopLeavesAHangingSensorBehind) {
  const auto sensor = std::make_shared<FakeSensor>();
  sensor->hang = true;
  const Clock::time_point start = Clock::now();
  {
    Telemetry telemetry(sensor, 0.02, Clock::now());
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    telemetry.stop();
  }
  EXPECT_LT(seconds_since(start), Telemetry::stop_seconds + 2);
  sensor->hang = false;  // the thread ends by itself
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_GE(sensor->reads, 1);
}

/// What a guarding telemetry acts on.
struct Guarded {
  LoadControl load;
  RecordQueue records{2};
  ProgressBoard board;
  std::atomic<double> now{100};  ///< of `guarding_by_clock`

  Guarding guarding() {
    return {.options = {},
            .device = {2, "node7", "GPU-2"},
            .load = load,
            .records = records,
            .board = board,
            .planned_seconds = {}};
  }
  Guarding guarding_by_clock() {
    Guarding guarding = this->guarding();
    guarding.seconds = [this] { return now.load(); };
    return guarding;
  }
  void wait_for_fault() const {
    const Clock::time_point start = Clock::now();
    while (!records.has_fault() && seconds_since(start) < 10)
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  std::vector<Json> told(RecordKind kind) {
    std::vector<Json> bodies;
    for (const Record& record : drained())
      if (record.kind == kind) bodies.push_back(record.body);
    return bodies;
  }

 private:
  const std::vector<Record>& drained() {
    for (Record& record : records.drain()) all_.push_back(std::move(record));
    return all_;
  }
  std::vector<Record> all_;
};

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
  const auto notices = guarded.told(RecordKind::notice);
  ASSERT_EQ(notices.size(), 2u);
  EXPECT_EQ(notices[1]["level"], "warning");
  EXPECT_TRUE(guarded.told(RecordKind::finding).empty()) << "less than 2 s: a warning only";
}

TEST(Telemetry, ItsMixControlSetsTheShareOfProductsAndTellsOfASensorThatLies) {
  Guarded guarded;
  const auto sensor = std::make_shared<FakeSensor>();  // soon beyond its limit
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
  int told = 0;
  for (const Json& notice : guarded.told(RecordKind::notice))
    told += notice["text"].get<std::string>().starts_with("the power sensor cannot be right: ");
  EXPECT_EQ(told, 1);
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
  const auto sensor = std::make_shared<FakeSensor>();  // held down by heat in every sample
  Telemetry telemetry(sensor, 0.05, Clock::now(), guarded.guarding());
  std::this_thread::sleep_for(std::chrono::milliseconds(2400));
  telemetry.stop();
  telemetry.stop();
  const auto findings = guarded.told(RecordKind::finding);
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
  const auto notices = guarded.told(RecordKind::notice);
  ASSERT_EQ(notices.size(), 1u);
  EXPECT_EQ(notices[0], Json({{"level", "info"}, {"text", "rank 2: not told: Xid events: Not Supported"}}));
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
  const auto faults = guarded.told(RecordKind::fault);
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
  const auto faults = guarded.told(RecordKind::fault);
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
  const auto faults = guarded.told(RecordKind::fault);
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
  const auto notices = guarded.told(RecordKind::notice);
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
  const auto faults = guarded.told(RecordKind::fault);
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
  const auto findings = guarded.told(RecordKind::finding);
  ASSERT_EQ(findings.size(), 1u) << "the first look is made before the load";
  EXPECT_EQ(findings[0]["kind"], "remap");
}

TEST(Telemetry, ASensorThatStallsIsOneFindingAndStopDoesNotWaitForIt) {
  Guarded guarded;
  const auto sensor = std::make_shared<FakeSensor>();
  Telemetry telemetry(sensor, 0.02, Clock::now(), guarded.guarding_by_clock());
  telemetry.ask_overdue();
  EXPECT_TRUE(guarded.told(RecordKind::finding).empty());
  sensor->counters_hang = true;
  for (guarded.now = 105; guarded.now < 130; guarded.now = guarded.now + 1) telemetry.ask_overdue();
  const auto findings = guarded.told(RecordKind::finding);
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0]["kind"], "sensor");
  EXPECT_EQ(findings[0]["text"], "NVML does not answer since 15 s");
  const Clock::time_point start = Clock::now();
  telemetry.stop(0.1);
  EXPECT_LT(seconds_since(start), 2);
  const auto notices = guarded.told(RecordKind::notice);
  ASSERT_EQ(notices.size(), 2u);
  EXPECT_EQ(notices[1]["level"], "warning");
  EXPECT_NE(notices[1]["text"].get<std::string>().find("NVML does not answer at the end"), std::string::npos);
  sensor->uncorrected = 9;
  sensor->counters_hang = false;
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_EQ(telemetry.counters()["ecc_uncorrected"]["after"], 3) << "it came too late";
  EXPECT_TRUE(guarded.told(RecordKind::fault).empty());
}

TEST(Telemetry, AStallThatNobodyAskedAboutIsToldAtTheEnd) {
  Guarded guarded;
  const auto sensor = std::make_shared<FakeSensor>();
  Telemetry telemetry(sensor, 0.02, Clock::now(), guarded.guarding_by_clock());
  sensor->hang = true;
  guarded.now = 120;
  telemetry.stop(0.1);
  EXPECT_EQ(guarded.told(RecordKind::finding).size(), 1u);
  sensor->hang = false;
}

}  // namespace
}  // namespace egt
