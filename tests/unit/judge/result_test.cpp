#include "judge/result.hpp"

#include <gmock/gmock.h>

#include <limits>

#include "egt/core/json_access.hpp"
#include "judge/kept_records.hpp"
#include "judge/version.hpp"
#include "tests/support/record_fixtures.hpp"

namespace egt {
namespace {

using namespace fixtures;

Json result_of(const std::vector<Record>& records) {
  return build_result(records, judge(records));
}

TEST(Result, HasEveryFieldOfTheContract) {
  const Json result = result_of(good_run(2));
  for (const char* key :
       {"schema", "program_version", "command", "arguments", "verdict", "exit_code", "reasons", "system_info",
        "ranks", "test_summary", "results", "verified_work", "faults", "counters", "telemetry"})
    EXPECT_TRUE(result.contains(key)) << key;
  for (const char* key : {"hostname", "hostnames", "gpu_names", "cpu_model", "cpu_count",
                          "memory_total_bytes", "kernel", "driver_version", "cuda_version", "nccl_version",
                          "cublas_version", "mpi_version", "started_at", "ended_at"})
    EXPECT_TRUE(result["system_info"].contains(key)) << key;
  for (const char* key :
       {"rank", "local_rank", "hostname", "backend", "device", "numa_node", "steps", "batch"})
    EXPECT_TRUE(result["ranks"][0].contains(key)) << key;
  for (const char* key : {"index", "name", "uuid", "pci_bus_id", "serial", "memory_total_bytes",
                          "compute_capability", "power_limit_w", "link"})
    EXPECT_TRUE(result["ranks"][0]["device"].contains(key)) << key;
}

TEST(Result, SaysWhatTheRunWas) {
  const Json result = result_of(good_run(2));
  EXPECT_EQ(result["schema"], 1);
  EXPECT_EQ(result["program_version"], program_version());
  EXPECT_EQ(result["command"], "burn");
  EXPECT_EQ(result["arguments"], (Json{"--duration", "60s"}));
  EXPECT_EQ(result["verdict"], "pass");
  EXPECT_EQ(result["exit_code"], 0);
  EXPECT_EQ(result["system_info"]["cpu_count"], 96);
  EXPECT_EQ(result["system_info"]["hostnames"], (Json{"node1"}));
  EXPECT_EQ(result["system_info"]["gpu_names"], (Json{"NVIDIA H200"}));
  EXPECT_EQ(result["system_info"]["started_at"], "1970-01-01T00:16:40.000Z");
  EXPECT_EQ(result["system_info"]["ended_at"], "1970-01-01T00:17:40.000Z");
  EXPECT_EQ(result["ranks"].size(), 2u);
  EXPECT_EQ(result["ranks"][1]["rank"], 1);
  EXPECT_EQ(result["ranks"][1]["steps"], 100);
  EXPECT_EQ(result["ranks"][1]["device"]["uuid"], "GPU-1");
}

TEST(Result, HasOneTestAPartAndRank) {
  auto records = good_run(2);
  find(records, RecordKind::end, 1).body["parts"][1]["success"] = false;
  const Json result = result_of(records);
  ASSERT_EQ(result["results"].size(), 4u);
  const Json& train = result["results"][0];
  EXPECT_EQ(train["test_name"], "train");
  EXPECT_EQ(train["test_type"], "burn");
  EXPECT_EQ(train["rank"], 0);
  EXPECT_EQ(train["success"], true);
  EXPECT_EQ(train["loss_last"], 0.5);
  EXPECT_EQ(result["results"][3]["test_name"], "memory");
  EXPECT_EQ(result["results"][3]["rank"], 1);
  EXPECT_EQ(result["results"][3]["success"], false);
  const Json& summary = result["test_summary"];
  EXPECT_EQ(summary["requested_duration_seconds"], 60.0);
  EXPECT_EQ(summary["actual_duration_seconds"], 30.5);
  EXPECT_EQ(summary["total_tests"], 4);
  EXPECT_EQ(summary["successful_tests"], 3);
  EXPECT_EQ(summary["failed_tests"], 1);
}

TEST(Result, OfALoadTestCountsTheTestsThatAllRanksMadeTogether) {
  auto records = good_run(2);
  for (int rank = 0; rank < 2; ++rank) find(records, RecordKind::start, rank).body["command"] = "loadtest";
  for (std::size_t part = 0; part < 2; ++part)
    find(records, RecordKind::end, 0).body["parts"][part]["of_all_ranks"] = true;
  find(records, RecordKind::end, 0).body["parts"][1]["success"] = false;
  const Json result = result_of(records);
  EXPECT_EQ(result["results"].size(), 4u) << "those of each rank are told as well";
  const Json& summary = result["test_summary"];
  EXPECT_EQ(summary["total_tests"], 2);
  EXPECT_EQ(summary["successful_tests"], 1);
  EXPECT_EQ(summary["failed_tests"], 1);
  ASSERT_TRUE(result["system_info"].contains("pytorch_version")) << "a field of the seed's";
  EXPECT_TRUE(result["system_info"]["pytorch_version"].is_null());
  EXPECT_FALSE(result_of(good_run(2))["system_info"].contains("pytorch_version"));
}

TEST(Result, SumsVerifiedWorkOnceARank) {
  const Json work = result_of(good_run(2))["verified_work"];
  EXPECT_EQ(work["gemm_flops"], 2e12);
  EXPECT_EQ(work["replica_checks"], 6);
  EXPECT_EQ(work["bytes_patrolled"], 10'000'000'000u);
  EXPECT_EQ(work["replays"], 0);
}

TEST(Result, CountersAndTelemetryAreByRank) {
  const Json result = result_of(good_run(2));
  EXPECT_EQ(result["telemetry"]["1"]["power_w"]["max"], 700.0);
  EXPECT_EQ(result["counters"]["0"]["ecc_corrected"]["after"], 0);
}

TEST(Result, ALostRankIsToldByItsLastProgress) {
  auto records = good_run(2);
  remove(records, RecordKind::end, 1);
  find(records, RecordKind::progress, 1) = progress(1, 55);
  const Json result = result_of(records);
  EXPECT_EQ(result["verdict"], "incomplete");
  EXPECT_EQ(result["ranks"][1]["steps"], 55);
  EXPECT_EQ(result["results"].size(), 4u);
}

TEST(Result, ProgressAfterTheEndDoesNotReplaceIt) {
  auto records = good_run(1);
  records.push_back(progress(0, 1));
  EXPECT_EQ(result_of(records)["ranks"][0]["steps"], 100);
}

TEST(Result, FaultsAreInOrderOfTimeAndKnowTheirDevice) {
  auto records = good_run(2);
  records.push_back(fault(1, 40));
  records.push_back(fault(0, 20));
  records.back().time = 1005;
  const Json faults = result_of(records)["faults"];
  ASSERT_EQ(faults.size(), 2u);
  EXPECT_EQ(faults[0]["step"], 20);
  EXPECT_EQ(faults[1]["step"], 40);
  EXPECT_EQ(faults[1]["device_uuid"], "GPU-1");
  EXPECT_EQ(faults[1]["hostname"], "node1");
  EXPECT_EQ(faults[1]["xor"], "0x1");
  EXPECT_EQ(faults[1]["blame"], "certain");
  EXPECT_TRUE(faults[1]["time"].is_string());
}

TEST(Result, AFaultHasTheCountsOfAllRanksThatRepeatedIt) {
  auto records = good_run(2);
  const auto counts = [](int rank, const char* file, int failed, double time) {
    return Record{.kind = RecordKind::notice,
                  .time = time,
                  .rank = rank,
                  .body = {{"text", ""}, {"reproducer", file}, {"failed", failed}, {"of", 100}}};
  };
  records.push_back(fault(1, 40));
  records.back().body["reproducer"] = "reproduce/b.json";
  records.push_back(fault(1, 20));
  records.back().body["reproducer"] = nullptr;
  records.push_back(counts(0, "reproduce/b.json", 0, 1020));
  records.push_back(counts(1, "reproduce/b.json", 7, 1011));
  records.push_back(counts(1, "reproduce/a.json", 3, 1011));
  KeptRecords kept;
  for (const Record& record : records) kept.add(record);
  std::vector<Record> filtered;
  kept.append_to(filtered);
  const Json faults = result_of(filtered)["faults"];
  ASSERT_EQ(faults.size(), 2u);
  for (const Json& one : faults)
    EXPECT_EQ(member(one, "reproduced"), one["step"] == 20
                                             ? Json()
                                             : Json({{{"rank", 1}, {"failed", 7}, {"of", 100}},
                                                     {{"rank", 0}, {"failed", 0}, {"of", 100}}}));
}

/// As reported by `by`.
Record of_incident(int rank, const std::string& incident, bool provisional, int by, double time) {
  Record record = fault(rank);
  record.body["incident"] = incident;
  record.body["provisional"] = provisional;
  record.body["rank"] = rank < 0 ? Json() : Json(rank);
  record.rank = by;
  record.time = time;
  return record;
}

TEST(Result, OfOneIncidentTheLastWordHoldsWhicheverRankTellsIt) {
  auto records = good_run(2);
  records.push_back(of_incident(-1, "replica in check 5", true, 0, 1010));
  records.push_back(of_incident(1, "replica in check 5", false, 1, 1009));  // of a host whose clock is late
  records.push_back(of_incident(1, "replica in check 5", false, 0, 1011));  // reported for rank 1
  records.push_back(of_incident(-1, "replica in check 6", true, 0, 1012));  // the run was interrupted
  const Json faults = result_of(records)["faults"];
  ASSERT_EQ(faults.size(), 2u) << faults;
  EXPECT_EQ(faults[0]["rank"], 1);
  EXPECT_EQ(faults[0]["incident"], "replica in check 5");
  EXPECT_TRUE(faults[1]["rank"].is_null());
  EXPECT_EQ(judge(records).exit_code, 1);
}

TEST(Result, IncidentsOfTwoPartsOfARunAreNotOne) {
  auto records = good_run(2);
  records.push_back(of_incident(0, "replica in check 5", false, 0, 1010));
  for (int rank = 0; rank < 2; ++rank) {
    Record again = start(rank, 2);
    again.body["part"] = 1;
    again.time = 2000;
    records.push_back(again);
  }
  records.push_back(of_incident(1, "replica in check 5", true, 1, 2010));  // killed before it was located
  records.push_back(of_incident(0, "replica in check 5", false, 0, 2011));
  EXPECT_EQ(result_of(records)["faults"].size(), 2u) << "of each part one, the provisional one is settled";
  records.pop_back();
  EXPECT_EQ(result_of(records)["faults"].size(), 2u) << "nothing settled it";
}

TEST(Result, AProvisionalFaultAloneConvicts) {
  auto records = good_run(2);
  records.push_back(of_incident(-1, "replica in check 5", true, 0, 1010));
  EXPECT_EQ(judge(records).exit_code, 1);
}

TEST(Result, ACleanRunHasNoInjectionsAndNoRepeats) {
  const Json result = result_of(good_run(2));
  EXPECT_EQ(result["injected"], false);
  EXPECT_EQ(result["injections"], Json::array());
  EXPECT_EQ(result["fault_repeats"], Json::array());
}

TEST(Result, ARunWithInjectionsSaysWhatBecameOfEach) {
  auto records = good_run(2);
  ask_for(records, {"memory:rank=1,step=20", "weight:rank=0,step=20"});
  records.push_back(injection("memory:rank=1,step=20"));
  records.push_back(fault(1));
  const Json result = result_of(records);
  EXPECT_EQ(result["injected"], true);
  ASSERT_EQ(result["injections"].size(), 2u);
  EXPECT_EQ(result["injections"][0]["found"], true);
  EXPECT_EQ(result["injections"][0]["struck_step"], 21);
  EXPECT_EQ(result["injections"][1]["found"], false);
}

TEST(Result, TellsTheFaultsHeldBack) {
  auto records = good_run(2);
  hold_back(records, "memory", 1, 8112);
  const Json repeats = result_of(records)["fault_repeats"];
  EXPECT_EQ(repeats, Json::array({{{"kind", "memory"},
                                   {"detector", "patrol"},
                                   {"rank", 1},
                                   {"count", 8112},
                                   {"last_time", "1970-01-01T00:17:00.000Z"}}}));
}

/// Adds 100 operations of rank 0 and 50 of rank 1, and 20 and 30 of the least tested unit, in each of two
/// parts.
TEST(Result, AUnitsErrorRateIsThatOfItsVotedWork) {
  auto records = resumed(good_run(2), 2);
  for (Record& record : records) {
    if (record.kind != RecordKind::end) continue;
    const auto share = [](const char* kind, const char* unit, int verified) {
      return Json{{"kind", kind}, {"precision", unit}, {"done", verified}, {"verified", verified}};
    };
    const bool is_first = record.rank == 0;
    record.body["parts"][0]["shares"] = {share("vote", "fp32", is_first ? 100 : 50),
                                         share("vote_one_unit", "fp32", is_first ? 20 : 30),
                                         share("vote", "tensor tf32", 0)};
  }
  const Json result = result_of(records);
  const Json& rates = result["detectable_error_rate"];
  EXPECT_NEAR(rates["vote"]["fp32"].get<double>(), 2.9957 / 300, 1e-9);
  EXPECT_NEAR(rates["vote_one_unit"]["fp32"].get<double>(), 2.9957 / 40, 1e-9);
  EXPECT_TRUE(rates["vote"]["tensor tf32"].is_null());
  EXPECT_FALSE(result["verified_share"].contains("vote"));
  EXPECT_FALSE(result["verified_share"].contains("vote_one_unit"));
}

TEST(Result, WhatWasNotMeasuredIsNullNeverNanOrZero) {
  auto records = good_run(1);
  Json& figures = find(records, RecordKind::end, 0).body["parts"][0]["figures"];
  figures["tflops"] = std::numeric_limits<double>::quiet_NaN();
  figures["step_ms"] = {{"p50", std::numeric_limits<double>::infinity()}};
  const Json result = result_of(records);
  EXPECT_TRUE(result["results"][0]["tflops"].is_null());
  EXPECT_TRUE(result["results"][0]["step_ms"]["p50"].is_null());
  EXPECT_TRUE(result["system_info"]["cuda_version"].is_null());
  EXPECT_TRUE(result["ranks"][0]["device"]["link"].is_null());
}

TEST(Result, TextIsValidJsonWhateverTheArguments) {
  auto records = good_run(1);
  records[0].body["arguments"] = Json{"--output", "\xff\xfe"};
  const std::string text = result_text(result_of(records));
  EXPECT_EQ(text.back(), '\n');
  EXPECT_TRUE(Json::accept(text));
}

TEST(Result, OfNoRecordsIsStillAResult) {
  const Json result = result_of({});
  EXPECT_EQ(result["verdict"], "incomplete");
  EXPECT_TRUE(result["ranks"].empty());
  EXPECT_TRUE(result["command"].is_null());
}

TEST(Result, IsTheSameFromTheJournalsLines) {
  const auto records = good_run(2);
  std::vector<Record> read;
  for (const Record& record : records) {
    Record copy;
    ASSERT_TRUE(from_json(Json::parse(one_line(to_json(record))), copy));
    read.push_back(copy);
  }
  EXPECT_EQ(result_of(read), result_of(records));
}

TEST(Result, NamesTheChecksThatWereNotRun) {
  auto records = good_run(2);
  const auto note = [&](int rank, const char* check, const char* reason) {
    find(records, RecordKind::end, rank)
        .body["parts"][0]["figures"]["not_run"]
        .push_back({{"check", check}, {"reason", reason}});
  };
  for (const int rank : {0, 1}) note(rank, "known-answer test", "the run ended");
  note(1, "golden digests", "not in the file");
  find(records, RecordKind::start, 0).body["no_telemetry"] = "no NVML";
  const Json result = build_result(records, judge(records));
  EXPECT_EQ(result["checks_not_run"],
            Json::parse(R"([{"check": "known-answer test", "rank": null, "reason": "the run ended"},
                            {"check": "telemetry and error counters", "rank": 0, "reason": "no NVML"},
                            {"check": "golden digests", "rank": 1, "reason": "not in the file"}])"));
  for (const Json& entry : result["results"]) EXPECT_FALSE(entry.contains("not_run"));
}

}  // namespace
}  // namespace egt
