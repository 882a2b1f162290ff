#include <cstdlib>

#include <gtest/gtest.h>

#include "egt/device/nvml_sensor.hpp"

namespace egt {
namespace {

Result<std::unique_ptr<Sensor>> open_fake(const char* kind, const std::string& device = "00000000:18:00.0") {
  setenv("FAKE_NVML", kind, 1);
  return open_nvml_sensor(device, EGT_FAKE_NVML);
}

TEST(NvmlSensor, ReadsAllThatTheDriverAnswers) {
  auto sensor = open_fake("whole");
  ASSERT_TRUE(sensor.ok()) << sensor.status().what();
  const auto read = sensor.value()->read();
  ASSERT_TRUE(read.ok()) << read.status().what();
  const SensorReading& r = read.value();
  EXPECT_EQ(r.gpu_utilization_percent, 97.0);
  EXPECT_DOUBLE_EQ(r.power_w.value(), 695.5);
  EXPECT_DOUBLE_EQ(r.energy_j.value(), 5000.5);
  EXPECT_EQ(r.temperature_c, 61.0);
  EXPECT_EQ(r.memory_temperature_c, 74.0);
  EXPECT_EQ(r.sm_clock_mhz, 1440.0);
  EXPECT_EQ(r.memory_clock_mhz, 3201.0);
  EXPECT_EQ(r.memory_used_bytes, 70u);
  EXPECT_EQ(r.memory_total_bytes, 100u);
  EXPECT_EQ(r.event_reasons, 0x4u);
  EXPECT_FALSE(r.fan_percent.has_value()) << "the library has no such function";
}

TEST(NvmlSensor, ReadsCountersOfAllLinks) {
  auto sensor = open_fake("whole");
  ASSERT_TRUE(sensor.ok()) << sensor.status().what();
  const auto counters = sensor.value()->counters();
  ASSERT_TRUE(counters.ok()) << counters.status().what();
  const SensorCounters& c = counters.value();
  EXPECT_EQ(c.ecc_corrected, 3u);
  EXPECT_EQ(c.ecc_uncorrected, 1u);
  EXPECT_EQ(c.remapped_rows, 3u);
  EXPECT_EQ(c.remap_pending, true);
  EXPECT_EQ(c.remap_failure, false);
  EXPECT_EQ(c.pcie_replay, 4u);
  EXPECT_EQ(c.nvlink_replay, 40u);
  EXPECT_EQ(c.nvlink_crc, 6u);
  EXPECT_FALSE(c.nvlink_recovery.has_value()) << "not supported is not 0";
}

TEST(NvmlSensor, TellsLimitsAndLinks) {
  auto sensor = open_fake("whole", "GPU-fake");
  ASSERT_TRUE(sensor.ok()) << sensor.status().what();
  const SensorLimits limits = sensor.value()->limits();
  EXPECT_DOUBLE_EQ(limits.power_limit_w.value(), 700.0);
  EXPECT_EQ(limits.slowdown_temperature_c, 87.0);
  EXPECT_EQ(limits.shutdown_temperature_c, 92.0);
  EXPECT_EQ(limits.link, "PCIe gen 5 x16, NVLink 4 links");
  EXPECT_EQ(limits.driver_version, "580.1");
}

TEST(NvmlSensor, AnOldDriversPowerIsTheAverage) {
  auto sensor = open_fake("old");
  ASSERT_TRUE(sensor.ok()) << sensor.status().what();
  const auto read = sensor.value()->read();
  ASSERT_TRUE(read.ok());
  EXPECT_DOUBLE_EQ(read.value().power_w.value(), 600.0);
}

TEST(NvmlSensor, ALostOrMuteDeviceIsAnError) {
  auto sensor = open_fake("whole");
  ASSERT_TRUE(sensor.ok());
  setenv("FAKE_NVML", "lost", 1);
  EXPECT_EQ(sensor.value()->read().status().code(), StatusCode::aborted);
  EXPECT_EQ(sensor.value()->counters().status().code(), StatusCode::aborted);
  setenv("FAKE_NVML", "mute", 1);
  EXPECT_EQ(sensor.value()->read().status().code(), StatusCode::unavailable);
  EXPECT_FALSE(sensor.value()->limits().power_limit_w.has_value());
  setenv("FAKE_NVML", "whole", 1);
  EXPECT_TRUE(sensor.value()->read().ok()) << "an earlier failure is not remembered";
}

TEST(NvmlSensor, SaysWhyThereIsNone) {
  const auto no_library = open_nvml_sensor("GPU-fake", "libno-such-nvml.so");
  EXPECT_EQ(no_library.status().code(), StatusCode::unavailable);
  EXPECT_NE(no_library.status().what().find("NVIDIA driver"), std::string::npos);
  const auto no_device = open_fake("whole", "00000000:99:00.0");
  EXPECT_EQ(no_device.status().code(), StatusCode::unavailable);
  EXPECT_NE(no_device.status().what().find("00000000:99:00.0"), std::string::npos);
  EXPECT_NE(no_device.status().what().find("Not Found"), std::string::npos);
  EXPECT_EQ(open_fake("broken").status().code(), StatusCode::unavailable);
}

}  // namespace
}  // namespace egt
