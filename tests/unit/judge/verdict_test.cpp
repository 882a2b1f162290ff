#include "judge/verdict.hpp"

#include <gmock/gmock.h>

#include "judge/evidence.hpp"
#include "judge/result.hpp"
#include "tests/support/record_fixtures.hpp"

namespace egt {
namespace {

using namespace fixtures;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

void expect(const Verdict& verdict, const char* name, int exit_code) {
  EXPECT_EQ(verdict.name, name);
  EXPECT_EQ(verdict.exit_code, exit_code);
  EXPECT_FALSE(verdict.reasons.empty());
  for (const std::string& reason : verdict.reasons) EXPECT_EQ(reason.find('\n'), std::string::npos);
}

TEST(Verdict, PassesWhenAllWasDoneAndVerified) {
  const Verdict verdict = judge(good_run(2));
  expect(verdict, "pass", 0);
  EXPECT_THAT(verdict.reasons, ElementsAre("all planned work was done and verified on 2 ranks"));
}

TEST(Verdict, ARunThatEndsBeforeItsPlannedEndWithoutAVoteIsIncomplete) {
  auto records = good_run(2);
  find(records, RecordKind::end, 0).body["before_planned_end"] = true;
  expect(judge(records), "pass", 0);  // rank 1 voted
  find(records, RecordKind::end, 1).body["before_planned_end"] = true;
  const Verdict verdict = judge(records);
  expect(verdict, "incomplete", 4);
  EXPECT_THAT(verdict.reasons, ElementsAre(HasSubstr("a stop vote changed in transit")));
}

TEST(Verdict, APartThatProvesNothingIsNamedAndIsNotAmongTheVerified) {
  auto records = good_run(2);
  Json& part = find(records, RecordKind::end, 1).body["parts"][1];
  part["figures"].update({{"planned", true}, {"mistrusted", "not a disk test (in memory: tmpfs)"}});
  part["work"] = Json::object();
  const std::string why = "memory: not a disk test (in memory: tmpfs), on rank 1";
  const Verdict pass = judge(records);
  expect(pass, "pass", 0);
  EXPECT_THAT(pass.reasons, ElementsAre(why, "all other planned work was done and verified on 2 ranks"));
  records.push_back(fault(1, 40));
  const Verdict fault = judge(records);
  expect(fault, "fault", 1);
  EXPECT_THAT(fault.reasons, Contains(why));
  for (int rank = 0; rank < 2; ++rank)  // nothing else was verified
    for (Json& one : find(records, RecordKind::end, rank).body["parts"]) one["work"] = Json::object();
  records.pop_back();
  expect(judge(records), "incomplete", 4);
}

/// Shares of both ranks add up. 0.99 is required of every kind present, with full coverage only.
TEST(Verdict, WorkThatWasNotVerifiedMakesAFullRunIncomplete) {
  const auto run_with = [](const char* coverage, double verified_of_rank_1) {
    auto records = good_run(2);
    for (int rank = 0; rank < 2; ++rank) {
      Json& part = find(records, RecordKind::end, rank).body["parts"][0];
      EXPECT_EQ(part["name"], "train");
      part["figures"]["coverage"] = coverage;
      part["shares"] = {{{"kind", "gemm"}, {"precision", "bf16"}, {"done", 60}, {"verified", 60}},
                        {{"kind", "gemm"},
                         {"precision", "fp32"},
                         {"done", 40},
                         {"verified", rank == 1 ? verified_of_rank_1 : 40}}};
    }
    return records;
  };
  expect(judge(run_with("full", 40)), "pass", 0);
  expect(judge(run_with("full", 38)), "pass", 0);
  const auto records = run_with("full", 30);
  const Verdict verdict = judge(records);
  expect(verdict, "incomplete", 4);
  EXPECT_THAT(verdict.reasons,
              Contains("only 95 % of the gemm work was verified; --coverage full needs 99 %"));
  const Verdict sampled = judge(run_with("sampled", 0));
  expect(sampled, "pass", 0);
  EXPECT_THAT(sampled.reasons,
              ElementsAre("all planned work was done on 2 ranks; only part of it was verified: gemm 80 %"));
  EXPECT_THAT(judge(run_with("sampled", 40)).reasons,
              ElementsAre("all planned work was done and verified on 2 ranks"));
  auto broken = run_with("full", 0);
  remove(broken, RecordKind::end, 1);
  const Verdict lost = judge(broken);
  expect(lost, "incomplete", 4);
  for (const std::string& reason : lost.reasons) EXPECT_EQ(reason.find("was verified"), std::string::npos);
  auto stopped = run_with("full", 0);
  find(stopped, RecordKind::end, 0).body["reason"] = "signal";
  expect(judge(stopped), "interrupted", 6);

  const Json result = build_result(records, verdict);
  EXPECT_DOUBLE_EQ(result["verified_share"]["gemm"].get<double>(), 0.95);
  EXPECT_TRUE(result["verified_share"]["files"].is_null());
  // Computed by hand: 1 - (1 - rate)^n = 0.95 for n = 120 and 70.
  EXPECT_NEAR(result["detectable_error_rate"]["gemm"]["bf16"].get<double>(), 2.9957 / 120, 1e-9);
  EXPECT_NEAR(result["detectable_error_rate"]["gemm"]["fp32"].get<double>(), 2.9957 / 70, 1e-9);
}

TEST(Verdict, AFaultNamesRankStepAndPlace) {
  auto records = good_run(2);
  records.push_back(fault(1, 40));
  const Verdict verdict = judge(records);
  expect(verdict, "fault", 1);
  EXPECT_THAT(verdict.reasons, Contains("GPU 1, UUID GPU-1: memory fault in block 3; rank 1, step 40"));
}

TEST(Verdict, AReasonHasTheStepOfTheFaultAndNotOfItsCheck) {
  auto records = good_run(2);
  records.push_back(fault(1, 40));
  records.back().step = 42;  // the step of the check that reported it
  EXPECT_THAT(judge(records).reasons,
              Contains("GPU 1, UUID GPU-1: memory fault in block 3; rank 1, step 40"));
}

TEST(Verdict, AFaultOfNobodyKnownIsAFault) {
  auto records = good_run(2);
  records.push_back(fault(-1));
  const Verdict verdict = judge(records);
  expect(verdict, "fault", 1);
  EXPECT_THAT(verdict.reasons[0], HasSubstr("rank not known"));
}

TEST(Verdict, AFaultWinsOverALostRankAndASignal) {
  auto records = good_run(3);
  find(records, RecordKind::end, 0) = end(0, "signal");
  remove(records, RecordKind::end, 1);
  records.push_back(fault(2));
  const Verdict verdict = judge(records);
  expect(verdict, "fault", 1);
  EXPECT_THAT(verdict.reasons, Contains(HasSubstr("rank 1 was lost")));
}

TEST(Verdict, AnEndBecauseOfAFaultIsAFaultEvenIfItsRecordIsLost) {
  auto records = good_run(1);
  find(records, RecordKind::end, 0).body["reason"] = "fault";
  expect(judge(records), "fault", 1);
}

Record device_error(int rank) {
  Record record = fault(rank, 12);
  record.body["kind"] = "device-error";
  record.body["where"] = "CUDA could not copy memory: uncorrectable ECC error (cudaErrorECCUncorrectable)";
  return record;
}

TEST(Verdict, AFailedDeviceIsAFaultOfItsRankAlone) {
  auto records = good_run(3);
  for (int rank = 0; rank < 3; ++rank)
    find(records, RecordKind::end, rank) =
        failed_end(rank, rank == 1 ? StatusCode::device_error : StatusCode::aborted, 12);
  records.push_back(device_error(1));
  const Verdict verdict = judge(records);
  expect(verdict, "fault", 1);
  EXPECT_THAT(verdict.reasons,
              ElementsAre("GPU 1, UUID GPU-1: device-error fault in CUDA could not copy memory: "
                          "uncorrectable ECC error (cudaErrorECCUncorrectable); rank 1, step 12"));
}

TEST(Verdict, AnEndByADeviceErrorIsAFaultEvenIfItsRecordIsLost) {
  auto records = good_run(2);
  find(records, RecordKind::end, 1) = failed_end(1, StatusCode::device_error, 12);
  const Verdict verdict = judge(records);
  expect(verdict, "fault", 1);
  EXPECT_THAT(verdict.reasons, Contains(HasSubstr("rank 1, step 11: device error")));
}

TEST(Verdict, ARankWithoutAnEndIsLost) {
  auto records = good_run(2);
  remove(records, RecordKind::end, 1);
  const Verdict verdict = judge(records);
  expect(verdict, "incomplete", 4);
  EXPECT_THAT(verdict.reasons, Contains("rank 1 was lost: it left no end record; last seen at step 99"));
}

TEST(Verdict, ARankThatLeftNoRecordAtAllIsLost) {
  auto records = good_run(2);
  records[0].body["size"] = 3;
  const Verdict verdict = judge(records);
  expect(verdict, "incomplete", 4);
  EXPECT_THAT(verdict.reasons, Contains("rank 2 was lost: it left no end record"));
}

TEST(Verdict, EveryPartNeedsTheRecordsOfAllRanks) {
  const auto complete = resumed(good_run(2), 2);
  expect(judge(complete), "pass", 0);
  auto records = complete;  // rank 1's journal of the first part is missing, and its faults with it
  std::erase_if(records, [](const Record& record) { return record.rank == 1 && record.time < 1900; });
  const Verdict lost = judge(records);
  expect(lost, "incomplete", 4);
  EXPECT_THAT(lost.reasons, ElementsAre("rank 1 left no record of part 1"));
  records = complete;
  std::erase_if(records, [](const Record& record) { return record.time < 1900; });
  EXPECT_THAT(judge(records).reasons, ElementsAre("1 of 2 parts of the run left no record"));
}

TEST(Verdict, WhatFailedBeforeAResumeStaysAFailure) {
  auto first = good_run(2);
  Json& memory = find(first, RecordKind::end, 1).body["parts"][1];
  memory["success"] = false;  // as in a part that a signal stopped
  expect(judge(resumed(first, 2)), "pass", 0);
  memory["failure"] = memory["figures"]["undone"] = "no space left on device";
  const Verdict verdict = judge(resumed(first, 2));
  expect(verdict, "incomplete", 4);
  EXPECT_THAT(verdict.reasons,
              ElementsAre("rank 1, memory, before the run was resumed: no space left on device"));
}

TEST(Verdict, WhatFailedIsIncompleteAlsoIfTheRunIsInterrupted) {
  auto records = good_run(2);
  for (const int rank : {0, 1}) find(records, RecordKind::end, rank).body["reason"] = "signal";
  expect(judge(records), "interrupted", 6);
  Json& memory = find(records, RecordKind::end, 1).body["parts"][1];
  memory["success"] = false;
  expect(judge(records), "interrupted", 6);
  memory["failure"] = memory["figures"]["undone"] = "no space left on device";
  expect(judge(records), "incomplete", 4);
}

TEST(Verdict, ARankWithoutAStartRecordIsIncomplete) {
  auto records = good_run(2);
  remove(records, RecordKind::start, 1);
  const Verdict verdict = judge(records);
  expect(verdict, "incomplete", 4);
  EXPECT_THAT(verdict.reasons, ElementsAre("rank 1 left no start record of part 1"));
}

TEST(Verdict, OptionsThatAreNotUtf8AreTheSameWithAndWithoutTheirJourney) {
  auto records = good_run(2);
  find(records, RecordKind::start, 0).body["options"] = {{"output", "a\xff"}};
  find(records, RecordKind::start, 1).body["options"] = {{"output", "a\uFFFD"}};
  expect(judge(records), "pass", 0);
}

TEST(Verdict, JournalsOfDifferentRunsAreIncomplete) {
  const auto judged = [](const char* field, const Json& other) {
    auto records = good_run(2);
    find(records, RecordKind::start, 1).body[field] = other;
    return judge(records);
  };
  for (const auto& [field, what] :
       {std::pair("run_id", "run ids"), std::pair("program_version", "program versions"),
        std::pair("command", "commands"), std::pair("options", "options")}) {
    const Verdict verdict = judged(field, "other");
    expect(verdict, "incomplete", 4);
    EXPECT_THAT(
        verdict.reasons,
        ElementsAre(std::string("the journals of ranks 0 and 1 are of different runs: different ") + what));
  }
}

TEST(Verdict, WrongResultsWithoutTheirFaultRecordAreAFault) {
  auto records = good_run(2);
  Json& memory = find(records, RecordKind::end, 1).body["parts"][1];
  memory["success"] = false;
  memory["failure"] = "1 words of memory were wrong";
  expect(judge(records), "incomplete", 4);
  memory["figures"]["mismatches"] = 1;
  const Verdict verdict = judge(records);
  expect(verdict, "fault", 1);
  EXPECT_EQ(verdict.reasons[0], "rank 1, memory: 1 words of memory were wrong; its fault record is missing");
  auto of_verify = records;
  for (Record& record : of_verify)
    if (record.kind == RecordKind::start) record.body["command"] = "verify";
  EXPECT_THAT(judge(of_verify).reasons, Contains(verdict.reasons[0]));
  records.push_back(fault(0));  // rank 1 counts the data that it forwarded
  records.back().body["phase"] = "memory";
  for (const std::string& reason : judge(records).reasons) EXPECT_THAT(reason, Not(HasSubstr("is missing")));

  Json& train = find(records, RecordKind::end, 0).body["parts"][0];
  train["success"] = false;
  train["figures"]["wrong_checks"] = 1;
  EXPECT_THAT(judge(records).reasons, Contains(HasSubstr("rank 0, train: ")));
  records.push_back(fault(1));  // of the other rank
  EXPECT_THAT(judge(records).reasons, Contains(HasSubstr("rank 0, train: ")));
  EXPECT_THAT(judge(records).reasons,
              Not(Contains(HasSubstr("rank 1, memory: 1 words of memory were wrong; its"))));
}

TEST(Verdict, NoRecordsAreIncomplete) {
  expect(judge({}), "incomplete", 4);
}

class ErrorsAfterTheFirstStep : public testing::TestWithParam<StatusCode> {};

TEST_P(ErrorsAfterTheFirstStep, AreIncomplete) {
  auto records = good_run(2);
  find(records, RecordKind::end, 1) = failed_end(1, GetParam(), 7);
  const Verdict verdict = judge(records);
  expect(verdict, "incomplete", 4);
  EXPECT_THAT(verdict.reasons[0], HasSubstr("rank 1, step 6: "));
  EXPECT_THAT(verdict.reasons[0], HasSubstr("it did not work"));
}

INSTANTIATE_TEST_SUITE_P(Verdict, ErrorsAfterTheFirstStep,
                         testing::Values(StatusCode::timeout, StatusCode::aborted, StatusCode::internal,
                                         StatusCode::io_error, StatusCode::no_space,
                                         StatusCode::unavailable));

class EnvironmentErrors : public testing::TestWithParam<StatusCode> {};

TEST_P(EnvironmentErrors, BeforeTheFirstStepHaveExitCode3) {
  std::vector<Record> records = {start(0, 2), start(1, 2), failed_end(0, StatusCode::aborted, 0),
                                 failed_end(1, GetParam(), 0)};
  expect(judge(records), "incomplete", 3);
}

INSTANTIATE_TEST_SUITE_P(Verdict, EnvironmentErrors,
                         testing::Values(StatusCode::unavailable, StatusCode::unsupported,
                                         StatusCode::out_of_memory, StatusCode::no_space));

TEST(Verdict, ABenchWithoutMemoryHasExitCode3) {
  auto records = good_run(1);
  PartReport part;
  part.name = "bench checks";
  part.figures = {{"trials_without_memory", 2}};
  Json& parts = find(records, RecordKind::end, 0).body["parts"];
  const Json worked = parts;
  parts = Json::array({part_to_json(part)});
  expect(judge(records), "incomplete", 3);
  part.figures["trials_without_memory"] = 0;
  parts = Json::array({part_to_json(part)});
  expect(judge(records), "incomplete", 4);
  part.figures["trials_without_memory"] = 2;
  parts = worked;
  parts.push_back(part_to_json(part));
  parts.back()["success"] = false;
  expect(judge(records), "incomplete", 4);
}

TEST(Verdict, ATimeoutBeforeTheFirstStepIsIncomplete) {
  expect(judge({start(0, 1), failed_end(0, StatusCode::timeout, 0)}), "incomplete", 4);
}

TEST(Verdict, APlannedPartThatVerifiedNothingIsIncomplete) {
  auto records = good_run(2);
  PartReport part = memory_part();
  part.work = {};
  part.figures["planned"] = true;
  find(records, RecordKind::end, 1).body["parts"].push_back(part_to_json(part));
  const Verdict verdict = judge(records);
  expect(verdict, "incomplete", 4);
  EXPECT_THAT(verdict.reasons, ElementsAre("rank 1, memory: nothing was verified"));
}

TEST(Verdict, ASignalInterrupts) {
  auto records = good_run(2);
  find(records, RecordKind::end, 0) = end(0, "signal");
  find(records, RecordKind::end, 1) = end(1, "signal");
  const Verdict verdict = judge(records);
  expect(verdict, "interrupted", 6);
  EXPECT_EQ(verdict.reasons[0], "stopped by SIGTERM, step 99");
}

TEST(Verdict, WhatASignalLeftUnfinishedIsTold) {
  std::vector<Record> records = {start(0, 1), end(0, "signal")};
  PartReport part = memory_part();
  part.success = false;
  part.failure = "not all of the memory was verified";
  part.work = {};
  records[1].body["parts"] = Json::array({part_to_json(part)});
  const Verdict verdict = judge(records);
  expect(verdict, "interrupted", 6);
  EXPECT_THAT(verdict.reasons, Contains("rank 0, memory: not all of the memory was verified"));
}

TEST(Verdict, ALostRankWinsOverASignal) {
  auto records = good_run(2);
  find(records, RecordKind::end, 0) = end(0, "signal");
  remove(records, RecordKind::end, 1);
  expect(judge(records), "incomplete", 4);
}

TEST(Verdict, APartThatFailedIsIncomplete) {
  auto records = good_run(2);
  Json& part = find(records, RecordKind::end, 1).body["parts"][1];
  part["success"] = false;
  part["failure"] = "half of it";
  const Verdict verdict = judge(records);
  expect(verdict, "incomplete", 4);
  EXPECT_THAT(verdict.reasons, ElementsAre("rank 1, memory: half of it"));
}

TEST(Verdict, APartThatDoesNotSaySoDidNotSucceed) {
  auto records = good_run(1);
  find(records, RecordKind::end, 0).body["parts"][0].erase("success");
  expect(judge(records), "incomplete", 4);
}

TEST(Verdict, WithoutVerifiedWorkItNeverPasses) {
  auto records = good_run(2);
  for (Json& part : find(records, RecordKind::end, 1).body["parts"]) part["work"] = work_to_json({});
  const Verdict verdict = judge(records);
  expect(verdict, "incomplete", 4);
  EXPECT_THAT(verdict.reasons, ElementsAre("rank 1: no work was verified"));
}

TEST(Verdict, WithoutPartsItNeverPasses) {
  auto records = good_run(1);
  find(records, RecordKind::end, 0).body.erase("parts");
  expect(judge(records), "incomplete", 4);
}

TEST(Verdict, AnyOrderOfRecordsGivesTheSame) {
  auto records = good_run(2);
  std::reverse(records.begin(), records.end());
  expect(judge(records), "pass", 0);
}

TEST(Verdict, AFloodOfReasonsIsCutShort) {
  auto records = good_run(1);
  for (int i = 0; i < 100; ++i) {
    records.push_back(fault(0, i));
    records.back().body["kind"] = "memory" + std::to_string(i);
  }
  const Verdict verdict = judge(records);
  EXPECT_EQ(verdict.reasons.size(), 21u);
  EXPECT_EQ(verdict.reasons.back(), "and 80 more");
}

TEST(Verdict, FaultsOfOneRankAndKindAreOneReason) {
  auto records = good_run(3);
  for (const int step : {7, 8, 9}) records.push_back(fault(1, step));
  records.push_back(fault(2, 8));
  for (const Json& suspects : {Json({0, 1}), Json({0, 2})}) {
    records.push_back(fault(0, 9));
    records.back().body.update({{"rank", nullptr}, {"suspects", suspects}});
  }
  EXPECT_THAT(
      judge(records).reasons,
      ElementsAre("GPU 1, UUID GPU-1: memory fault in block 3; rank 1, step 7; and 2 more memory faults",
                  "GPU 2, UUID GPU-2: memory fault in block 3; rank 2, step 8",
                  "rank not known: memory fault in block 3; step 9",
                  "rank not known: memory fault in block 3; step 9"));
}

TEST(Verdict, FaultsHeldBackAreTold) {
  auto records = good_run(2);
  records.push_back(fault(1));
  hold_back(records, "memory", 1, 8112);
  EXPECT_THAT(
      judge(records).reasons,
      Contains("GPU 1, UUID GPU-1: memory fault in block 3; rank 1, step 40; and 8112 more memory faults"));
  records = good_run(2);
  hold_back(records, "memory", 1, 1);
  EXPECT_THAT(judge(records).reasons, Contains("GPU 1, UUID GPU-1; rank 1; and 1 more memory fault"));
}

TEST(Verdict, AFoundInjectionIsAFaultThatSaysSoFirst) {
  auto records = good_run(2);
  ask_for(records, {"memory:rank=1,step=20"});
  records.push_back(injection("memory:rank=1,step=20"));
  records.push_back(fault(1));
  const Verdict verdict = judge(records);
  expect(verdict, "fault", 1);
  EXPECT_THAT(verdict.reasons,
              ElementsAre(says_nothing, "GPU 1, UUID GPU-1: memory fault in block 3; rank 1, step 40"));
  EXPECT_EQ(verdict.injections.size(), 1u);
}

TEST(Verdict, AFloodStillSaysFirstThatItWasInjected) {
  auto records = good_run(2);
  ask_for(records, {"memory:rank=1,step=20"});
  records.push_back(injection("memory:rank=1,step=20"));
  for (int i = 0; i < 100; ++i) records.push_back(fault(1));
  EXPECT_EQ(judge(records).reasons[0], says_nothing);
}

TEST(Verdict, AnInjectionThatNobodyFoundIsIncomplete) {
  auto records = good_run(2);
  ask_for(records, {"weight:rank=1,step=20", "memory:rank=0,step=25"});
  records.push_back(injection("weight:rank=1,step=20"));
  const Verdict verdict = judge(records);
  expect(verdict, "incomplete", 4);
  EXPECT_THAT(
      verdict.reasons,
      ElementsAre(
          says_nothing, "injected fault not found: weight on rank 1, step 20",
          "injected fault never struck: memory on rank 0, step 25: the run ended before the next occasion; "
          "run longer"));
}

TEST(Verdict, WithOneFoundTheMissedOnesAreTold) {
  auto records = good_run(2);
  ask_for(records, {"memory:rank=1,step=20", "weight:rank=0,step=20"});
  records.push_back(injection("memory:rank=1,step=20"));
  records.push_back(injection("weight:rank=0,step=20"));
  records.push_back(fault(1));
  const Verdict verdict = judge(records);
  expect(verdict, "fault", 1);
  EXPECT_EQ(verdict.reasons[0], says_nothing);
  EXPECT_THAT(verdict.reasons, Contains("injected fault not found: weight on rank 0, step 20"));
}

TEST(Verdict, AnInterruptedRunWithInjectionsIsNoCleanOne) {
  auto records = good_run(1);
  ask_for(records, {"memory:rank=0,step=20"});
  find(records, RecordKind::end, 0) = end(0, "signal");
  expect(judge(records), "incomplete", 4);
}

TEST(Verdict, AnInjectionNobodyAskedForIsNoCleanRunEither) {
  auto records = good_run(1);
  records.push_back(injection("memory:rank=0,step=20"));
  expect(judge(records), "incomplete", 4);
}

std::vector<Record> going_on(std::vector<Record> more) {
  std::vector<Record> records = {start(0, 2), start(1, 2), progress(0), progress(1)};
  records.insert(records.end(), more.begin(), more.end());
  return records;
}

TEST(VerdictSoFar, IsNeverAPass) {
  expect(judge_so_far(going_on({})), "running", no_exit_code);
  expect(judge_so_far(good_run(2)), "running", no_exit_code);
  expect(judge_so_far({}), "running", no_exit_code);
}

TEST(VerdictSoFar, IsWhatSpeaksAgainstTheRunMost) {
  expect(judge_so_far(going_on({finding(1)})), "degraded", 5);
  expect(judge_so_far(going_on({finding(1), loss(0)})), "incomplete", 4);
  expect(judge_so_far(going_on({finding(1), loss(0), fault(1)})), "fault", 1);
  expect(judge_so_far(going_on({failed_end(1, StatusCode::internal, 3)})), "incomplete", 4);
}

TEST(VerdictSoFar, DoesNotMissWhatMayStillBeFound) {
  auto records = going_on({});
  ask_for(records, {"weight:rank=1,step=20", "memory:rank=0,step=25"});
  records.push_back(injection("weight:rank=1,step=20"));
  const Verdict verdict = judge_so_far(records);
  expect(verdict, "running", no_exit_code);
  EXPECT_EQ(verdict.reasons[0], says_nothing);
  for (const Json& injection : verdict.injections) EXPECT_EQ(injection["found"], nullptr) << injection;
}

TEST(MissingEvidence, ARunThatEndedInOrderEndedOnAllRanks) {
  std::vector<Record> records = good_run(2);
  EXPECT_THAT(missing_evidence(parts_of(records), 2, true), IsEmpty());
  std::erase_if(records, [](const Record& one) { return one.kind == RecordKind::end && one.rank == 1; });
  EXPECT_THAT(missing_evidence(parts_of(records), 2, true),
              ElementsAre("rank 1 left no end record of part 1, but rank 0 did"));
  for (Record& one : records)
    if (one.kind == RecordKind::end) one.body["reason"] = "peer lost";
  EXPECT_THAT(missing_evidence(parts_of(records), 2, true), IsEmpty()) << "it was lost, which is known";
}

TEST(MissingEvidence, ARanksRecordsEndWhereItsPeersEnd) {
  std::vector<Record> records = {start(0, 2), start(1, 2), progress(0, 3000)};
  EXPECT_THAT(missing_evidence(parts_of(records), 2, true),
              ElementsAre("rank 1 left no record of part 1 after step 0, but rank 0 reached step 3000"));
  EXPECT_THAT(missing_evidence(parts_of(records), 2, false), IsEmpty()) << "they may come";
  records.push_back(progress(1, 2995));
  records.back().body["elapsed_seconds"] = 20.0;
  EXPECT_THAT(missing_evidence(parts_of(records), 2, true), IsEmpty()) << "a few slow steps";
  records.back() = progress(1, 2000);
  EXPECT_THAT(missing_evidence(parts_of(records), 2, true), IsEmpty()) << "many steps within a second";
}

}  // namespace
}  // namespace egt
