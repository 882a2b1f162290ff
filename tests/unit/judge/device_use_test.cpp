#include "judge/device_use.hpp"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "judge/result.hpp"
#include "judge/verdict.hpp"
#include "report/tables/summary.hpp"
#include "tests/support/record_fixtures.hpp"

namespace egt {
namespace {

using namespace fixtures;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using Records = std::vector<Record>;

PartReport part_of(const char* name, Json figures) {
  PartReport part;
  part.name = name;
  part.figures = std::move(figures);
  part.work.replays = 1;
  return part;
}

/// The parts of a successful rank of `verify`.
std::vector<PartReport> good_parts() {
  return {
      part_of("train",
              {{"replays", 14}, {"replica_checks", 13}, {"compute_ms", 6.0}, {"step_ms", {{"p50", 8.0}}}}),
      part_of("collective", {{"rounds", 9}, {"elements_checked", 4096}}),
      part_of("readiness", {{"optimizer_steps", 20},
                            {"evaluations", 10},
                            {"similarities", 10},
                            {"cleanups", 10},
                            {"samples", 1024},
                            {"cleanup_bytes", 460'000'000}}),
      part_of(
          "memory",
          {{"filled_bytes", 2'000'000'000}, {"used_bytes", 2'450'000'000}, {"total_bytes", 46'000'000'000}}),
      part_of("io", {{"passes", 8}})};
}

/// A successful run of `verify`.
Records ready_run(int size) {
  Records records = good_run(size);
  for (Record& record : records) {
    if (record.kind == RecordKind::start) record.body["command"] = "verify";
    if (record.kind != RecordKind::end) continue;
    Json body = body_of(good_parts());
    body["telemetry"] = {{"gpu_utilization_percent", {{"min", 80.0}, {"avg", 97.0}, {"max", 100.0}}},
                         {"sm_clock_mhz", {{"avg", 1980.0}}},
                         {"power_w", {{"avg", 640.0}}}};
    record.body.update(body);
  }
  return records;
}

/// The metrics of one part in a rank's end record.
Json& figures(Records& records, int rank, const std::string& name) {
  for (Json& part : find(records, RecordKind::end, rank).body["parts"])
    if (part["name"] == name) return part["figures"];
  throw std::out_of_range("no such part");
}

void make_host(Records& records) {
  for (Record& record : records)
    if (record.kind == RecordKind::start) record.body["identity"]["backend"] = "host";
}

Record fault_of_kind(const std::string& kind, int rank, const std::string& where = "") {
  Record record = fault(rank);
  record.body["kind"] = kind;
  record.body["where"] = where;
  return record;
}

Readiness readiness(const Records& records) {
  return readiness_of(build_result(records, judge(records)));
}
std::string text(const Records& records) {
  return summary_text(build_result(records, judge(records)));
}
std::string why_idle(const Records& records, std::size_t device) {
  return readiness(records).devices.at(device).why_idle;
}

/// The operations that are not verified on `rank`.
std::vector<std::string> not_verified(const Records& records, int rank) {
  std::vector<std::string> names;
  for (const VerifiedOperation& operation : readiness(records).operations)
    for (const OperationOnDevice& one : operation.devices)
      if (one.rank == rank && !one.verified()) names.push_back(operation.name);
  return names;
}

void expect(const Records& records, const char* name, int exit_code) {
  const Verdict verdict = judge(records);
  EXPECT_EQ(verdict.name, name) << testing::PrintToString(verdict.reasons);
  EXPECT_EQ(verdict.exit_code, exit_code);
}

TEST(Readiness, OfARunInWhichAllWentWellTellsTheSeedsLines) {
  const Records records = ready_run(4);
  expect(records, "pass", 0);
  const std::string reported = text(records);
  for (const char* line :
       {"MULTI-GPU CONFIGURATION:\n", "\nTotal GPUs Available: 4\n", "\nMulti-GPU Training: ENABLED\n",
        "\nGPU Utilization Check:\n", "\n   GPU 0: 2.45 GB / 46.0 GB (5.3%) ACTIVE\n",
        "\n   GPU 3: 2.45 GB / 46.0 GB (5.3%) ACTIVE\n",
        "utilization 97 %, clock 1980 MHz, power 640 W, computes 75.0 % of a step\n",
        "\n   All 4 GPUs are actively being used!\n", "| All GPUs | How it was verified\n"})
    EXPECT_THAT(reported, HasSubstr(line));
  for (const char* name : {"Training Forward", "Training Backward", "Optimizer Step", "Evaluation Encoding",
                           "Similarity Computation", "Memory Cleanup", "Collective", "File Cycle"})
    EXPECT_THAT(reported, testing::ContainsRegex(std::string("\n   ") + name + " +\\| YES +\\| ."));
  EXPECT_THAT(reported, Not(HasSubstr("NO")));
}

TEST(Readiness, ASecondPassIsComputing) {
  Records records = ready_run(2);
  figures(records, 0, "train")["compute_ms"] = 3;
  figures(records, 0, "train")["compared_steps"] = 10;
  EXPECT_THAT(text(records), HasSubstr("computes 75.0 % of a step"));
  EXPECT_DOUBLE_EQ(readiness(records).devices.at(0).computes.value(), 0.75);
}

TEST(Readiness, OfOneDeviceIsNoMultiGpuTraining) {
  Records records = ready_run(1);
  figures(records, 0, "collective") = {{"rounds", 0}, {"elements_checked", 0}};
  expect(records, "pass", 0);
  const std::string reported = text(records);
  EXPECT_THAT(reported, HasSubstr("\nTotal GPUs Available: 1\nMulti-GPU Training: DISABLED\n"));
  EXPECT_THAT(reported, HasSubstr("left out: one device has no peer to exchange data with"));
  EXPECT_THAT(reported, Not(HasSubstr("peers")));
  EXPECT_THAT(reported, Not(HasSubstr("all ranks")));
  EXPECT_THAT(reported, HasSubstr("The one GPU is actively being used!"));
}

TEST(Readiness, OfTheHostSpeaksOfCpus) {
  Records records = ready_run(2);
  make_host(records);
  EXPECT_THAT(text(records), HasSubstr("\nTotal CPUs Available: 2\n"));
  EXPECT_THAT(text(records), HasSubstr("   CPU 1: 2.45 GB"));
  EXPECT_THAT(text(records), Not(HasSubstr("GPU")));
}

TEST(Readiness, HostsAreToldApart) {
  Records records = ready_run(2);
  find(records, RecordKind::start, 1).body["identity"]["hostname"] = "node2";
  EXPECT_THAT(text(records), HasSubstr("GPU 1 on node2: "));
}

TEST(Readiness, ADeviceThatIsBusyForLessThanATenthOfItsPeersIsIdle) {
  Records records = ready_run(4);
  figures(records, 2, "train")["compute_ms"] = 0.61;
  expect(records, "pass", 0);
  figures(records, 2, "train")["compute_ms"] = 0.59;
  expect(records, "degraded", 5);
  EXPECT_THAT(judge(records).reasons,
              ElementsAre("rank 2 on node1: GPU 2 is not being used: a pass took it 0.59 ms of computing, "
                          "and its peers 6 ms"));
  const std::string reported = text(records);
  EXPECT_THAT(reported, HasSubstr("   GPU 2: 2.45 GB / 46.0 GB (5.3%) IDLE\n"));
  EXPECT_THAT(reported,
              HasSubstr("   1 of 4 GPUs is NOT being used: GPU 2 (rank 2 on node1): a pass took it"));
  EXPECT_THAT(reported, Not(HasSubstr("All 4 GPUs are")));
}

TEST(Readiness, OfTwoDevicesThatComputeRightNoneIsIdle) {
  Records records = ready_run(2);
  figures(records, 1, "train")["compute_ms"] = 0.59;  // the other one may be the slow one
  expect(records, "pass", 0);
  records.push_back(fault_of_kind("replay", 1));
  EXPECT_THAT(why_idle(records, 1), HasSubstr("a pass took it 0.59 ms"));
}

TEST(Readiness, IsMeasuredAgainstPeersOfTheSameModelForAsManySamples) {
  Records records = ready_run(3);
  figures(records, 2, "train")["compute_ms"] = 0.5;
  find(records, RecordKind::start, 2).body["identity"]["device"]["name"] = "another";
  EXPECT_EQ(why_idle(records, 2), "");
  records = ready_run(3);
  figures(records, 2, "train")["compute_ms"] = 0.5;
  find(records, RecordKind::start, 2).body["identity"]["batch"] = 128;  // of 1024
  EXPECT_EQ(why_idle(records, 2), "");
}

TEST(Readiness, ADeviceWithoutWorkMemoryOrUtilizationIsIdle) {
  for (const Json& nothing : {Json(), Json(0.0)}) {
    Records records = ready_run(1);
    figures(records, 0, "train")["compute_ms"] = nothing;
    EXPECT_EQ(why_idle(records, 0), "its passes computed nothing");
    expect(records, "degraded", 5);
  }
  Records records = ready_run(2);
  figures(records, 1, "memory")["filled_bytes"] = 0;
  EXPECT_EQ(why_idle(records, 1), "") << "what is taken and given back is memory, too";
  figures(records, 1, "readiness")["cleanups"] = 0;
  EXPECT_EQ(why_idle(records, 1), "none of its memory was taken");
  records = ready_run(2);
  Json& utilization = find(records, RecordKind::end, 1).body["telemetry"]["gpu_utilization_percent"];
  utilization = nullptr;
  EXPECT_EQ(why_idle(records, 1), "") << "nobody told";
  utilization = {{"min", 0.0}, {"avg", 0.0}, {"max", 0.0}};
  EXPECT_EQ(why_idle(records, 1), "the driver reported no utilization for it");
  EXPECT_EQ(why_idle(records, 0), "");
}

TEST(Readiness, ADeviceOfWhichNoComputationIsRightIsIdle) {
  Records records = ready_run(1);
  for (const char* kind : {"replay", "optimizer", "evaluation"}) records.push_back(fault_of_kind(kind, 0));
  EXPECT_EQ(why_idle(records, 0), "") << "one is right";
  records.push_back(fault_of_kind("similarity", 0));
  EXPECT_EQ(why_idle(records, 0), "none of its computations gave a right result");
  expect(records, "fault", 1);
  EXPECT_THAT(judge(records).reasons[0], HasSubstr("is not being used")) << "it explains the faults";
}

TEST(Readiness, AnOperationThatWasNeverVerifiedIsNamedWithItsRank) {
  const std::vector<std::pair<std::string, std::string>> counts = {{"train", "replays"},
                                                                   {"readiness", "optimizer_steps"},
                                                                   {"readiness", "evaluations"},
                                                                   {"readiness", "similarities"},
                                                                   {"readiness", "cleanups"},
                                                                   {"collective", "rounds"},
                                                                   {"collective", "elements_checked"},
                                                                   {"io", "passes"}};
  const std::vector<std::vector<std::string>> names = {{"Training Forward", "Training Backward"},
                                                       {"Optimizer Step"},
                                                       {"Evaluation Encoding"},
                                                       {"Similarity Computation"},
                                                       {"Memory Cleanup"},
                                                       {"Collective"},
                                                       {"Collective"},
                                                       {"File Cycle"}};
  for (std::size_t i = 0; i < counts.size(); ++i) {
    Records records = ready_run(3);
    figures(records, 1, counts[i].first)[counts[i].second] = 0;
    EXPECT_EQ(not_verified(records, 1), names[i]);
    EXPECT_THAT(not_verified(records, 0), IsEmpty());
    expect(records, "incomplete", 4);
    std::vector<std::string> reasons;
    for (const std::string& name : names[i])
      reasons.push_back("rank 1 on node1: " + name + " was never verified");
    EXPECT_EQ(judge(records).reasons, reasons);
    EXPECT_THAT(text(records), HasSubstr("NO: rank 1 "));
  }
}

TEST(Readiness, ACountIsNoneWithoutItsPart) {
  Records records = ready_run(2);
  for (Json& part : find(records, RecordKind::end, 1).body["parts"])
    if (part["name"] == "readiness") part["name"] = "something else";
  EXPECT_EQ(not_verified(records, 1).size(), 4u);
  expect(records, "incomplete", 4);
}

TEST(Readiness, WhatWasNotAskedForIsLeftOut) {
  Records records = ready_run(2);
  for (const int rank : {0, 1}) figures(records, rank, "io") = {{"planned", false}};
  expect(records, "incomplete", 4);
  for (Record& record : records)
    if (record.kind == RecordKind::start) record.body["options"]["no-io"] = true;
  expect(records, "pass", 0);
  EXPECT_THAT(text(records), testing::ContainsRegex("File Cycle +\\| - +\\| left out: --no-io"));
}

TEST(Readiness, AFaultSpoilsWhatItTellsOf) {
  const std::string backward = "Training Backward";
  const std::vector<std::tuple<std::string, std::string, std::vector<std::string>>> cases = {
      {"replay", "product of layer 1, bf16 replay", {"Training Forward", backward}},
      {"replay", "activation of layer 2, bf16 replay", {"Training Forward", backward}},
      {"replay", "weight gradient of layer 2, bf16 replay", {backward}},
      {"gemm", "product of layer 1", {"Training Forward", backward}},
      {"extreme", "", {"Training Forward", backward}},
      {"nonfinite", "the loss", {"Training Forward", backward}},
      {"replica", "weights of layer 1", {"Optimizer Step"}},
      {"optimizer", "a step of Adam", {"Optimizer Step"}},
      {"evaluation", "", {"Evaluation Encoding"}},
      {"similarity", "", {"Similarity Computation"}},
      {"memory", "", {"Memory Cleanup"}},
      {"collective", "", {"Collective"}},
      {"file-stale", "", {"File Cycle"}},
      {"xid", "", {}}};
  for (const auto& [kind, where, spoilt] : cases) {
    Records records = ready_run(3);
    records.push_back(fault_of_kind(kind, 1, where));
    EXPECT_EQ(not_verified(records, 1), spoilt) << kind << " in " << where;
    EXPECT_THAT(not_verified(records, 0), IsEmpty());
    expect(records, "fault", 1);
  }
}

TEST(Readiness, EverySuspectIsSpoiltAndSoAreRepeats) {
  Records records = ready_run(3);
  records.push_back(fault_of_kind("evaluation", -1));
  records.back().body["suspects"] = {0, 2};
  EXPECT_THAT(not_verified(records, 0), ElementsAre("Evaluation Encoding"));
  EXPECT_THAT(not_verified(records, 2), ElementsAre("Evaluation Encoding"));
  EXPECT_THAT(not_verified(records, 1), IsEmpty());
  hold_back(records, "similarity", 1, 3);
  EXPECT_THAT(not_verified(records, 1), ElementsAre("Similarity Computation"));
}

TEST(Readiness, OfSeveralSuspectsOnlyTheIdleOneIsBlamed) {
  Records records = ready_run(2);
  figures(records, 1, "train")["compute_ms"] = 0.01;
  find(records, RecordKind::start, 1).body["identity"]["hostname"] = "node2";
  for (int i = 0; i < 57; ++i) {
    records.push_back(fault_of_kind("replica", 0, "weights of layer 1, different on ranks 0, 1"));
    records.back().body.update({{"rank", nullptr}, {"suspects", {0, 1}}});
  }
  hold_back(records, "replica", -1, 10);
  EXPECT_THAT(not_verified(records, 0), IsEmpty());
  EXPECT_THAT(not_verified(records, 1), ElementsAre("Optimizer Step"));
  EXPECT_THAT(text(records),
              testing::ContainsRegex("Optimizer Step +\\| NO: rank 1 +\\| 67 wrong results, first: "
                                     "replica fault, step [0-9]+, in weights of layer 1"));
  const Verdict verdict = judge(records);
  ASSERT_EQ(verdict.reasons.size(), 2u);
  EXPECT_THAT(verdict.reasons[0], HasSubstr("is not being used"));
  EXPECT_THAT(verdict.reasons[1],
              testing::MatchesRegex(
                  "GPU 1, UUID GPU-1: replica fault in .*; rank 1, step [0-9]+; and 66 more replica faults"));
  const Json nodes = build_result(records, verdict)["nodes"];
  EXPECT_EQ(nodes[0]["verdict"], "pass");
  EXPECT_EQ(nodes[1]["verdict"], "fail");
}

TEST(Readiness, OfALostRankTheLossIsAllThatIsSaid) {
  Records records = ready_run(3);
  remove(records, RecordKind::end, 1);
  remove(records, RecordKind::progress, 1);
  records.push_back(loss(1));
  figures(records, 2, "io")["passes"] = 0;  // it was not reached
  expect(records, "incomplete", 4);
  EXPECT_EQ(judge(records).reasons.size(), 1u);
  EXPECT_THAT(text(records), HasSubstr("   GPU 1: LOST\n"));
  EXPECT_THAT(text(records),
              HasSubstr("1 of 3 GPUs is NOT being used: GPU 1 (rank 1 on node1): its rank was lost"));
}

TEST(Readiness, WhoIsInterruptedNeedNotHaveDoneAll) {
  Records records = ready_run(2);
  figures(records, 1, "io")["passes"] = 0;
  figures(records, 1, "train")["compute_ms"] = nullptr;
  for (const int rank : {0, 1}) find(records, RecordKind::end, rank).body["reason"] = "signal";
  expect(records, "interrupted", 6);
}

TEST(Readiness, IsAskedOfVerifyAlone) {
  Records records = ready_run(2);
  figures(records, 1, "readiness")["evaluations"] = 0;
  figures(records, 1, "train")["compute_ms"] = 0.01;
  for (Record& record : records)
    if (record.kind == RecordKind::start) record.body["command"] = "burn";
  expect(records, "pass", 0);
  EXPECT_EQ(text(records), "");
}

TEST(Readiness, NothingOfARunWithoutRecords) {
  EXPECT_THAT(readiness_of(Json()).devices, IsEmpty());
  EXPECT_EQ(verify_text(Json::object()), "");
}

}  // namespace
}  // namespace egt
