#include <fmt/format.h>
#include <gmock/gmock.h>

#include <cmath>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "egt/core/json_access.hpp"
#include "egt/core/text.hpp"
#include "egt/device/sensor.hpp"
#include "judge/result.hpp"
#include "report/export/result_files.hpp"
#include "session/run_report.hpp"
#include "tests/support/record_fixtures.hpp"

namespace egt {
namespace {

using namespace fixtures;
using testing::HasSubstr;
using testing::Not;

constexpr const char* hostile_words =
    "a\x01\x1b[31m<\"&'>]]>\n\t\\ \xff\xed\xa0\x80\xef\xbf\xbe\x7f\r \xc3\xa4";

Json exported(const std::vector<Record>& records) {
  return report_of(records).result;
}

/// Each line as JSON; throws at a line that is none.
std::vector<Json> ocp_lines(const Json& result) {
  std::vector<Json> lines;
  std::istringstream text(ocp_text(result));
  for (std::string line; std::getline(text, line);) lines.push_back(Json::parse(line));
  return lines;
}

int times(const std::string& text, const std::string& piece) {
  int found = 0;
  for (std::size_t at = text.find(piece); at != std::string::npos; at = text.find(piece, at + 1)) ++found;
  return found;
}

/// The text of that test case in that suite.
std::string testcase(const std::string& xml, const std::string& suite, const std::string& name) {
  const std::size_t in = xml.find("<testsuite name=\"" + suite + "\"");
  const std::size_t from = xml.find("<testcase name=\"" + name + "\"", in);
  if (in == std::string::npos || from == std::string::npos) return "no such testcase";
  const std::size_t line = xml.find('\n', from);
  if (xml.compare(line - 2, 2, "/>") == 0) return xml.substr(from, line - from);
  return xml.substr(from, xml.find("</testcase>", from) - from);
}

void fail_part_of(std::vector<Record>& records, int rank, std::size_t part, const std::string& failure) {
  Json& body = find(records, RecordKind::end, rank).body;
  body["parts"][part]["success"] = false;
  body["parts"][part]["failure"] = failure;
}

TEST(Junit, OfAPassHasACaseAnEntryAndOneForTheVerdict) {
  const std::string xml = junit_xml(exported(good_run(2)));
  EXPECT_TRUE(xml.starts_with("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n")) << xml;
  EXPECT_THAT(
      xml, HasSubstr(R"(<testsuite name="extreme_gpu_trainer.burn" package="extreme_gpu_trainer.burn" id="0")"
                     R"( timestamp="1970-01-01T00:16:40" hostname="node1" tests="1" failures="0" errors="0")"
                     R"( skipped="0" time="30.500">)"));
  EXPECT_THAT(xml,
              HasSubstr(R"(<testcase name="verdict" classname="extreme_gpu_trainer.burn" time="30.500"/>)"));
  for (const char* name : {"train", "memory"})
    EXPECT_EQ(testcase(xml, "extreme_gpu_trainer.burn.rank1", name),
              "<testcase name=\"" + std::string(name) +
                  "\" classname=\"extreme_gpu_trainer.burn.rank1\" time=\"30.500\"/>")
        << "parts run concurrently for the whole run";
  EXPECT_EQ(times(xml, R"(skipped="0" time="30.500">)"), 3);
  EXPECT_EQ(times(xml, "<testcase "), 5);
  EXPECT_EQ(times(xml, "<testsuite "), 3);
  EXPECT_THAT(xml, HasSubstr(R"(<property name="device.uuid" value="GPU-1"/>)"));
  EXPECT_THAT(xml, HasSubstr(R"(<property name="verified_work.replica_checks" value="6"/>)"));
  EXPECT_THAT(xml, Not(HasSubstr("null")));
}

TEST(Junit, OfAFaultTellsItWhereItBelongs) {
  std::vector<Record> records = good_run(2);
  fail_part_of(records, 1, 1, "1 word was wrong");
  records.push_back(fault(1));
  Json result = exported(records);
  const std::string xml = junit_xml(result);
  for (const std::string& reported : {testcase(xml, "extreme_gpu_trainer.burn", "verdict"),
                                      testcase(xml, "extreme_gpu_trainer.burn.rank1", "memory")})
    for (const char* piece :
         {"<failure type=", "rank 1 on node1, device GPU-1, step 40: memory fault in block 3", "offset 4096",
          "expected: 0x0", "actual:   0x1", "xor:      0x1"})
      EXPECT_THAT(reported, HasSubstr(piece));
  const std::string first = "GPU 1, rank 1 on node1, device GPU-1, step 40: memory fault in block 3";
  EXPECT_THAT(testcase(xml, "extreme_gpu_trainer.burn", "verdict"),
              HasSubstr("message=\"" + first + " (verdict fault, exit code 1)\">" + first));
  EXPECT_THAT(testcase(xml, "extreme_gpu_trainer.burn.rank1", "memory"),
              HasSubstr("message=\"" + first + "\">" + first));
  EXPECT_EQ(times(xml, "<failure "), 2);
  EXPECT_EQ(times(xml, R"(tests="2" failures="1" errors="0")"), 1);
  result["command"] = "selftest";
  EXPECT_THAT(junit_xml(result), Not(HasSubstr("memory fault in block 3, offset"))) << "it was put in";
}

TEST(Junit, HasFailuresFirst) {
  std::vector<Record> records = good_run(3);
  fail_part_of(records, 2, 1, "1 word was wrong");
  records.push_back(fault(2));
  const std::string xml = junit_xml(exported(records));
  const auto at = [&](const std::string& piece) { return xml.find(piece); };
  EXPECT_LT(at("<testsuite name=\"extreme_gpu_trainer.burn\" "), at("extreme_gpu_trainer.burn.rank2"));
  EXPECT_LT(at("extreme_gpu_trainer.burn.rank2"), at("extreme_gpu_trainer.burn.rank0"));
  EXPECT_LT(at("extreme_gpu_trainer.burn.rank0"), at("extreme_gpu_trainer.burn.rank1"));
  EXPECT_LT(at(R"(name="memory" classname="extreme_gpu_trainer.burn.rank2")"),
            at(R"(name="train" classname="extreme_gpu_trainer.burn.rank2")"));
  EXPECT_THAT(
      xml,
      HasSubstr(R"(name="extreme_gpu_trainer.burn.rank2" package="extreme_gpu_trainer.burn.rank2" id="1")"));
}

TEST(Junit, VerdictStartsWithTheDeviceAndItsEvidence) {
  std::vector<Record> records = good_run(2);
  const auto verdict = [&] {
    return testcase(junit_xml(exported(records)), "extreme_gpu_trainer.burn", "verdict");
  };
  records.push_back(finding(1));
  EXPECT_THAT(verdict(),
              HasSubstr("message=\"GPU 1, rank 1 on node1, device GPU-1: step time 5.2 % above the "
                        "median of its peers (verdict degraded, exit code 5)\""));
  records.push_back(fault(-1));
  records.back().body["suspects"] = {0, 1};
  EXPECT_THAT(verdict(),
              HasSubstr("message=\"GPU 0, rank 0 on node1, device GPU-0 or GPU 1, rank 1 on node1, "
                        "device GPU-1, step 40: memory fault in block 3 (verdict fault"));
  std::vector<Record> many = good_run(9);
  many.push_back(fault(-1));
  many.back().body["suspects"] = {0, 1, 2, 3, 4, 5, 6};
  EXPECT_THAT(testcase(junit_xml(exported(many)), "extreme_gpu_trainer.burn", "verdict"),
              HasSubstr("GPU 3, rank 3 on node1, device GPU-3 or 3 more, step 40: memory fault"));
  records.back().body["suspects"] = Json::array();
  EXPECT_THAT(verdict(), HasSubstr("message=\"a device that is not known, step 40: memory fault"));
  Json result = exported(good_run(1));
  result["injected"] = true;
  set_verdict(result,
              {.name = "incomplete", .exit_code = 4, .reasons = {"faults were injected", "not found"}});
  EXPECT_THAT(junit_xml(result),
              HasSubstr("message=\"not found (verdict incomplete, exit code 4, injected)\""));
}

TEST(Junit, TellsEachPartItsOwnFaults) {
  std::vector<Record> records = good_run(2);
  for (const std::size_t part : {0u, 1u}) fail_part_of(records, 1, part, "wrong");
  const auto push = [&](int rank, int step, const char* part) {
    records.push_back(fault(rank, step));
    if (part) records.back().body["part"] = part;
  };
  push(1, 41, "memory");
  push(0, 42, "memory");
  push(1, 43, "train");
  const std::string xml = junit_xml(exported(records)), suite = "extreme_gpu_trainer.burn.rank1";
  EXPECT_THAT(testcase(xml, suite, "memory"), HasSubstr("step 41"));
  EXPECT_EQ(times(testcase(xml, suite, "memory"), "found by: "), 1);
  EXPECT_THAT(testcase(xml, suite, "train"), HasSubstr("step 43"));
  EXPECT_EQ(times(testcase(xml, suite, "train"), "found by: "), 1);
  push(1, 44, nullptr);  // a device's counters belong to no part
  for (const char* part : {"memory", "train"}) {
    const std::string reported = testcase(junit_xml(exported(records)), suite, part);
    EXPECT_EQ(times(reported, "found by: "), 2) << part;
    EXPECT_THAT(reported, HasSubstr("step 44")) << part;
  }
}

TEST(Junit, BoundsTheFaultsThatItTells) {
  std::vector<Record> records = good_run(1);
  for (int step = 0; step < 130; ++step) records.push_back(fault(0, step));
  hold_back(records, "memory", 0, 12345);
  const std::string reported = testcase(junit_xml(exported(records)), "extreme_gpu_trainer.burn", "verdict");
  EXPECT_EQ(times(reported, "expected: "), 100);
  EXPECT_THAT(reported, HasSubstr("and 30 more faults: see result.json"));
  EXPECT_THAT(reported, HasSubstr("suppressed: memory faults found by patrol, rank 0, times: 12345"));
}

TEST(Junit, WhatWasNotDoneIsAnErrorOrWasSkipped) {
  std::vector<Record> records = good_run(1);
  fail_part_of(records, 0, 1, "no sweep ended");
  Json result = exported(records);
  result["results"][1]["undone"] = "no sweep ended";
  const std::string suite = "extreme_gpu_trainer.burn.rank0";
  const auto reported = [&] { return testcase(junit_xml(result), suite, "memory"); };
  set_verdict(result, {.name = "incomplete", .exit_code = 4, .reasons = {"why"}});
  const std::string message = R"(message="GPU 0, rank 0 on node1, device GPU-0: no sweep ended">)";
  EXPECT_THAT(reported(), HasSubstr(R"(<error type="incomplete" )" + message));
  set_verdict(result, {.name = "interrupted", .exit_code = 6, .reasons = {"why"}});
  EXPECT_THAT(reported(), HasSubstr(R"(<skipped type="interrupted" )" + message));
  EXPECT_THAT(junit_xml(result), HasSubstr("message=\"why (verdict interrupted, exit code 6)\""));
  EXPECT_THAT(junit_xml(result), HasSubstr(R"(tests="2" failures="0" errors="0" skipped="1")"));
  set_verdict(result, {.name = "fault", .exit_code = 1, .reasons = {"another"}});
  EXPECT_THAT(reported(), HasSubstr("<error ")) << "undone is not wrong";
  set_verdict(result, {.name = "degraded", .exit_code = 5, .reasons = {"slow"}});
  EXPECT_THAT(junit_xml(result), HasSubstr("message=\"slow (verdict degraded, exit code 5)\""));
}

TEST(Junit, NamesRanksThatDidNotEnd) {
  std::vector<Record> records = good_run(2);
  remove(records, RecordKind::end, 1);
  records.push_back(loss(1, Loss::How::vanished));
  find(records, RecordKind::end, 0) = failed_end(0, StatusCode::aborted, 100);
  const std::string xml = junit_xml(exported(records));
  const std::string lost =
      "GPU 1, rank 1 on node1, device GPU-1: the rank was lost: vanished, in train: sums, step 20";
  EXPECT_THAT(testcase(xml, "extreme_gpu_trainer.burn.rank1", "rank is not lost"),
              HasSubstr("<error type=\"vanished\" message=\"" + lost + "\">"));
  EXPECT_THAT(testcase(xml, "extreme_gpu_trainer.burn", "verdict"),
              HasSubstr("message=\"" + lost + " (verdict incomplete, exit code 4)\">"));
  EXPECT_THAT(testcase(xml, "extreme_gpu_trainer.burn.rank0", "rank completed"),
              HasSubstr(R"(<error type="aborted" message="it did not work">)"));
}

TEST(Exports, TakeHostileWords) {
  std::vector<Record> records = good_run(1);
  find(records, RecordKind::start, 0).body["identity"]["hostname"] = hostile_words;
  find(records, RecordKind::start, 0).body["identity"]["device"]["uuid"] = hostile_words;
  find(records, RecordKind::start, 0).body["options"][hostile_words] = hostile_words;
  find(records, RecordKind::end, 0).body["parts"][0]["name"] = hostile_words;
  find(records, RecordKind::end, 0).body["telemetry"]["throttle_seconds"] = {{hostile_words, 1.0}};
  fail_part_of(records, 0, 0, hostile_words);
  records.push_back(fault(0));
  records.back().body["where"] = hostile_words;
  const Json result = exported(records);
  const std::string xml = junit_xml(result), metrics = prometheus_text(result);
  EXPECT_GT(ocp_lines(result).size(), 5u);
  for (const std::string& text : {xml, metrics}) {
    EXPECT_EQ(text, [&] { return plain_text(text); }());
    EXPECT_THAT(text, HasSubstr("[31m"));
  }
  EXPECT_THAT(xml, HasSubstr("[31m&lt;&quot;&amp;'&gt;]]&gt;&#10;&#9;\\ "));
  EXPECT_THAT(metrics, HasSubstr("[31m<\\\"&'>]]>\\n\t\\\\ "));
  for (const char* raw : {"[31m<", "]]>"}) EXPECT_THAT(xml, Not(HasSubstr(raw)));
}

TEST(Exports, TakeResultsOfAnyShape) {
  for (const Json& odd : {Json(), Json(5), Json("text"), Json::array({1, nullptr}), Json::object()}) {
    Json result = {{"exit_code", odd}, {"verdict", odd}};
    for (const char* key :
         {"ranks", "results", "faults", "fault_repeats", "losses", "findings", "reasons", "system_info",
          "options", "counters", "telemetry", "verified_work", "test_summary", "command"})
      result[key] = odd;
    result["ranks"] = {{{"rank", 0}, {"device", odd}, {"error", odd}, {"steps", odd}}, odd};
    result["telemetry"] = {{"0", {{"power_w", odd}, {"throttle_seconds", odd}}}};
    result["counters"] = {{"0", odd}};
    for (const Json& one : {result, odd}) {
      EXPECT_THAT(junit_xml(one), HasSubstr("<testcase name=\"verdict\""));
      EXPECT_THAT(prometheus_text(one), HasSubstr("egt_run_faults "));
      EXPECT_EQ(ocp_lines(one).back()["testRunArtifact"]["testRunEnd"]["result"], "NOT_APPLICABLE");
    }
  }
}

/// Of all test steps, or of the last.
std::vector<Json> diagnoses(const std::vector<Json>& lines) {
  std::vector<Json> found;
  for (const Json& line : lines)
    if (const Json& one = member(member(line, "testStepArtifact"), "diagnosis"); !one.is_null())
      found.push_back(one);
  return found;
}

TEST(Ocp, APassHasAStepPerEntryWithItsValuesAndADiagnosisPerDevice) {
  const std::vector<Json> lines = ocp_lines(exported(good_run(2)));
  EXPECT_EQ(lines[0]["schemaVersion"], Json({{"major", 2}, {"minor", 0}}));
  const Json& begin = lines[1]["testRunArtifact"]["testRunStart"];
  EXPECT_EQ(begin["commandLine"], "extreme_gpu_trainer --duration 60s");
  EXPECT_EQ(begin["dutInfo"]["hardwareInfos"][1]["name"], "NVIDIA H200");
  EXPECT_EQ(begin["dutInfo"]["metadata"]["uuid of 1"], "GPU-1");
  int steps = 0;
  std::map<std::string, Json> measured;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    EXPECT_EQ(lines[i]["sequenceNumber"], i);
    EXPECT_THAT(lines[i]["timestamp"].get<std::string>(), testing::MatchesRegex("1970-01-01T00:1[67]:..Z"));
    steps += member(lines[i], "testStepArtifact").contains("testStepStart");
    if (const Json& one = member(member(lines[i], "testStepArtifact"), "measurement"); !one.is_null())
      measured[one["name"]] = one;
  }
  EXPECT_EQ(steps, 5) << "two parts per rank, and the verdict";
  EXPECT_EQ(measured["tflops"],
            Json({{"name", "tflops"}, {"value", 402.0}, {"unit", "TFLOP/s"}, {"hardwareInfoId", "1"}}));
  for (const Json& one : diagnoses(lines)) EXPECT_EQ(one["type"], "PASS") << one;
  EXPECT_EQ(diagnoses(lines).back()["hardwareInfoId"], "1");
  EXPECT_EQ(lines.back()["testRunArtifact"]["testRunEnd"],
            Json({{"status", "COMPLETE"}, {"result", "PASS"}}));
}

TEST(Ocp, AFaultFailsItsDeviceUnlessItWasInjected) {
  std::vector<Record> records = good_run(2);
  fail_part_of(records, 1, 1, "1 word was wrong");
  records.push_back(fault(1));
  Json result = exported(records);
  std::map<std::string, int> types;
  for (const Json& one : diagnoses(ocp_lines(result))) {
    ++types[one["type"]];
    if (one["type"] == "FAIL") {
      EXPECT_EQ(one["hardwareInfoId"], "1") << one;
    }
  }
  EXPECT_EQ(types["FAIL"], 2) << "the part, and the fault";
  EXPECT_EQ(types["UNKNOWN"], 1) << "rank 0, which did all its work in a run that does not pass";
  EXPECT_EQ(ocp_lines(result).back()["testRunArtifact"]["testRunEnd"]["result"], "FAIL");
  result["injected"] = true;
  for (const Json& one : diagnoses(ocp_lines(result))) EXPECT_NE(one["type"], "FAIL") << one;
}

TEST(Ocp, AFindingIsAMeasurementWithTheValidatorItFailed) {
  std::vector<Record> records = good_run(2);
  records.push_back(finding(1));
  Json result = exported(records);
  result["findings"][0]["actual"] = 94;
  result["findings"][0]["expected"] = 100;
  Json measured;
  for (const Json& line : ocp_lines(result))
    if (const Json& one = member(member(line, "testStepArtifact"), "measurement"); one.contains("validators"))
      measured = one;
  EXPECT_EQ(measured["value"], 94);
  EXPECT_EQ(measured["validators"].at(0), Json({{"type", "GREATER_THAN_OR_EQUAL"}, {"value", 100.0}}));
  EXPECT_EQ(measured["hardwareInfoId"], "1");
}

TEST(Ocp, ARunThatWasNotDoneHasNoResult) {
  const auto ended = [](const std::vector<Record>& records) {
    return ocp_lines(exported(records)).back()["testRunArtifact"]["testRunEnd"];
  };
  std::vector<Record> lost = good_run(2);
  lost.push_back(loss(1));
  EXPECT_EQ(ended(lost), Json({{"status", "ERROR"}, {"result", "NOT_APPLICABLE"}}));
  EXPECT_THAT(ocp_text(exported(lost)), HasSubstr("\"symptom\":\"rank-"));
  std::vector<Record> stopped = good_run(2);
  for (const int rank : {0, 1}) find(stopped, RecordKind::end, rank) = end(rank, "signal");
  EXPECT_EQ(ended(stopped), Json({{"status", "SKIP"}, {"result", "NOT_APPLICABLE"}}));
}

TEST(Metrics, TellTheVerdictAndTheWork) {
  const std::string text = prometheus_text(exported(good_run(2)));
  for (const char* line :
       {"# TYPE egt_run_verdict gauge\n", "egt_run_verdict{verdict=\"pass\"} 1\n",
        "egt_run_verdict{verdict=\"fault\"} 0\n", "egt_run_exit_code 0\n", "egt_run_faults 0\n",
        "egt_run_duration_seconds 30.5\n", "egt_run_ranks 2\n", "egt_run_start_timestamp_seconds 1000\n",
        "egt_run_end_timestamp_seconds 1060\n", "egt_run_injected 0\n",
        "egt_run_tests{outcome=\"successful\"} 4\n", "egt_run_verified_memory_bytes 10000000000\n",
        "egt_run_verified_product_operations 2000000000000\n",
        "egt_rank_steps{rank=\"1\",hostname=\"node1\",device_uuid=\"GPU-1\"} 100\n",
        "egt_rank_power_watts{rank=\"0\",hostname=\"node1\",device_uuid=\"GPU-0\",stat=\"avg\"} 600\n",
        "egt_rank_device_state{rank=\"0\",hostname=\"node1\",device_uuid=\"GPU-0\",field=\"ecc_corrected\","
        "when=\"after\"} 0\n"})
    EXPECT_EQ(times(text, line), 1) << line;
  EXPECT_EQ(times(text, "# HELP egt_rank_steps "), 1);
  for (const char* line :
       {"# TYPE egt_run_faults gauge\n", "# TYPE egt_run_faults_total counter\negt_run_faults_total 0\n",
        "# TYPE egt_run_verified_memory_bytes_total counter\negt_run_verified_memory_bytes_total "
        "10000000000\n",
        "egt_rank_steps_total{rank=\"1\",hostname=\"node1\",device_uuid=\"GPU-1\"} 100\n",
        "egt_rank_info{rank=\"1\",hostname=\"node1\",device_uuid=\"GPU-1\",device=\"NVIDIA H200\","
        "backend=\"cuda\",UUID=\"GPU-1\",Hostname=\"node1\"} 1\n"})
    EXPECT_EQ(times(text, line), 1) << line << text;
  EXPECT_EQ(times(text, "# HELP "), times(text, "# TYPE "));
}

TEST(Metrics, AreInBaseUnitsAndLeaveOutWhatWasNotMeasured) {
  Json result = exported(good_run(1));
  result["telemetry"]["0"] = {
      {"gpu_utilization_percent", {{"avg", 78.5}, {"max", std::nan("")}, {"min", nullptr}}},
      {"temperature_c", nullptr},
      {"energy_j", INFINITY},
      {"sensor_failures", 3},
      {"power_w_mean", 688.5},
      {"throttle_seconds", {{"sw_thermal", 2.5}}}};
  result["counters"]["0"] = {{"remap_pending", {{"before", false}, {"after", true}}},
                             {"xid", Json::array({1, 2})}};
  const std::string text = prometheus_text(result);
  const std::string rank = "{rank=\"0\",hostname=\"node1\",device_uuid=\"GPU-0\"";
  for (const std::string& line :
       {"egt_rank_utilization_ratio" + rank + ",stat=\"avg\"} 0.785\n",
        "egt_rank_mean_power_watts" + rank + "} 688.5\n",
        "egt_rank_throttled_seconds" + rank + ",reason=\"sw_thermal\"} 2.5\n",
        "egt_rank_throttled_seconds_total" + rank + ",reason=\"sw_thermal\"} 2.5\n",
        "egt_rank_xid_errors_total" + rank + "} 2\n", "egt_rank_sensor_failures_total" + rank + "} 3\n",
        "egt_rank_device_state" + rank + ",field=\"remap_pending\",when=\"before\"} 0\n",
        "egt_rank_device_state" + rank + ",field=\"remap_pending\",when=\"after\"} 1\n",
        "egt_rank_xid_errors" + rank + "} 2\n"})
    EXPECT_EQ(times(text, line), 1) << line << text;
  for (const char* none : {"nan", "inf ", "null", "celsius", "joules", "stat=\"max\"", "stat=\"min\""})
    EXPECT_THAT(text, Not(HasSubstr(none)));
}

TEST(Metrics, HaveTheActionOfEachNode) {
  const std::string text = prometheus_text(exported(good_run(2)));
  EXPECT_EQ(times(text, "egt_node_action{hostname=\"node1\",verdict=\"pass\",action=\"none\"} 1\n"), 1)
      << text;
}

TEST(Metrics, HaveEverySampledMetric) {
  Json result = exported(good_run(1));
  for (const SampledMetric& metric : sampled_metrics) result["telemetry"]["0"][metric.key] = {{"last", 60.5}};
  const std::string text = prometheus_text(result);
  for (const SampledMetric& metric : sampled_metrics) {
    if (!metric.metric) continue;
    EXPECT_THAT(text, HasSubstr(fmt::format(
                          "# HELP egt_{0} {1}\n# TYPE egt_{0} gauge\negt_{0}"
                          "{{rank=\"0\",hostname=\"node1\",device_uuid=\"GPU-0\",stat=\"last\"}} {2}\n",
                          metric.metric, metric.help, 60.5 / metric.per_base_unit)));
  }
}

TEST(Metrics, TellWhatADashboardShows) {
  Json result = exported(good_run(1));
  const Json watched = {{"last", 60.5}};
  result["telemetry"]["0"] = {{"power_w", watched},
                              {"power_limit_w", 700.0},
                              {"temperature_c", watched},
                              {"memory_temperature_c", watched},
                              {"sm_clock_mhz", watched}};
  result["results"] = Json::array({{{"test_name", "train"},
                                    {"rank", 0},
                                    {"step_ms", {{"p50", 20.0}, {"p99", 40.0}}},
                                    {"tflops", 2.0},
                                    {"loss_last", 0.5}},
                                   {{"test_name", "load"}, {"rank", 0}, {"work_index", 1.5}},
                                   {{"test_name", "train"}, {"rank", 1}, {"loss_last", 9.0}}});
  const std::string text = prometheus_text(result);
  const std::string rank = "{rank=\"0\",hostname=\"node1\",device_uuid=\"GPU-0\"";
  for (const std::string& line :
       {"egt_rank_power_watts" + rank + ",stat=\"last\"} 60.5\n",
        "egt_rank_power_limit_watts" + rank + "} 700\n",
        "egt_rank_temperature_celsius" + rank + ",stat=\"last\"} 60.5\n",
        "egt_rank_memory_temperature_celsius" + rank + ",stat=\"last\"} 60.5\n",
        "egt_rank_clock_hertz" + rank + ",stat=\"last\"} 60500000\n",
        "egt_rank_step_seconds" + rank + ",stat=\"p50\"} 0.02\n",
        "egt_rank_step_seconds" + rank + ",stat=\"p99\"} 0.04\n",
        "egt_rank_training_flops" + rank + "} 2000000000000\n", "egt_rank_training_loss" + rank + "} 0.5\n",
        "egt_rank_work_index" + rank + "} 1.5\n"})
    EXPECT_EQ(times(text, line), 1) << line << text;
  EXPECT_EQ(times(text, "egt_rank_training_loss{"), 1);
}

TEST(Metrics, CountFaultsByRank) {
  std::vector<Record> records = good_run(2);
  records.push_back(fault(1));
  records.push_back(fault(-1, 41));
  hold_back(records, "memory", 1, 5);
  Json result = exported(records);
  result["ranks"].push_back(result["ranks"][1]);  // a duplicate series would invalidate the whole file
  const std::string text = prometheus_text(result);
  EXPECT_EQ(times(text, "egt_run_faults 7\n"), 1) << text;
  EXPECT_EQ(times(text, "egt_rank_faults{rank=\"0\",hostname=\"node1\",device_uuid=\"GPU-0\"} 0\n"), 1);
  EXPECT_EQ(times(text, "egt_rank_faults{rank=\"1\",hostname=\"node1\",device_uuid=\"GPU-1\"} 6\n"), 1);
  EXPECT_EQ(times(text, "egt_run_verdict{verdict=\"fault\"} 1\n"), 1);
  EXPECT_EQ(times(text, "egt_run_exit_code 1\n"), 1);
}

}  // namespace
}  // namespace egt
