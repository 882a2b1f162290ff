#include <chrono>
#include <filesystem>
#include <string>
#include <thread>

#include <gtest/gtest.h>

#include "device/system/host_sensor.hpp"
#include "egt/core/clock.hpp"
#include "tests/support/fake_root.hpp"

namespace egt {
namespace {

class HostSensor : public testing::Test {
 protected:
  void SetUp() override {
    write("proc/meminfo", "MemTotal: 1000 kB\nMemFree: 10 kB\nMemAvailable: 250 kB\nHugePages_Total: 0\n");
    write_ticks(0, 0, 0);
  }

  void write(const std::string& file, const std::string& text) const { fake.write(file, text); }
  /// Two CPUs: busy ticks per CPU and idle ticks of each.
  void write_ticks(int busy0, int busy1, int idle) {
    const auto line = [](const std::string& cpu, int busy, int idle_ticks) {
      return cpu + " " + std::to_string(1000 + busy) + " 5 5 " + std::to_string(2000 + idle_ticks) +
             " 7 0 0 0 99 99\n";
    };
    write("proc/stat", line("cpu ", busy0 + busy1, 2 * idle) + line("cpu0", busy0, idle) +
                           line("cpu1", busy1, idle) + "intr 12345\n");
  }

  const test::FakeRoot fake;
  const std::filesystem::path& root = fake.path();
};

TEST_F(HostSensor, UtilizationIsThatOfItsCpusSinceTheLastRead) {
  const auto all = open_host_sensor({}, root), second = open_host_sensor({1}, root);
  EXPECT_FALSE(all->read().value().gpu_utilization_percent.has_value()) << "no tick has passed";
  write_ticks(30, 90, 10);
  EXPECT_DOUBLE_EQ(all->read().value().gpu_utilization_percent.value(), 100.0 * 120 / 140);
  EXPECT_DOUBLE_EQ(second->read().value().gpu_utilization_percent.value(), 90.0);
  write_ticks(30, 90, 110);
  EXPECT_DOUBLE_EQ(second->read().value().gpu_utilization_percent.value(), 0.0);
}

/// Linux may correct a CPU's I/O wait and idle times afterwards.
TEST_F(HostSensor, ACounterThatGoesBackIsNoUtilization) {
  const auto sensor = open_host_sensor({}, root);
  write_ticks(30, 90, 10);
  ASSERT_TRUE(sensor->read().ok());
  write_ticks(20, 90, 200);
  EXPECT_FALSE(sensor->read().value().gpu_utilization_percent.has_value());
  write_ticks(70, 140, 200);
  EXPECT_DOUBLE_EQ(sensor->read().value().gpu_utilization_percent.value(), 100.0) << "from there on";
}

TEST_F(HostSensor, WhatIsNotThereIsEmpty) {
  const auto sensor = open_host_sensor({}, root);
  const auto read = sensor->read();
  ASSERT_TRUE(read.ok());
  EXPECT_FALSE(read.value().temperature_c || read.value().power_w || read.value().energy_j ||
               read.value().sm_clock_mhz || read.value().event_reasons);
  EXPECT_FALSE(sensor->counters().value().ecc_corrected.has_value());
  EXPECT_FALSE(sensor->limits().power_limit_w.has_value());
  EXPECT_FALSE(open_host_sensor({}, root / "nowhere")->read().ok());
}

TEST_F(HostSensor, MemoryUsedIsWhatIsNotAvailable) {
  const auto read = open_host_sensor({}, root)->read();
  EXPECT_EQ(read.value().memory_total_bytes, 1000u * 1024);
  EXPECT_EQ(read.value().memory_used_bytes, 750u * 1024);
}

TEST_F(HostSensor, TemperatureIsTheHottestOfTheCpuMonitors) {
  write("sys/class/thermal/thermal_zone0/type", "x86_pkg_temp\n");
  write("sys/class/thermal/thermal_zone0/temp", "44000\n");
  const auto sensor = open_host_sensor({}, root);
  EXPECT_DOUBLE_EQ(sensor->read().value().temperature_c.value(), 44.0);
  write("sys/class/hwmon/hwmon0/name", "nvme\n");
  write("sys/class/hwmon/hwmon0/temp1_input", "80000\n");
  write("sys/class/hwmon/hwmon1/name", "coretemp\n");
  write("sys/class/hwmon/hwmon1/temp1_input", "51000\n");
  write("sys/class/hwmon/hwmon1/temp2_input", "57500\n");
  write("sys/class/hwmon/hwmon1/temp2_crit", "100000\n");
  EXPECT_DOUBLE_EQ(sensor->read().value().temperature_c.value(), 57.5);
  EXPECT_DOUBLE_EQ(sensor->limits().shutdown_temperature_c.value(), 100.0);
}

TEST_F(HostSensor, EnergyCountsFromTheOpeningAndSurvivesAWrap) {
  const std::string zone = "sys/class/powercap/intel-rapl:0/";
  write(zone + "name", "package-0\n");
  write(zone + "max_energy_range_uj", "1000000000\n");
  write(zone + "constraint_0_power_limit_uw", "250000000\n");
  write(zone + "energy_uj", "900000000\n");
  write("sys/class/powercap/intel-rapl:0:0/name", "core\n");
  write("sys/class/powercap/intel-rapl:0:0/energy_uj", "5\n");
  const auto sensor = open_host_sensor({}, root);
  EXPECT_DOUBLE_EQ(sensor->limits().power_limit_w.value(), 250.0);
  write(zone + "energy_uj", "950000000\n");
  const auto first = sensor->read();
  EXPECT_DOUBLE_EQ(first.value().energy_j.value(), 50.0);
  EXPECT_GT(first.value().power_w.value(), 0.0);
  write(zone + "energy_uj", "10000000\n");
  EXPECT_DOUBLE_EQ(sensor->read().value().energy_j.value(), 110.0);
}

TEST_F(HostSensor, PowerBehindAReadThatFailedIsTheMeanSinceTheLastThatDidNot) {
  const std::string zone = "sys/class/powercap/intel-rapl:0/";
  write(zone + "name", "package-0\n");
  write(zone + "energy_uj", "0\n");
  const Clock::time_point start = Clock::now();
  const auto sensor = open_host_sensor({}, root);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  write(zone + "energy_uj", "no number\n");
  EXPECT_FALSE(sensor->read().value().power_w.has_value());
  write(zone + "energy_uj", "10000000\n");
  const double watts = sensor->read().value().power_w.value();
  EXPECT_LE(watts, 10 / 0.05) << "10 J, of which most came while it did not answer";
  EXPECT_GE(watts, 10 / seconds_since(start));
}

TEST_F(HostSensor, ClockIsTheMeanOfItsCpus) {
  write("proc/cpuinfo", "processor\t: 0\ncpu MHz\t\t: 2000.0\n\nprocessor\t: 1\ncpu MHz\t\t: 3000.0\n");
  EXPECT_DOUBLE_EQ(open_host_sensor({}, root)->read().value().sm_clock_mhz.value(), 2500.0);
  EXPECT_DOUBLE_EQ(open_host_sensor({1}, root)->read().value().sm_clock_mhz.value(), 3000.0);
  write("sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq", "1800000\n");
  write("sys/devices/system/cpu/cpuidle/x", "");
  EXPECT_DOUBLE_EQ(open_host_sensor({}, root)->read().value().sm_clock_mhz.value(), 1800.0);
}

TEST_F(HostSensor, EccErrorsOfAllMemoryControllers) {
  for (const char* controller : {"mc0", "mc1"}) {
    write(std::string("sys/devices/system/edac/mc/") + controller + "/ce_count", "4\n");
    write(std::string("sys/devices/system/edac/mc/") + controller + "/ue_count", "0\n");
  }
  const auto sensor = open_host_sensor({}, root);
  const auto counters = sensor->counters();
  EXPECT_EQ(counters.value().ecc_corrected, 8u);
  EXPECT_EQ(counters.value().ecc_uncorrected, 0u);
  std::filesystem::remove(root / "sys/devices/system/edac/mc/mc1/ce_count");
  write("sys/devices/system/edac/mc/mc0/ce_count", "6\n");
  EXPECT_EQ(sensor->counters().value().ecc_corrected, 10u) << "the errors of the other still count";
  std::filesystem::remove(root / "sys/devices/system/edac/mc/mc0/ce_count");
  EXPECT_FALSE(sensor->counters().value().ecc_corrected.has_value());
  const auto other = open_host_sensor({}, root, NodeErrors::left_to_another)->counters();
  EXPECT_FALSE(other.value().ecc_corrected.has_value());
  EXPECT_FALSE(other.value().ecc_uncorrected.has_value());
}

/// They start at zero when the driver is loaded, and again after a reset.
TEST_F(HostSensor, EccErrorsCountOnBehindAResetAndInControllersThatCome) {
  const std::string folder = "sys/devices/system/edac/mc/";
  write(folder + "mc0/ue_count", "7\n");
  const auto sensor = open_host_sensor({}, root);
  EXPECT_EQ(sensor->counters().value().ecc_uncorrected, 7u);
  write(folder + "mc0/ue_count", "2\n");
  EXPECT_EQ(sensor->counters().value().ecc_uncorrected, 9u) << "a reset and 2 more";
  write(folder + "mc0/ue_count", "0\n");
  EXPECT_EQ(sensor->counters().value().ecc_uncorrected, 9u);
  write(folder + "mc1/ue_count", "3\n");
  EXPECT_EQ(sensor->counters().value().ecc_uncorrected, 12u);
}

TEST_F(HostSensor, LoadOfTheNode) {
  HostLoadSampler sampler(root);
  EXPECT_FALSE(sampler.look().cpu_percent.has_value());
  write_ticks(30, 90, 10);
  const HostLoad load = sampler.look();
  EXPECT_DOUBLE_EQ(load.cpu_percent.value(), 100.0 * 120 / 140);
  EXPECT_DOUBLE_EQ(load.memory_percent.value(), 75.0);
}

TEST(HostSensorHere, AnswersOnThisMachine) {
  const auto read = open_host_sensor()->read();
  ASSERT_TRUE(read.ok()) << read.status().what();
  EXPECT_GT(read.value().memory_used_bytes.value_or(0), 0u);
}

}  // namespace
}  // namespace egt
