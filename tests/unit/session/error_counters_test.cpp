#include "session/health/error_counters.hpp"

#include <atomic>
#include <ostream>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "device/system/host_sensor.hpp"
#include "egt/core/clock.hpp"
#include "tests/support/fake_root.hpp"
#include "tests/support/nvml_script.hpp"

namespace egt {
namespace {

using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// A GPU's script, sampled every 5 s from 0 to 60 s, in phase "train" up to 20 s and then "io". The expected
/// output is "kind: where" for faults and for findings, and the number of notices.
struct Fixture {
  const char* name;
  std::string script;
  std::vector<std::string> faults;
  std::vector<std::string> findings;
  std::size_t notices = 0;
};

std::ostream& operator<<(std::ostream& out, const Fixture& fixture) {
  return out << fixture.name;
}

/// All reports, and the counters at the end.
struct Told {
  std::vector<Fault> faults;
  std::vector<Finding> findings;
  std::vector<std::string> notices;
  Json counters;

  void add(const CounterNews& news) {
    faults.insert(faults.end(), news.faults.begin(), news.faults.end());
    findings.insert(findings.end(), news.findings.begin(), news.findings.end());
    notices.insert(notices.end(), news.notices.begin(), news.notices.end());
  }
};

constexpr double period = 5, last_moment = 60;

const MonitoredDevice this_process{2, "node7", "GPU-fake", "NVML", 4711, "extreme_gpu_tra"};

LedgerMoment moment_at(double seconds, const std::unique_ptr<Sensor>& sensor) {
  LedgerMoment moment;
  moment.seconds = 1000 + seconds;
  moment.step = static_cast<std::int64_t>(seconds);
  moment.phase = seconds <= 20 ? "train" : "io";
  if (const auto reading = sensor->read(); reading.ok())
    moment.utilization_percent = reading.value().gpu_utilization_percent;
  return moment;
}

LedgerMoment at(double seconds) {
  LedgerMoment moment;
  moment.seconds = seconds;
  return moment;
}

Told run(const std::string& text, std::optional<CorrectedLimit> corrected_limit = CorrectedLimit{10}) {
  NvmlScript script(text);
  auto sensor = NvmlScript::open();
  EXPECT_TRUE(sensor.ok()) << sensor.status().what();
  ErrorCounterMonitor monitor(this_process, corrected_limit);
  Told reported;
  for (double seconds = 0; seconds <= last_moment; seconds += period) {
    script.at(seconds);
    const LedgerMoment moment = moment_at(seconds, sensor.value());
    reported.add(monitor.look(moment, sensor.value()->counters()));
    reported.add(monitor.overdue(moment.seconds + 1));
  }
  reported.add(monitor.finish());
  reported.counters = monitor.counters();
  return reported;
}

class LedgerFixture : public ::testing::TestWithParam<Fixture> {};

TEST_P(LedgerFixture, TellsExactlyThis) {
  const Fixture& fixture = GetParam();
  const Told reported = run(fixture.script);
  std::vector<std::string> faults, findings;
  for (const Fault& fault : reported.faults) {
    faults.push_back(fault.kind + ": " + fault.where);
    EXPECT_EQ(fault.rank, 2);
    EXPECT_EQ(fault.hostname, "node7");
    EXPECT_EQ(fault.device_uuid, "GPU-fake");
    EXPECT_EQ(fault.detector, "NVML");
    EXPECT_EQ(fault.blame, Blame::certain);
    EXPECT_NE(fault.expected, fault.actual);
  }
  for (const Finding& finding : reported.findings) {
    findings.push_back(finding.kind + ": " + finding.where);
    EXPECT_EQ(finding.rank, 2);
    EXPECT_FALSE(finding.text.empty());
  }
  EXPECT_THAT(faults, ElementsAreArray(fixture.faults));
  EXPECT_THAT(findings, ElementsAreArray(fixture.findings));
  EXPECT_EQ(reported.notices.size(), fixture.notices) << ::testing::PrintToString(reported.notices);
}

const std::string& ok = healthy_gpu;
const std::string pending = "remap: a row of memory waits to be remapped";
const std::string failed = "remap: a row of memory could not be remapped";
const std::string no_spare_rows = "remap: memory banks without spare rows";
const std::string banks = "banks.0 640\nbanks.1 0\nbanks.2 0\nbanks.3 0\nbanks.4 0\n";

const Fixture fixtures[] = {
    {"healthy", ok, {}, {}},
    {"not_supported_everywhere", "", {}, {}},
    {"large_counters_from_before",
     ok + "ecc_corrected 99999\necc_uncorrected 7\nnvlink.crc 12\nnvlink.recovery 3\npcie_replay 1000\n",
     {},
     {}},
    {"uncorrectable", ok + "at 10 ecc_uncorrected 2\n", {"ecc: uncorrectable memory errors (ECC)"}, {}},
    {"uncorrectable_ever_more",
     ok + "at 10 ecc_uncorrected 2\nat 15 ecc_uncorrected 4\nat 40 ecc_uncorrected 9\n",
     {"ecc: uncorrectable memory errors (ECC)"},
     {}},
    {"corrected_within_limit", ok + "at 10 ecc_corrected 13\n", {}, {}, 1},
    {"corrected_above_limit",
     ok + "at 10 ecc_corrected 9\nat 30 ecc_corrected 14\nat 40 ecc_corrected 90\n",
     {},
     {"ecc: corrected memory errors (ECC)"},
     2},
    {"a_counter_that_falls_and_comes_back",
     ok + "ecc_uncorrected 7\nat 10 ecc_uncorrected 0\nat 20 ecc_uncorrected 7\n",
     {},
     {}},
    {"a_counter_that_is_reset_and_counts_on",
     ok + "ecc_uncorrected 9\nat 10 ecc_uncorrected 0\nat 20 ecc_uncorrected 1\n",
     {"ecc: uncorrectable memory errors (ECC)"},
     {}},
    {"remap_newly_pending", ok + "at 10 remap_pending 1\n", {pending}, {}},
    {"remap_pending_from_before", ok + "remap_pending 1\n", {}, {pending}},
    {"remap_newly_failed", ok + "at 10 remap_failure 1\n", {failed}, {}},
    {"remap_failed_from_before", ok + "remap_failure 1\n", {}, {failed}},
    {"remap_flag_that_comes_and_goes",
     ok + "at 10 remap_pending 1\nat 15 remap_pending 0\nat 20 remap_pending 1\n",
     {pending},
     {}},
    {"spare_rows_left", ok + banks + "at 10 banks.0 638\nat 10 banks.1 2\n", {}, {}},
    {"spare_rows_used_up_before", ok + banks + "banks.4 1\n", {}, {no_spare_rows}},
    {"spare_rows_newly_used_up", ok + banks + "at 10 banks.4 1\nat 20 banks.4 2\n", {}, {no_spare_rows}},
    {"rows_remapped", ok + "at 10 remapped_corrected 1\n", {}, {}},
    {"xid_48", ok + "at 10 xid 48\n", {"xid: Xid 48: uncorrectable memory error (ECC)"}, {}},
    {"xid_63_64",
     ok + "at 10 xid 63\nat 10 xid 64\n",
     {"xid: Xid 63: a row of memory is to be remapped", "xid: Xid 64: a row of memory could not be remapped"},
     {}},
    {"xid_74", ok + "at 10 xid 74\n", {"xid: Xid 74: NVLink error"}, {}},
    {"xid_79", ok + "at 10 xid 79\n", {"xid: Xid 79: GPU has fallen off the bus"}, {}},
    {"xid_95_thrice",
     ok + "at 10 xid 95\nat 15 xid 95\nat 50 xid 95\n",
     {"xid: Xid 95: uncontained uncorrectable memory error"},
     {}},
    {"xids_of_programs", ok + "at 10 xid 13\nat 10 xid 31\nat 10 xid 43\nat 10 xid 45\n", {}, {}, 4},
    {"xids_unclear",
     ok + "at 10 xid 119\nat 10 xid 92\nat 10 xid 999\n",
     {},
     {"xid: Xid 119: GPU system processor does not answer",
      "xid: Xid 92: high rate of corrected memory errors (ECC)", "xid: Xid 999"}},
    {"lost",
     ok + "at 30 all 15\n",
     {"gpu-lost: GPU 00000000:18:00.0 is lost: it does not answer on its bus"},
     {}},
    {"needs_reset",
     ok + "at 30 all 16\n",
     {"gpu-lost: GPU 00000000:18:00.0 has stopped working: it needs a reset"},
     {}},
    {"xid_of_a_lost_gpu",
     ok + "at 30 all 15\nat 35 xid 79\n",
     {"gpu-lost: GPU 00000000:18:00.0 is lost: it does not answer on its bus",
      "xid: Xid 79: GPU has fallen off the bus"},
     {}},
    {"answers_nothing_any_more",
     ok + "at 30 all 999\n",
     {"gpu-lost: the device answers nothing for 10 s: NVML answers nothing about GPU 00000000:18:00.0"},
     {}},
    {"one_look_without_an_answer", ok + "at 30 all 999\nat 35 all 0\n", {}, {}},
    {"answers_again",
     ok + "at 30 all 999\nat 45 all 0\n",
     {"gpu-lost: the device answers nothing for 10 s: NVML answers nothing about GPU 00000000:18:00.0"},
     {},
     1},
    {"never_answered", "all 999\n", {}, {}},
    {"link_goes_down", ok + "at 10 nvlink.7.up 0\nat 40 nvlink.7.up 1\n", {"nvlink: NVLink 7 went down"}, {}},
    {"link_down_from_before", ok + "nvlink.7.up 0\nnvlink.8.up 0\n", {}, {}, 1},
    {"link_errors_put_right", ok + "at 10 nvlink.3.crc 5\nat 15 nvlink.4.replay 2\n", {}, {}, 2},
    {"link_recovery_errors",
     ok + "at 10 nvlink.3.recovery 1\nat 20 nvlink.3.recovery 2\nat 20 nvlink.9.recovery 1\n",
     {"nvlink: NVLink 3: recovery errors", "nvlink: NVLink 9: recovery errors"},
     {}},
    {"link_recoveries_that_did_well",
     "links 2\nnvlink.up 1\nnvlink.recovery_failed 0\nnvlink.recovery_events 0\n"
     "at 10 nvlink.1.recovery_events 3\n",
     {},
     {"link: NVLink 1"}},
    {"link_recoveries_that_failed",
     "links 2\nnvlink.up 1\nnvlink.recovery_failed 0\nnvlink.recovery_events 0\n"
     "at 10 nvlink.1.recovery_failed 1\n",
     {"nvlink: NVLink 1: recoveries that failed"},
     {}},
    {"pcie_narrow_under_load", ok + "at 10 pcie_width 8\n", {}, {"link: PCIe link width"}},
    {"pcie_slow_under_load_from_before", ok + "pcie_generation 3\n", {}, {"link: PCIe link generation"}},
    {"pcie_slow_while_idle", ok + "utilization 0\npcie_generation 1\n", {}, {}},
    {"pcie_slow_for_a_moment",
     ok + "at 10 pcie_generation 1\nat 30 pcie_generation 5\nat 40 pcie_generation 1\n",
     {},
     {}},
    {"pcie_slow_in_pauses_of_the_load",
     ok + "at 10 utilization 3\nat 10 pcie_generation 1\nat 25 utilization 99\nat 30 pcie_generation 5\n"
          "at 40 utilization 3\nat 40 pcie_generation 1\n",
     {},
     {}},
    {"pcie_replays_within_limit", ok + "at 10 pcie_replay 14\n", {}, {}},
    {"pcie_replays_above_limit", ok + "at 10 pcie_replay 500\n", {}, {"link: PCIe replays"}},
    {"several_at_once",
     ok + "at 10 ecc_uncorrected 1\nat 10 remap_pending 1\nat 10 xid 94\n",
     {"xid: Xid 94: contained uncorrectable memory error", "ecc: uncorrectable memory errors (ECC)", pending},
     {}},
};

INSTANTIATE_TEST_SUITE_P(ErrorCounterMonitor, LedgerFixture, ::testing::ValuesIn(fixtures),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(ErrorCounterMonitor, TellsWhereAndWhenAFaultShowed) {
  const Told reported = run(ok + "ecc_uncorrected 5\nat 27 ecc_uncorrected 8\n");
  ASSERT_EQ(reported.faults.size(), 1u);
  EXPECT_EQ(reported.faults[0].phase, "io");
  EXPECT_EQ(reported.faults[0].step, 30);
  EXPECT_EQ(reported.faults[0].expected, "5");
  EXPECT_EQ(reported.faults[0].actual, "8");
  EXPECT_EQ(reported.faults[0].count, 3u);
}

TEST(ErrorCounterMonitor, UncorrectableErrorsHaveTheirPlace) {
  const Told reported = run(ok +
                            "at 10 ecc_uncorrected 3\necc_uncorrected.2 0\nat 10 ecc_uncorrected.2 2\n"
                            "ecc_uncorrected.7 5\nat 10 ecc_uncorrected.7 6\n");
  ASSERT_EQ(reported.faults.size(), 1u);
  EXPECT_EQ(reported.faults[0].where, "uncorrectable memory errors (ECC): 2 in device memory, 1 in sram");
  EXPECT_EQ(reported.counters["ecc_uncorrected_sram"],
            (Json{{"before", 5}, {"after", 6}, {"moved", {{"train", 1}}}}));
  EXPECT_FALSE(reported.counters.contains("ecc_corrected_sram"));
}

TEST(ErrorCounterMonitor, LinkCountersThatMovedAreReportedAfterALinkFault) {
  ErrorCounterMonitor monitor({2, "node7", "GPU-fake"}, {});
  SensorCounters counters;
  counters.pcie_replay = 1;
  counters.nvlinks = {{.link = 3, .up = true, .crc = 0, .replay = 0, .recovery = 0, .recovery_failed = 0}};
  const auto told_at = [&](double seconds, bool after_link_fault) {
    LedgerMoment moment = at(seconds);
    moment.after_link_fault = after_link_fault;
    return monitor.look(moment, counters).notices;
  };
  EXPECT_THAT(told_at(0, false), IsEmpty());
  counters.pcie_replay = 3;
  counters.nvlinks[0].replay = 7;
  EXPECT_THAT(told_at(5, true),
              ::testing::Contains("rank 2: link counters after a link fault: NVLink 3: 0 CRC "
                                  "errors, 7 replays, 0 recoveries, 0 failed, PCIe: 2 replays"));
  EXPECT_THAT(told_at(6, true), ElementsAreArray({"rank 2: link counters after a link fault: unchanged"}));
  EXPECT_THAT(told_at(7, true), IsEmpty()) << "reported once";
  counters.pcie_replay = 4;
  EXPECT_THAT(told_at(10, false), IsEmpty());
  LedgerMoment moment = at(0);
  moment.after_link_fault = true;
  EXPECT_THAT(ErrorCounterMonitor({}, {}).look(moment, SensorCounters{}).notices, IsEmpty());
}

TEST(ErrorCounterMonitor, KeepsBeforeAfterAndThePhaseOfEachMove) {
  const Told reported =
      run(ok +
          "at 8 ecc_corrected 5\nat 18 ecc_corrected 6\nat 40 ecc_corrected 7\nat 40 remap_pending 1\n"
          "at 30 pcie_replay 9\nat 30 nvlink.2.crc 4\nat 55 nvlink.2.up 0\nat 12 xid 43\n");
  const Json& c = reported.counters;
  EXPECT_EQ(c["ecc_corrected"], (Json{{"before", 3}, {"after", 7}, {"moved", {{"train", 3}, {"io", 1}}}}));
  EXPECT_EQ(c["ecc_uncorrected"], (Json{{"before", 0}, {"after", 0}}));
  EXPECT_EQ(c["remapped_rows"], (Json{{"before", 0}, {"after", 0}}));
  EXPECT_EQ(c["remap_pending"], (Json{{"before", false}, {"after", true}}));
  EXPECT_EQ(c["remap_failure"], (Json{{"before", false}, {"after", false}}));
  EXPECT_EQ(c["pcie_replay"], (Json{{"before", 4}, {"after", 9}, {"moved", {{"io", 5}}}}));
  EXPECT_EQ(c["pcie_generation"], (Json{{"before", 5}, {"after", 5}, {"max", 5}, {"under_load", 5}}));
  EXPECT_EQ(c["nvlink_crc"], (Json{{"before", 0}, {"after", 4}, {"moved", {{"io", 4}}}}));
  EXPECT_EQ(c["nvlink_recovery"], (Json{{"before", 0}, {"after", 0}}));
  ASSERT_EQ(c["nvlinks"].size(), 18u);
  EXPECT_EQ(c["nvlinks"][2]["link"], 2);
  EXPECT_EQ(c["nvlinks"][2]["crc"]["after"], 4);
  EXPECT_EQ(c["nvlinks"][2]["up"], (Json{{"before", true}, {"after", false}}));
  ASSERT_EQ(c["xid"].size(), 1u);
  EXPECT_EQ(c["xid"][0]["xid"], 43);
  EXPECT_EQ(c["xid"][0]["phase"], "train");
  EXPECT_EQ(c["xid"][0]["step"], 15);
}

TEST(ErrorCounterMonitor, BanksWithoutSpareRowsAreCounted) {
  const Told reported = run(ok + banks + "at 10 banks.0 639\nat 10 banks.4 1\n");
  EXPECT_EQ(reported.counters["remap_availability_max"], (Json{{"before", 640}, {"after", 639}}));
  EXPECT_EQ(reported.counters["remap_availability_none"],
            (Json{{"before", 0}, {"after", 1}, {"moved", {{"train", 1}}}}));
  ASSERT_EQ(reported.findings.size(), 1u);
  EXPECT_EQ(reported.findings[0].text,
            "1 memory bank without spare rows: another bad row there cannot be remapped");
}

TEST(ErrorCounterMonitor, WhatIsNotAnsweredIsNull) {
  const Json c = run("").counters;
  for (const char* name :
       {"ecc_corrected", "ecc_uncorrected", "remapped_rows", "remap_pending", "remap_failure",
        "remap_availability_none", "pcie_replay", "nvlink_crc", "nvlink_replay", "nvlink_recovery"})
    EXPECT_EQ(c[name], (Json{{"before", nullptr}, {"after", nullptr}})) << name;
  EXPECT_TRUE(c["xid"].is_null());
  EXPECT_TRUE(c["nvlinks"].empty());
}

TEST(ErrorCounterMonitor, ErrorsOfTheLinkAndTheNodeAreJudged) {
  ErrorCounterMonitor monitor({2, "node7", "GPU-fake"}, CorrectedLimit{10, true});
  SensorCounters counters;
  counters.pcie_corrected = counters.pcie_nonfatal = counters.pcie_fatal = 4;
  counters.host_ecc_corrected = counters.host_ecc_uncorrected = 6;
  Told reported;
  reported.add(monitor.look(at(0), counters));
  EXPECT_TRUE(reported.faults.empty() && reported.findings.empty()) << "errors from before the run";
  *counters.pcie_corrected += 11;
  *counters.pcie_nonfatal += 1;
  *counters.pcie_fatal += 2;
  *counters.host_ecc_corrected += 10;
  *counters.host_ecc_uncorrected += 1;
  reported.add(monitor.look(at(5), counters));
  ASSERT_EQ(reported.faults.size(), 1u);
  EXPECT_EQ(reported.faults[0].kind, "pcie");
  EXPECT_EQ(reported.faults[0].count, 2u);
  std::vector<std::string> findings;
  for (const Finding& finding : reported.findings) findings.push_back(finding.kind + ": " + finding.text);
  EXPECT_THAT(findings,
              ElementsAreArray({"link: 1 new uncorrected errors of the PCIe link (AER)",
                                "host-memory: 1 new uncorrectable errors of the node's memory (EDAC)",
                                "link: 11 new corrected PCIe errors (AER) within an hour, the limit is 10"}));
  EXPECT_EQ(monitor.counters()["host_ecc_corrected"]["after"], 16);
}

TEST(ErrorCounterMonitor, MessagesOfTheKernelLogAreReportedOncePerKind) {
  ErrorCounterMonitor monitor({2, "node7", "GPU-fake"}, {});
  SensorCounters counters;
  using enum LogMessage::Source;
  for (int i = 0; i < 2; ++i) {
    counters.log_messages.push_back({nvswitch, true, "SXid 1, Fatal"});
    counters.log_messages.push_back({nvswitch, false, "SXid 2, Non-fatal"});
    counters.log_messages.push_back({pcie, true, "AER\x07 3"});
    counters.log_messages.push_back({driver, true, "RmInitAdapter failed"});
  }
  Told reported;
  reported.add(monitor.look(at(0), counters));
  std::vector<std::string> findings;
  for (const Finding& finding : reported.findings)
    findings.push_back(finding.kind + ": " + finding.where + ": " + finding.text);
  EXPECT_THAT(findings, ElementsAreArray({"nvswitch: NVSwitch (SXid): kernel log: SXid 1, Fatal",
                                          "link: PCIe link (AER): kernel log: AER? 3",
                                          "driver: driver: kernel log: RmInitAdapter failed"}));
  EXPECT_THAT(reported.notices, ElementsAreArray({"rank 2: kernel log: SXid 2, Non-fatal"}));
  EXPECT_TRUE(reported.faults.empty());
}

TEST(ErrorCounterMonitor, XidsOfTwoSourcesNeedNotKeepTheirOrder) {
  ErrorCounterMonitor monitor({2, "node7", "GPU-fake"}, {});
  SensorCounters counters;
  counters.xids = {{79, 1, ""}};
  EXPECT_EQ(monitor.look(at(0), counters).faults.size(), 1u);
  counters.xids = {{48, 2, ""}, {79, 1, "fallen off the bus"}};
  const CounterNews news = monitor.look(at(5), counters);
  ASSERT_EQ(news.faults.size(), 1u);
  EXPECT_EQ(news.faults[0].actual, "48");
  EXPECT_EQ(monitor.counters()["xid"].size(), 2u);
  EXPECT_EQ(monitor.counters()["xid"][1]["detail"], "fallen off the bus");
}

/// The monitor's report of one Xid of the kernel log, as in the fixture's run.
CounterNews news_of(unsigned xid, const std::string& detail) {
  ErrorCounterMonitor monitor(this_process, {});
  SensorCounters counters;
  counters.xids = {{xid, 1, detail}};
  return monitor.look(at(0), counters);
}

TEST(ErrorCounterMonitor, AnXidOfAProgramIsAFindingIfItIsThisOne) {
  for (const unsigned xid : {8u, 11u, 13u, 31u, 43u})
    for (const char* own : {"pid=4711, name=cuda-EvtHandlr, Ch 00000003",
                            "pid=12, name=extreme_gpu_tra, Ch 00000003, intr 10000000", "pid=4711"}) {
      const CounterNews news = news_of(xid, own);
      ASSERT_EQ(news.findings.size(), 1u) << xid << ' ' << own;
      EXPECT_THAT(news.findings[0].text, HasSubstr("of this process"));
      EXPECT_TRUE(news.faults.empty() && news.notices.empty());
    }
  for (const char* other : {"pid=471, name=python, Ch 00000003", "pid=47112, name=extreme_gpu_trail, Ch 3",
                            "pid='<unknown>', name=<unknown>, Ch 00000003", ""}) {
    EXPECT_TRUE(news_of(31, other).findings.empty()) << other;
    EXPECT_EQ(news_of(31, other).notices.size(), 1u) << other;
  }
  EXPECT_TRUE(news_of(45, "pid=4711, name=extreme_gpu_tra, Ch 3").findings.empty()) << "an echo";
}

TEST(ErrorCounterMonitor, TheSeverityOfAnNvlinkXidDecides) {
  for (unsigned xid = 144; xid <= 150; ++xid) {
    EXPECT_EQ(news_of(xid, "NETIR_LINK_EVT  Fatal   XC0 i0 Link 02 (0x004505c6)").faults.size(), 1u) << xid;
    for (const char* not_fatal :
         {"RLW_REMAP  Nonfatal XC1 i0 Link 08 (0x1)", "TLW_TX Non-Fatal", "SAW NON_FATAL", ""}) {
      EXPECT_TRUE(news_of(xid, not_fatal).faults.empty()) << xid << not_fatal;
      EXPECT_EQ(news_of(xid, not_fatal).findings.size(), 1u) << xid << not_fatal;
    }
  }
  EXPECT_TRUE(news_of(13, "a Fatal word").faults.empty()) << "only the NVLink Xids have a severity";
}

/// NVML reports the number; the kernel log adds the severity a moment later.
TEST(ErrorCounterMonitor, ADetailThatComesLaterMayMakeItAFault) {
  ErrorCounterMonitor monitor({2, "node7", "GPU-fake"}, {});
  SensorCounters counters;
  counters.xids = {{149, 1, ""}};
  EXPECT_EQ(monitor.look(at(0), counters).findings.size(), 1u);
  counters.xids = {{149, 1, "NETIR_LINK_EVT  Fatal   XC0 i0 Link 02 (0x004505c6)"}};
  EXPECT_EQ(monitor.look(at(5), counters).faults.size(), 1u);
  EXPECT_TRUE(monitor.look(at(10), counters).faults.empty());
}

/// Samples every 5 s a counter that grows by `step` each time; returns the reports until `seconds`.
Told look_at_corrected(std::uint64_t step, double seconds, std::optional<CorrectedLimit> limit) {
  ErrorCounterMonitor monitor({2, "node7", "GPU-fake"}, limit);
  Told reported;
  SensorCounters counters;
  counters.ecc_corrected = 7;
  for (double now = 0; now <= seconds; now += period) {
    reported.add(monitor.look(at(now), counters));
    *counters.ecc_corrected += step;
  }
  reported.add(monitor.finish());
  return reported;
}

TEST(ErrorCounterMonitor, EveryIncreaseOfCorrectedErrorsIsReportedWithItsRate) {
  EXPECT_THAT(look_at_corrected(45'000, 10, std::nullopt).notices,
              ElementsAreArray({"rank 2: 45000 new corrected memory errors (ECC) in 5 s, 9e+03 per second",
                                "rank 2: 45000 new corrected memory errors (ECC) in 5 s, 9e+03 per second"}));
  const Told hour = look_at_corrected(1, 3600, std::nullopt);
  ASSERT_EQ(hour.notices.size(), 61u) << "one per minute, and the rest";
  EXPECT_THAT(hour.notices[1], HasSubstr("12 new corrected memory errors (ECC) in 60 s, 0.2 per second"));
  EXPECT_THAT(look_at_corrected(0, 600, std::nullopt).notices, IsEmpty());
}

TEST(ErrorCounterMonitor, ALimitPerHourCountsEachHour) {
  const CorrectedLimit per_hour{720, true}, in_all{720, false};
  EXPECT_THAT(look_at_corrected(1, 3 * 3600, per_hour).findings, IsEmpty());
  EXPECT_EQ(look_at_corrected(1, 3 * 3600, in_all).findings.size(), 1u);
  const Told above = look_at_corrected(2, 3600, per_hour);
  ASSERT_EQ(above.findings.size(), 1u);
  EXPECT_EQ(above.findings[0].text, "722 new corrected memory errors (ECC) within an hour, the limit is 720");
}

TEST(ErrorCounterMonitor, HasNoLimitOfCorrectedErrorsByDefault) {
  EXPECT_THAT(run(ok + "at 10 ecc_corrected 1000000\n", std::nullopt).findings, IsEmpty());
  const Told strict = run(ok + "at 10 ecc_corrected 4\n", CorrectedLimit{0});
  ASSERT_EQ(strict.findings.size(), 1u);
  EXPECT_EQ(strict.findings[0].text, "1 new corrected memory errors (ECC), the limit is 0");
}

TEST(ErrorCounterMonitor, ALinkBelowItsMaximumTellsBoth) {
  const Told reported = run(ok + "pcie_generation 3\n");
  ASSERT_EQ(reported.findings.size(), 1u);
  EXPECT_EQ(reported.findings[0].text,
            "PCIe link generation is 3 under load, it could be 5: check seat, riser and slot");
  EXPECT_EQ(reported.findings[0].expected, 5.0);
  EXPECT_EQ(reported.findings[0].actual, 3.0);
  EXPECT_EQ(reported.counters["pcie_generation"]["under_load"], 3);
}

TEST(ErrorCounterMonitor, AStoppedProcessIsNoStalledDriver) {
  ErrorCounterMonitor monitor({2, "node7", "GPU-fake"}, {});
  monitor.look(at(100), SensorCounters{});
  EXPECT_THAT(monitor.overdue(101).findings, IsEmpty());
  EXPECT_THAT(monitor.overdue(113).findings, IsEmpty()) << "nothing ran for 12 s";
  for (const double seconds : {117.0, 121.0, 125.0})
    EXPECT_THAT(monitor.overdue(seconds).findings, IsEmpty()) << seconds;
  EXPECT_EQ(monitor.overdue(128).findings.size(), 1u) << "16 s without the pause";
}

TEST(ErrorCounterMonitor, AStalledDriverIsTold) {
  ErrorCounterMonitor monitor({2, "node7", "GPU-fake"}, {});
  EXPECT_THAT(monitor.overdue(500).findings, IsEmpty()) << "it was never looked at";
  monitor.look(at(100), SensorCounters{});
  EXPECT_THAT(monitor.overdue(110).findings, IsEmpty());
  const CounterNews news = monitor.overdue(116);
  ASSERT_EQ(news.findings.size(), 1u);
  EXPECT_EQ(news.findings[0].kind, "sensor");
  EXPECT_EQ(news.findings[0].text, "NVML does not answer since 16 s");
  EXPECT_THAT(monitor.overdue(200).findings, IsEmpty()) << "once";
  const CounterNews back = monitor.look(at(205), SensorCounters{});
  ASSERT_EQ(back.notices.size(), 1u);
  EXPECT_THAT(back.notices[0], HasSubstr("answers again after 105 s"));
}

TEST(ErrorCounterMonitor, WhatTheHostsCountersHaveWhenTheyAppearIsNew) {
  const test::FakeRoot fake;
  fake.write("proc/meminfo", "MemTotal: 1000 kB\nMemAvailable: 250 kB\n");
  const auto sensor = open_host_sensor({}, fake.path());
  ErrorCounterMonitor monitor({2, "node7", ""}, {});
  EXPECT_THAT(monitor.look(at(0), sensor->counters()).faults, IsEmpty());
  fake.write("sys/devices/system/edac/mc/mc0/ue_count", "2\n");  // their driver was loaded meanwhile
  const CounterNews news = monitor.look(at(5), sensor->counters());
  ASSERT_EQ(news.faults.size(), 1u);
  EXPECT_EQ(news.faults[0].count, 2u);
  EXPECT_EQ(monitor.counters()["ecc_uncorrected"]["before"], 0);
  ErrorCounterMonitor later({2, "node7", ""}, {});
  EXPECT_THAT(later.look(at(0), sensor->counters()).faults, IsEmpty()) << "from before the run";
}

TEST(ErrorCounterMonitor, ACallThatStallsKeepsOnlyItsOwnThread) {
  NvmlScript script(ok + "at 1 stall 0.003\n");
  auto sensor = NvmlScript::open();
  ASSERT_TRUE(sensor.ok());
  ErrorCounterMonitor monitor({2, "node7", "GPU-fake"}, {});
  monitor.look(at(0), sensor.value()->counters());
  script.at(1);
  const Clock::time_point start = Clock::now();
  std::atomic<bool> answered = false;
  std::jthread looks([&] {
    (void)sensor.value()->counters();
    answered = true;
  });
  const CounterNews news = monitor.overdue(ErrorCounterMonitor::stalled_seconds);
  EXPECT_FALSE(answered) << "asking does not wait for the driver";
  EXPECT_EQ(news.findings.size(), 1u);
  looks.join();
  EXPECT_GT(seconds_since(start), 0.5) << "the call did stall";
}

}  // namespace
}  // namespace egt
