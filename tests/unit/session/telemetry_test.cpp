#include <thread>

#include <gtest/gtest.h>

#include "tests/support/telemetry_fixture.hpp"

namespace egt::test {
namespace {

TEST(Telemetry, SummarizesTheSamples) {
  constexpr double period_s = 0.02;
  const auto sensor = std::make_shared<FakeSensor>();
  sensor->joules_a_read = 0.5;
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
  EXPECT_EQ(summary["energy_j"], 0.5 * (n - 1));
  EXPECT_LE(summary["power_w_between"]["min"], summary["power_w_mean"]);
  EXPECT_GE(summary["power_w_between"]["max"], summary["power_w_mean"]);
  // A reading's time is taken after its read and before the next read begins.
  const auto begun_s = [&](int read) {
    return std::chrono::duration<double>(sensor->begun[static_cast<std::size_t>(read)] - begun).count();
  };
  EXPECT_LE(summary["power_w_mean"].get<double>(), 0.5 * (n - 1) / (begun_s(n - 1) - begun_s(1)));
  EXPECT_GE(summary["power_w_mean"].get<double>(), 0.5 * (n - 1) / (longest_s - begun_s(0)));
  EXPECT_EQ(summary["memory_used_bytes"]["max"], 1048576.0);
  EXPECT_EQ(summary["memory_clock_mhz"]["min"], 2619.0);
  EXPECT_EQ(summary["fan_percent"]["last"], 40.0);
  for (const SampledMetric& metric : sampled_metrics) EXPECT_TRUE(summary.contains(metric.key)) << metric.key;
  EXPECT_TRUE(summary["temperature_c"].is_null()) << "not answered is null";
  EXPECT_GT(summary["host_memory_percent"]["avg"].get<double>(), 0.0);
  EXPECT_EQ(summary["sensor_failures"], 0);
  EXPECT_DOUBLE_EQ(telemetry.latest().power_w.value(), 100.0 * n);
  // 0x4 and 0x20 were set during all samples, which are at least one period apart.
  EXPECT_EQ(summary["throttle_seconds"].size(), 2u);
  for (const char* reason : {"sw_power_cap", "sw_thermal"}) {
    EXPECT_GE(summary["throttle_seconds"][reason].get<double>(), 0.99 * period_s * n) << reason;
    EXPECT_LE(summary["throttle_seconds"][reason].get<double>(), longest_s) << reason;
  }
  // The third sample is the first with 90 % or more.
  EXPECT_GE(summary["time_to_full_load_s"].get<double>(), 100 + 2.97 * period_s);
  EXPECT_LE(summary["time_to_full_load_s"].get<double>(), 100 + longest_s);
  EXPECT_TRUE(summary["time_to_full_power_s"].is_null())
      << "25 W of 700 W; readings that catch up after a delay show more";
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
  EXPECT_EQ(counters["pcie_replay"]["before"], 0);
  EXPECT_EQ(counters["pcie_replay"]["after"], 2 * sensor->reads);
  EXPECT_EQ(counters["remap_pending"]["after"], false);
  EXPECT_TRUE(counters["nvlink_crc"]["before"].is_null());
}

/// The clock stands, so the periodic reading is never due.
TEST(Telemetry, ALinkFaultHasTheCountersReadAtOnce) {
  const auto sensor = std::make_shared<FakeSensor>();
  Guarded guarded;
  Telemetry telemetry(sensor, 0.02, Clock::now(), guarded.guarding_by_clock());
  wait_for_reads(*sensor, 3);
  EXPECT_EQ(telemetry.counters()["pcie_replay"]["after"], 0);
  Fault fault;
  fault.kind = "link";
  guarded.records.emit(fault);
  wait_for_reads(*sensor, sensor->reads + 3);
  const Json read = telemetry.counters()["pcie_replay"]["after"];
  EXPECT_GT(read, 0);
  wait_for_reads(*sensor, sensor->reads + 3);
  EXPECT_EQ(telemetry.counters()["pcie_replay"]["after"], read) << "once per fault";
  telemetry.stop();
  int notices_of_links = 0;
  for (const Json& notice : guarded.reported(RecordKind::notice))
    notices_of_links +=
        notice["text"].get<std::string>().starts_with("rank 2: link counters after a link fault: PCIe: ");
  EXPECT_EQ(notices_of_links, 1);
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
  {
    Telemetry telemetry(sensor, 0.02, Clock::now());
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    telemetry.stop(0.5);
  }
  sensor->hang = false;  // the thread ends on its own
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_GE(sensor->reads, 1);
}

}  // namespace
}  // namespace egt::test
