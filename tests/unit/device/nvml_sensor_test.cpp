#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "device/nvml/nvml_xid.hpp"
#include "tests/support/fake_root.hpp"
#include "tests/support/nvml_script.hpp"

namespace egt {
namespace {

std::unique_ptr<Sensor> open_healthy(const std::string& device = "00000000:18:00.0") {
  auto sensor = NvmlScript::open(device);
  EXPECT_TRUE(sensor.ok()) << sensor.status().what();
  return std::move(sensor.value());
}

SensorCounters counters_of(Sensor& sensor) {
  const auto counters = sensor.counters();
  EXPECT_TRUE(counters.ok()) << counters.status().what();
  return counters.ok() ? counters.value() : SensorCounters{};
}

/// A file that replaces the kernel log.
class FakeKernelLog {
 public:
  FakeKernelLog() { say("6,1,1,-;NVRM: Xid (PCI:0000:18:00): 62, before the sensor was opened"); }
  ~FakeKernelLog() { std::filesystem::remove(path); }
  void say(const std::string& line) { std::ofstream(path, std::ios::app) << line << '\n'; }
  const std::string path = ::testing::TempDir() + "kmsg." + std::to_string(getpid());
};

TEST(NvmlSensor, ReadsAllThatTheDriverAnswers) {
  const NvmlScript script(healthy_gpu);
  const auto sensor = open_healthy();
  const auto read = sensor->read();
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
  EXPECT_DOUBLE_EQ(r.throttle.power_cap_s.value(), 120.5);
  EXPECT_DOUBLE_EQ(r.throttle.sw_thermal_s.value(), 2);
  EXPECT_EQ(r.throttle.hw_thermal_s, 0.0);
  EXPECT_EQ(r.throttle.power_brake_s, 0.0);
  EXPECT_FALSE(r.fan_percent.has_value()) << "the library has no such function";
}

TEST(NvmlSensor, ReadsCounters) {
  const NvmlScript script(healthy_gpu +
                          "ecc_uncorrected 1\nremapped_corrected 2\nremapped_uncorrected 1\n"
                          "remap_pending 1\npcie_generation 1\npcie_width 8\n"
                          "ecc_corrected.2 3\necc_uncorrected.7 1\n"
                          "banks.0 636\nbanks.1 2\nbanks.2 1\nbanks.3 0\nbanks.4 1\n");
  const auto sensor = open_healthy();
  const SensorCounters c = counters_of(*sensor);
  EXPECT_EQ(c.ecc_corrected, 3u);
  EXPECT_EQ(c.ecc_uncorrected, 1u);
  EXPECT_STREQ(ecc_places[2], "device_memory");
  EXPECT_EQ(c.ecc_at[2].corrected, 3u);
  EXPECT_EQ(c.ecc_at[7].uncorrected, 1u);
  EXPECT_FALSE(c.ecc_at[1].corrected || c.ecc_at[2].uncorrected || c.ecc_at[7].corrected);
  EXPECT_EQ(c.remapped_rows, 3u);
  EXPECT_EQ(c.remapped_rows_uncorrected, 1u);
  EXPECT_EQ(c.remap_pending, true);
  EXPECT_EQ(c.remap_failure, false);
  EXPECT_THAT(c.remap_availability, testing::ElementsAre(636u, 2u, 1u, 0u, 1u));
  EXPECT_EQ(c.pcie_replay, 4u);
  EXPECT_EQ(c.pcie.generation, 1u);
  EXPECT_EQ(c.pcie.width, 8u);
  EXPECT_EQ(c.pcie.max_generation, 5u);
  EXPECT_EQ(c.pcie.max_width, 16u);
  EXPECT_EQ(c.lost, "");
}

TEST(NvmlSensor, ReadsEachLinkAndTheirSums) {
  const NvmlScript script(healthy_gpu +
                          "nvlink.3.crc 7\nnvlink.17.crc 2\nnvlink.4.replay 5\nnvlink.5.up 0\n"
                          "nvlink.6.recovery 1\nfail.nvlink.recovery 3\n");
  const auto sensor = open_healthy();
  const SensorCounters c = counters_of(*sensor);
  ASSERT_EQ(c.nvlinks.size(), 18u);
  EXPECT_EQ(c.nvlinks[3].link, 3u);
  EXPECT_EQ(c.nvlinks[3].crc, 7u);
  EXPECT_EQ(c.nvlinks[4].replay, 5u);
  EXPECT_EQ(c.nvlinks[4].crc, 0u);
  EXPECT_EQ(c.nvlinks[5].up, false);
  EXPECT_EQ(c.nvlinks[6].up, true);
  EXPECT_EQ(c.nvlinks[6].recovery, 1u);
  EXPECT_FALSE(c.nvlinks[7].recovery.has_value()) << "not supported is not 0";
  EXPECT_FALSE(c.nvlinks[7].recovery_failed.has_value());
  EXPECT_EQ(c.nvlink_crc, 9u);
  EXPECT_EQ(c.nvlink_replay, 5u);
  EXPECT_EQ(c.nvlink_recovery, 1u);
}

TEST(NvmlSensor, OlderAndNewerGpusCountLinksByOtherWays) {
  NvmlScript script("links 4\nnvlink.up 1\nnvlink.old_crc 3\nnvlink.old_replay 10\n");
  const auto sensor = open_healthy();
  const SensorCounters old = counters_of(*sensor);
  EXPECT_EQ(old.nvlink_crc, 12u);
  EXPECT_EQ(old.nvlink_replay, 40u);
  EXPECT_FALSE(old.nvlink_recovery.has_value());
  script.load("links 2\nnvlink.up 1\nnvlink.recovery_events 4\nnvlink.1.recovery_failed 1\n");
  const SensorCounters blackwell = counters_of(*sensor);
  EXPECT_EQ(blackwell.nvlink_recovery, 8u);
  EXPECT_EQ(blackwell.nvlinks[1].recovery_failed, 1u);
  EXPECT_FALSE(blackwell.nvlink_crc.has_value());
}

TEST(NvmlSensor, TimeCountersWithTheNumbersOf2025) {
  NvmlScript script(
      "temperature 40\ntime.hw_thermal_2025 1.5\ntime.power_brake_2025 0.25\n"
      "field.270 7\nfield.271 7\n");
  const auto sensor = open_healthy();
  auto read = sensor->read();
  ASSERT_TRUE(read.ok());
  EXPECT_DOUBLE_EQ(read.value().throttle.hw_thermal_s.value(), 1.5);
  EXPECT_DOUBLE_EQ(read.value().throttle.power_brake_s.value(), 0.25);
  EXPECT_FALSE(read.value().throttle.power_cap_s.has_value());
  script.load("temperature 40\nfield.252 1\nfield.253 1\n");
  read = sensor->read();
  ASSERT_TRUE(read.ok());
  EXPECT_FALSE(read.value().throttle.hw_thermal_s.has_value()) << "32 bits are no time counter";
  EXPECT_FALSE(read.value().throttle.power_brake_s.has_value());
}

TEST(NvmlSensor, TellsLimitsAndLinks) {
  const NvmlScript script(healthy_gpu + "nvlink.5.up 0\npcie_generation 1\nserial 1650\n");
  const SensorLimits limits = open_healthy("GPU-fake")->limits();
  EXPECT_DOUBLE_EQ(limits.power_limit_w.value(), 700.0);
  EXPECT_EQ(limits.slowdown_temperature_c, 87.0);
  EXPECT_EQ(limits.shutdown_temperature_c, 92.0);
  EXPECT_EQ(limits.link, "PCIe gen 5 x16, NVLink 17 links");
  EXPECT_EQ(limits.driver_version, "580.1");
  EXPECT_EQ(limits.serial, "1650");
}

TEST(NvmlSensor, AnOldDriversPowerIsTheAverage) {
  const NvmlScript script("power_average_w 600\n");
  const auto read = open_healthy()->read();
  ASSERT_TRUE(read.ok());
  EXPECT_DOUBLE_EQ(read.value().power_w.value(), 600.0);
}

TEST(NvmlSensor, XidsOfEvents) {
  NvmlScript script(healthy_gpu + "at 5 xid 48\nat 5 xid 63\nat 9 xid 48\n");
  const auto sensor = open_healthy();
  EXPECT_TRUE(counters_of(*sensor).xids_told);
  EXPECT_TRUE(counters_of(*sensor).xids.empty());
  script.at(6);
  ASSERT_EQ(counters_of(*sensor).xids.size(), 2u);
  script.at(10);
  const auto xids = counters_of(*sensor).xids;
  ASSERT_EQ(xids.size(), 3u) << "all since the sensor was opened";
  EXPECT_EQ(xids[0].xid, 48u);
  EXPECT_EQ(xids[1].xid, 63u);
  EXPECT_EQ(xids[2].xid, 48u);
  EXPECT_GT(xids[2].time, 1.7e9);
}

TEST(NvmlSensor, AFloodOfXidsStaysBounded) {
  std::string flood = healthy_gpu;
  for (int i = 0; i < 1000; ++i) flood += "xid 31\n";
  const NvmlScript script(flood + "xid 79\n");
  const auto xids = counters_of(*open_healthy()).xids;
  ASSERT_EQ(xids.size(), 17u);
  EXPECT_EQ(xids.back().xid, 79u);
}

TEST(NvmlSensor, XidsOfTheKernelLogAreThisGpusAndNew) {
  const NvmlScript script("temperature 40\n");
  FakeKernelLog log;
  auto opened = NvmlScript::open("GPU-fake", log.path);
  ASSERT_TRUE(opened.ok());
  Sensor& sensor = *opened.value();
  EXPECT_TRUE(counters_of(sensor).xids.empty()) << "what was before is not told";
  log.say("6,2,2,-;NVRM: Xid (PCI:0000:18:00): 79, pid='<unknown>', GPU has fallen off the bus.");
  log.say("6,3,3,-;NVRM: Xid (PCI:0000:19:00): 48, the neighbour's");
  log.say("6,4,4,-;NVRM: Xid (0000:18:00): 13, Ch 0000000b");
  log.say("6,4,5,-;NVRM: Xid (PCI:0000:18:00 GPU-I:05): 94, pid=7, name=python, Contained: SM (0x1)");
  log.say("6,4,6,-;NVRM: Xid (PCI:0000:18:00 GPU-I:05 GPU-CI:01): 31, pid=7, name=a b, Ch 00000003");
  log.say("6,4,7,-;NVRM: Xid (PCI:0000:19:00 GPU-I:05): 94, the neighbour's");
  log.say("6,4,8,-;NVRM: Xid (PCI:0000:18:00): 149, NETIR_LINK_EVT  Fatal   XC0 i0 Link 02 (0x004505c6)");
  log.say("6,5,5,-;usb 1-1: Xid (PCI:0000:18:00) is not NVRM's");
  const auto xids = counters_of(sensor).xids;
  ASSERT_EQ(xids.size(), 5u);
  EXPECT_EQ(xids[2].xid, 94u);
  EXPECT_EQ(xids[2].detail, "pid=7, name=python, Contained: SM (0x1)");
  EXPECT_EQ(xids[3].xid, 31u);
  EXPECT_EQ(xids[3].detail, "pid=7, name=a b, Ch 00000003");
  EXPECT_EQ(xids[4].xid, 149u);
  EXPECT_EQ(xids[4].detail, "NETIR_LINK_EVT  Fatal   XC0 i0 Link 02 (0x004505c6)");
  EXPECT_EQ(xids[0].xid, 79u);
  EXPECT_EQ(xids[0].detail, "pid='<unknown>', GPU has fallen off the bus.");
  EXPECT_EQ(xids[1].xid, 13u);
  EXPECT_EQ(counters_of(sensor).xids.size(), 5u);
}

TEST(NvmlSensor, MessagesWithoutAnXidAreOfThisGpuItsPortOrAnNvswitch) {
  const nvml::PciAddress gpu{0, 0x18, 0};
  const std::string port = "0000:17:01.0";
  const auto source_of = [&](const std::string& line) -> std::string {
    const auto found = nvml::parse_message("6,1,2,-;" + line, gpu, port);
    if (!found) return "none";
    EXPECT_EQ(found->text, line);
    constexpr const char* names[] = {"nvswitch", "pcie", "driver"};
    return std::string(found->is_error ? "error of " : "") + names[static_cast<std::size_t>(found->source)];
  };
  for (const auto& [line, source] : std::initializer_list<std::pair<const char*, const char*>>{
           {"nvidia-nvswitch3: SXid (PCI:0000:86:00.0): 20034, Fatal, Link 22 LTSSM Fault Up",
            "error of nvswitch"},
           {"nvidia-nvswitch3: SXid (PCI:0000:86:00.0): 28006, Non-fatal, Link 46 MC TS crumbstore MCTO",
            "nvswitch"},
           {"nvidia 0000:18:00.0: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)",
            "pcie"},
           {"nvidia 0000:18:00.0: PCIe Bus Error: severity=Correctable, type=Data Link Layer", "pcie"},
           {"pcieport 0000:17:01.0: PCIe Bus Error: severity=Uncorrected (Non-Fatal), type=Transaction Layer",
            "error of pcie"},
           {"pcieport 0000:17:01.1: PCIe Bus Error: severity=Uncorrected (Fatal), of another device", "none"},
           {"pcieport 0000:17:02.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer",
            "none"},
           {"NVRM: GPU 0000:18:00.0: RmInitAdapter failed! (0x26:0xffff:1290)", "error of driver"},
           {"NVRM: The NVIDIA GPU 0000:18:00.0 has fallen off the bus and is not responding.",
            "error of driver"},
           {"NVRM: GPU 0000:18:00.0: now uses a larger BAR", "driver"},
           {"NVRM: GPU 0000:19:00.0: RmInitAdapter failed! (0x26:0xffff:1290)", "none"},
           {"NVRM: GPU at PCI:0000:18:00: GPU-1234", "none"},
           {"NVRM: Xid (PCI:0000:18:00): 79, GPU has fallen off the bus.", "none"},
           {"usb 1-1: new device", "none"}})
    EXPECT_EQ(source_of(line), source) << line;
}

TEST(NvmlSensor, ReadsTheErrorsOfItsLinkAndItsNode) {
  const NvmlScript script(healthy_gpu);
  const test::FakeRoot root;
  FakeKernelLog log;
  const auto write_aer = [&](const std::string& device, int corrected, int fatal) {
    root.write("sys/devices/" + device + "/class", "0x060400\n");
    root.write("sys/devices/" + device + "/aer_dev_correctable",
               fmt::format("RxErr 0\nBadTLP {0}\nTOTAL_ERR_COR {0}\n", corrected));
    root.write("sys/devices/" + device + "/aer_dev_fatal",
               fmt::format("DLP {0}\nTOTAL_ERR_FATAL {0}\n", fatal));
  };
  const std::string port = "pci0000:00/0000:17:01.0", gpu = port + "/0000:18:00.0";
  write_aer(port, 2, 0);
  write_aer(gpu, 3, 1);
  std::filesystem::create_directories(root.path() / "sys/bus/pci/devices");
  for (const std::string& device : {port, gpu})
    std::filesystem::create_symlink(
        root.path() / "sys/devices" / device,
        root.path() / "sys/bus/pci/devices" / device.substr(device.rfind('/') + 1));
  root.write("sys/devices/system/edac/mc/mc0/ce_count", "5\n");
  root.write("sys/devices/system/edac/mc/mc0/ue_count", "1\n");
  const auto open = [&](NodeErrors errors) {
    auto sensor = open_nvml_sensor("00000000:18:00.0", EGT_FAKE_NVML, log.path, errors, root.path());
    EXPECT_TRUE(sensor.ok()) << sensor.status().what();
    return std::move(sensor.value());
  };
  const auto first = open(NodeErrors::counted), second = open(NodeErrors::left_to_another);
  log.say("4,2,2,-;nvidia-nvswitch0: SXid (PCI:0000:86:00.0): 20034, Fatal, Link 22 LTSSM Fault Up");
  log.say("4,2,3,-;pcieport 0000:17:01.0: PCIe Bus Error: severity=Corrected, type=Physical Layer");
  const SensorCounters c = counters_of(*first), other = counters_of(*second);
  EXPECT_EQ(c.pcie_corrected, 5u) << "both ends of the link";
  EXPECT_EQ(c.pcie_fatal, 1u);
  EXPECT_FALSE(c.pcie_nonfatal.has_value());
  EXPECT_EQ(c.host_ecc_corrected, 5u);
  EXPECT_EQ(c.host_ecc_uncorrected, 1u);
  EXPECT_EQ(c.log_messages.size(), 2u);
  EXPECT_EQ(other.pcie_corrected, 5u);
  EXPECT_FALSE(other.host_ecc_corrected || other.host_ecc_uncorrected)
      << "another rank of the node counts them";
  ASSERT_EQ(other.log_messages.size(), 1u);
  EXPECT_EQ(other.log_messages[0].source, LogMessage::Source::pcie);
  EXPECT_EQ(counters_of(*first).log_messages.size(), 2u) << "as Xids, in every later reading, too";
  log.say("4,2,4,-;pcieport 0000:17:01.0: PCIe Bus Error: severity=Corrected, type=Data Link Layer");
  EXPECT_EQ(counters_of(*first).log_messages.size(), 2u) << "a flood stays bounded";
}

TEST(NvmlSensor, EventAndKernelLogAreOneXid) {
  NvmlScript script(healthy_gpu + "at 1 xid 94\nat 2 xid 94\n");
  FakeKernelLog log;
  auto opened = NvmlScript::open("GPU-fake", log.path);
  ASSERT_TRUE(opened.ok());
  log.say("6,2,2,-;NVRM: Xid (PCI:0000:18:00): 94, Contained memory error");
  log.say("6,2,2,-;NVRM: Xid (PCI:0000:18:00): 63, Row Remapper: New row marked for remapping");
  script.at(1);
  auto xids = counters_of(*opened.value()).xids;
  ASSERT_EQ(xids.size(), 2u);
  EXPECT_EQ(xids[0].xid, 94u);
  EXPECT_EQ(xids[0].detail, "Contained memory error");
  script.at(2);
  xids = counters_of(*opened.value()).xids;
  ASSERT_EQ(xids.size(), 3u) << "the second one is told by NVML alone";
  EXPECT_EQ(xids[2].xid, 94u);
}

TEST(NvmlSensor, SaysWhatItCannotTell) {
  const NvmlScript script("temperature 40\n");
  const auto sensor = open_healthy();
  EXPECT_FALSE(counters_of(*sensor).xids_told) << "nobody tells Xids";
  const std::vector<std::string> untold = sensor->limits().untold;
  ASSERT_EQ(untold.size(), 2u);
  EXPECT_EQ(untold[0], "Xid events of NVML: Not Supported");
  EXPECT_EQ(untold[1], "Xid lines of the kernel log: /no kernel log: No such file or directory");
}

TEST(NvmlSensor, WhatIsNotSupportedIsEmptyAndNoError) {
  const NvmlScript script("");
  const auto sensor = open_healthy();
  const auto read = sensor->read();
  ASSERT_TRUE(read.ok()) << read.status().what();
  EXPECT_FALSE(read.value().temperature_c.has_value());
  const SensorCounters c = counters_of(*sensor);
  EXPECT_FALSE(c.ecc_corrected.has_value());
  EXPECT_FALSE(c.remap_pending.has_value());
  EXPECT_THAT(c.remap_availability, testing::Each(std::nullopt));
  EXPECT_FALSE(c.nvlink_crc.has_value());
  EXPECT_TRUE(c.nvlinks.empty());
  EXPECT_FALSE(c.pcie.generation.has_value());
}

TEST(NvmlSensor, ALostGpuStillHasItsXids) {
  NvmlScript script(healthy_gpu + "at 5 all 15\nat 6 all 16\nat 7 all 999\nat 8 all 0\n");
  FakeKernelLog log;
  auto opened = NvmlScript::open("00000000:18:00.0", log.path);
  ASSERT_TRUE(opened.ok());
  Sensor& sensor = *opened.value();
  log.say("6,2,2,-;NVRM: Xid (PCI:0000:18:00): 79, GPU has fallen off the bus.");
  script.at(5);
  EXPECT_EQ(sensor.read().status().code(), StatusCode::aborted);
  SensorCounters lost = counters_of(sensor);
  EXPECT_EQ(lost.lost, "GPU 00000000:18:00.0 is lost: it does not answer on its bus");
  EXPECT_EQ(lost.xids.at(0).xid, 79u);
  EXPECT_FALSE(lost.ecc_corrected.has_value());
  script.at(6);
  EXPECT_EQ(counters_of(sensor).lost, "GPU 00000000:18:00.0 has stopped working: it needs a reset");
  script.at(7);
  EXPECT_EQ(sensor.read().status().code(), StatusCode::unavailable);
  EXPECT_EQ(sensor.counters().status().code(), StatusCode::unavailable);
  EXPECT_FALSE(sensor.limits().power_limit_w.has_value());
  script.at(8);
  EXPECT_TRUE(sensor.read().ok()) << "an earlier failure is not remembered";
}

TEST(NvmlSensor, TheScriptMayBeAFile) {
  const std::string file = ::testing::TempDir() + "nvml_script." + std::to_string(getpid());
  std::ofstream(file) << "# a comment\ntemperature 55   # another one\n";
  setenv("FAKE_NVML_SCRIPT", file.c_str(), 1);
  const auto read = open_healthy()->read();
  unsetenv("FAKE_NVML_SCRIPT");
  std::filesystem::remove(file);
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(read.value().temperature_c, 55.0);
  EXPECT_FALSE(read.value().power_w.has_value());
}

TEST(NvmlSensor, SaysWhyThereIsNone) {
  NvmlScript script(healthy_gpu);
  const auto no_library = open_nvml_sensor("GPU-fake", "libno-such-nvml.so");
  EXPECT_EQ(no_library.status().code(), StatusCode::unavailable);
  EXPECT_NE(no_library.status().what().find("NVIDIA driver"), std::string::npos);
  const auto no_device = NvmlScript::open("00000000:99:00.0");
  EXPECT_EQ(no_device.status().code(), StatusCode::unavailable);
  EXPECT_NE(no_device.status().what().find("00000000:99:00.0"), std::string::npos);
  EXPECT_NE(no_device.status().what().find("Not Found"), std::string::npos);
  script.load("init 9\n");
  EXPECT_EQ(NvmlScript::open().status().code(), StatusCode::unavailable);
}

}  // namespace
}  // namespace egt
