#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "session/injection/injection_serializer.hpp"
#include "session/selftest/selftest_report.hpp"
#include "session/selftest/selftest_watch.hpp"
#include "tests/support/record_fixtures.hpp"
#include "tests/support/selftest_fixtures.hpp"

namespace egt {
namespace {

using enum InjectionKind;
using fixtures::fault_of;
using fixtures::injection_of;
using fixtures::records_of;
using fixtures::struck;
using testing::ElementsAre;
using testing::HasSubstr;

const SelftestPlan plan = plan_selftest({.ranks = 2, .layers = 6});

/// A run of two ranks that ended when all was detected, or for another reason.
std::vector<Record> ended(const std::string& reason = "done") {
  std::vector<Record> run = fixtures::good_run(2);
  for (Record& record : run)
    if (record.kind == RecordKind::end) record.body["reason"] = reason;
  return run;
}

Verdict judged(const std::vector<Record>& events, std::vector<Record> run = ended(),
               const SelftestPlan& planned = plan) {
  run.insert(run.end(), events.begin(), events.end());
  return judge_selftest(planned, score_selftest(planned, run), run);
}

TEST(SelftestVerdict, PassesWhereAllIsFound) {
  const Verdict verdict = judged(records_of(plan));
  EXPECT_EQ(verdict.name, "pass");
  EXPECT_EQ(verdict.exit_code, 0);
  EXPECT_THAT(verdict.reasons, ElementsAre(HasSubstr("all 780 injected faults")));
}

TEST(SelftestVerdict, PartsThatSawTheInjectedFaultsAreNoFailure) {
  std::vector<Record> run = ended();
  for (Json& part : fixtures::find(run, RecordKind::end, 1).body["parts"]) part["success"] = false;
  EXPECT_EQ(judged(records_of(plan), run).exit_code, 0);
}

TEST(SelftestVerdict, APartThatFailedForAReasonOfItsOwnIsToldOf) {
  std::vector<Record> run = ended();
  Json& memory_part = fixtures::find(run, RecordKind::end, 1).body["parts"][1];
  memory_part["success"] = false;
  memory_part["failure"] = "3 wrong words in memory";
  memory_part["figures"]["undone"] = "not all of the memory was verified";
  EXPECT_EQ(judged(records_of(plan), run).exit_code, 4);
  memory_part["figures"]["undone"] = nullptr;
  EXPECT_EQ(judged(records_of(plan), run).exit_code, 0);
  std::vector<Record> events = records_of(plan);
  std::erase_if(events, [&](const Record& record) {
    return record.kind == RecordKind::injection &&
           record.body["kind"].get<std::string>().starts_with("memory") && record.body["rank"] == 1;
  });
  EXPECT_EQ(judged(events, run).exit_code, 4) << "nothing was put into this rank's memory";
}

TEST(SelftestVerdict, AMissIsAFaultAndNamesTheKind) {
  int number = 0;
  const Verdict verdict = judged(records_of(
      plan, [&](const Injection& one) { return one.kind != gemm || is_persistent(one) || ++number > 3; }));
  EXPECT_EQ(verdict.name, "fault");
  EXPECT_EQ(verdict.exit_code, 1);
  EXPECT_THAT(verdict.reasons, ElementsAre("gemm: 3 of 40 missed"));
}

TEST(SelftestVerdict, AFalseAlarmIsAFault) {
  std::vector<Record> events = records_of(plan);
  events.push_back(fault_of(injection_of(memory, 1), 2000, 1));
  const Verdict verdict = judged(events);
  EXPECT_EQ(verdict.exit_code, 1);
  EXPECT_THAT(verdict.reasons, ElementsAre(HasSubstr("false alarm: a memory fault")));
}

TEST(SelftestVerdict, SaysThatTheDeadlineCameFirst) {
  const auto found = [](const Injection& one) { return one.kind != memory; };
  EXPECT_THAT(judged(records_of(plan, found), ended("duration")).reasons,
              ElementsAre("memory: 40 of 40 missed", HasSubstr("deadline")));
  EXPECT_EQ(judged(records_of(plan), ended("duration")).exit_code, 0);
}

TEST(SelftestVerdict, WithoutAnInjectionItNeverPasses) {
  EXPECT_EQ(judged({}, ended(), {}).exit_code, 1);
  EXPECT_EQ(judged({}).exit_code, 1);
}

TEST(SelftestVerdict, ARunThatBrokeOrWasInterruptedIsJudgedAsAny) {
  std::vector<Record> run = ended();
  fixtures::find(run, RecordKind::end, 1) = fixtures::end(1, "signal");
  EXPECT_EQ(judged({}, run).exit_code, 6);
  run = ended();
  fixtures::remove(run, RecordKind::end, 1);
  EXPECT_EQ(judged(records_of(plan), run).exit_code, 4);
}

/// Injections and faults of the first `steps` steps; both ranks were then stopped.
Verdict judged_after_a_stop(std::vector<Record> events, std::int64_t steps) {
  std::erase_if(events, [&](const Record& record) { return record.step >= steps; });
  std::vector<Record> run = ended("signal");
  for (Record& record : run)
    if (record.kind == RecordKind::end) record.body["steps"] = steps;
  return judged(events, run);
}

/// A step before which several training injections have occurred and were detected.
std::int64_t middle_step() {
  std::vector<std::int64_t> steps;
  for (const Injection& one : plan.injections)
    if (one.kind == gemm && !is_persistent(one)) steps.push_back(one.step);
  return steps[steps.size() / 2];
}

TEST(SelftestVerdict, AStopHidesNeitherMissesNorWrongBlameNorFalseAlarms) {
  const std::int64_t stop = middle_step();
  const Verdict clean = judged_after_a_stop(records_of(plan), stop);
  EXPECT_EQ(clean.exit_code, 6) << testing::PrintToString(clean.reasons);

  int number = 0;
  const Verdict missed = judged_after_a_stop(
      records_of(plan, [&](const Injection& one) { return one.kind != gemm || ++number > 1; }), stop);
  EXPECT_EQ(missed.name, "fault");
  EXPECT_EQ(missed.exit_code, 1);
  EXPECT_THAT(missed.reasons, testing::Contains("gemm: 1 of 20 missed"));
  EXPECT_THAT(missed.reasons, testing::Contains(HasSubstr("stopped by")));

  std::vector<Record> events = records_of(plan);
  for (Record& record : events)
    if (record.kind == RecordKind::fault && record.step < stop && number-- > 0) record.body["rank"] = 7;
  EXPECT_EQ(judged_after_a_stop(events, stop).exit_code, 1) << "blamed on a wrong rank";

  events = records_of(plan);
  events.push_back(fault_of(injection_of(memory, 1), 1, 1));
  EXPECT_EQ(judged_after_a_stop(events, stop).exit_code, 1) << "a false alarm";
}

TEST(SelftestVerdict, AStopMakesNoMissOfWhatWasNotYetDue) {
  const std::int64_t stop = middle_step() + 1;  // the fault would come one step later
  const Verdict verdict = judged_after_a_stop(records_of(plan), stop);
  EXPECT_EQ(verdict.exit_code, 6) << testing::PrintToString(verdict.reasons);
  EXPECT_THAT(verdict.reasons, testing::Not(testing::Contains(HasSubstr("missed"))));
}

TEST(SelftestReport, WhatWasNotDueBeforeAStopIsNotDoneAndNotFailed) {
  const std::int64_t stop = middle_step() + 1;
  std::vector<Record> run = ended("signal"), events = records_of(plan);
  std::erase_if(events, [&](const Record& record) { return record.step >= stop; });
  for (Record& record : run)
    if (record.kind == RecordKind::end) record.body["steps"] = stop;
  run.insert(run.end(), events.begin(), events.end());
  const SelftestOutcome outcome = conclude_selftest(plan, run);
  const Json& results = outcome.result["results"];
  const auto row = std::find_if(results.begin(), results.end(),
                                [](const Json& one) { return one["test_name"] == "selftest.gemm"; });
  ASSERT_NE(row, results.end());
  EXPECT_FALSE((*row)["success"]);
  EXPECT_EQ((*row)["not_due"], 1);
  EXPECT_EQ((*row)["failure"], "gemm: 19 of 40 never injected; gemm: 1 of 21 not yet due");
  EXPECT_EQ((*row)["undone"], (*row)["failure"]);
  EXPECT_EQ(outcome.result["test_summary"]["failed_tests"], 0);
  EXPECT_THAT(outcome.table, testing::AllOf(HasSubstr("not done"), testing::Not(HasSubstr("failed"))));
}

TEST(SelftestVerdict, AStoppedRunWithAFindingIsDegraded) {
  std::vector<Record> run = ended("signal"), events = records_of(plan);
  run.push_back(fixtures::finding(1));
  std::erase_if(events, [](const Record& record) { return record.step >= middle_step(); });
  EXPECT_EQ(judged(events, run).exit_code, 5) << "what was never injected is no miss";
}

TEST(SelftestVerdict, AFindingHidesNoMiss) {
  std::vector<Record> run = ended();
  run.push_back(fixtures::finding(1));
  EXPECT_EQ(judged(records_of(plan), run).exit_code, 5);
  EXPECT_EQ(judged(records_of(plan, [](const Injection& one) { return one.kind != gemm; }), run).exit_code,
            1);
}

TEST(SelftestReport, TellsEveryKind) {
  const SelftestPlan alone = plan_selftest({.ranks = 1, .layers = 6});
  const SelftestScore score = score_selftest(alone, records_of(alone));
  const std::string table = table_text(alone, score);
  for (const InjectionRow& row : injection_rows)
    EXPECT_EQ(table.find(std::string("\n") + row.name + " ") != std::string::npos, row.changes_data());
  for (const char* kind : {"gradient", "activation", "gemm", "extreme"})
    EXPECT_THAT(table, HasSubstr(std::string("\n") + kind + "-persistent "));
  EXPECT_THAT(table, HasSubstr("left out: a single rank"));
  const Json results = to_results(alone, score);
  ASSERT_EQ(results.size(), score.rows.size());
  EXPECT_EQ(results[0]["test_name"], "selftest.weight");
  EXPECT_EQ(results[0]["found"], 32);
  EXPECT_EQ(results[0]["latency_steps"], (Json{{"p50", 1}, {"max", 1}}));
  EXPECT_TRUE(results[0]["success"]);
  const Json missed = to_results(alone, score_selftest(alone, {}));
  EXPECT_FALSE(missed[0]["success"]);
  EXPECT_TRUE(missed[0]["latency_steps"].is_null());
}

TEST(InjectionSerializer, HoldsTheNextBackUntilTheLastIsFound) {
  InjectionSerializer gate(1e9);
  const Injection stale = injection_of(file_stale, 1), bit = injection_of(file_bit, 1);
  EXPECT_TRUE(gate.admits(stale));
  EXPECT_FALSE(gate.admits(bit)) << "one file has one fault at a time";
  EXPECT_TRUE(gate.admits(injection_of(memory, 1))) << "memory is another detector's";
  EXPECT_TRUE(gate.admits(injection_of(weight, 1)));
  EXPECT_TRUE(gate.admits(injection_of(weight, 1))) << "the plan spreads these";
  ASSERT_TRUE(gate.write(fault_of(injection_of(memory, 1), 3, 1)).ok());
  EXPECT_FALSE(gate.admits(bit));
  ASSERT_TRUE(gate.write(fault_of(stale, 3, 1)).ok());
  EXPECT_TRUE(gate.admits(bit));
  EXPECT_FALSE(gate.admits(stale));
}

TEST(InjectionSerializer, GivesUpOnWhatStruckAndIsNotFound) {
  InjectionSerializer gate(0);
  const Injection injection = injection_of(memory, 1);
  EXPECT_TRUE(gate.admits(injection));
  EXPECT_FALSE(gate.admits(injection)) << "it has not struck yet";
  ASSERT_TRUE(gate.write(struck(injection, 3)).ok());
  EXPECT_TRUE(gate.admits(injection));
}

TEST(InjectionSerializer, WaitsHalfAsLongForADetectorThatMissed) {
  InjectionSerializer gate(0.1);
  const Injection injection = injection_of(memory, 1);
  const Clock::time_point start = Clock::now();
  for (int handed_out = 0; handed_out < 12; ++handed_out) {
    while (!gate.admits(injection)) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    ASSERT_TRUE(gate.write(struck(injection, handed_out)).ok());
  }
  EXPECT_GE(seconds_since(start), 0.19);
  EXPECT_LT(seconds_since(start), 1) << "1.1 without";
}

std::int64_t after_the_plan() {
  std::int64_t last = 0;
  for (const Injection& injection : plan.injections) last = std::max(last, injection.step);
  return last + longest_latency(plan) + 1;
}

void feed(SelftestWatch& watch, const std::vector<Record>& records) {
  for (const Record& record : records) ASSERT_TRUE(watch.write(record).ok());
}

TEST(SelftestWatch, IsDoneTwoPeriodsAfterAllIsFound) {
  SelftestWatch watch(plan, 1e9);
  feed(watch, records_of(plan));
  const std::int64_t over = after_the_plan();
  EXPECT_FALSE(watch.is_done(10)) << "the plan is not over";
  EXPECT_FALSE(watch.is_done(over));
  EXPECT_FALSE(watch.is_done(over + 7));
  EXPECT_TRUE(watch.is_done(over + 8));
}

TEST(SelftestWatch, WaitsForWhatIsNotFoundAndThenGivesUp) {
  const auto records = records_of(plan, [](const Injection& one) { return one.kind != file_lost; });
  SelftestWatch patient(plan, 1e9), impatient(plan, 0);
  feed(patient, records);
  feed(impatient, records);
  EXPECT_FALSE(patient.is_done(after_the_plan() + 1000));
  EXPECT_FALSE(impatient.is_done(10));
  EXPECT_TRUE(impatient.is_done(after_the_plan()));
}

}  // namespace
}  // namespace egt
