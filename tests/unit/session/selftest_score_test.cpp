#include "session/selftest/selftest_score.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/selftest_fixtures.hpp"

namespace egt {
namespace {

using enum InjectionKind;
using fixtures::fault_of;
using fixtures::injection_of;
using fixtures::records_of;
using fixtures::struck;

const SelftestPlan whole = plan_selftest({.ranks = 3, .layers = 6});

SelftestPlan only(const Injection& injection) {
  return {.injections = {injection}, .left_out = {}, .period = 4};
}

SelftestRow row_of(const SelftestScore& score, InjectionKind kind, bool is_persistent = false) {
  for (const SelftestRow& row : score.rows)
    if (row.kind == kind && row.is_persistent == is_persistent) return row;
  return {};
}

TEST(SelftestScore, AllFoundAndBlamedRightlyPasses) {
  const SelftestScore score = score_selftest(whole, records_of(whole));
  EXPECT_TRUE(score.passed());
  EXPECT_TRUE(score.settled());
  EXPECT_EQ(score.rows.size(), 22u);
  for (const SelftestRow& row : score.rows) {
    EXPECT_EQ(row.injected, row.is_persistent ? persistent_injections_of_a_kind : injections_of_a_kind(3))
        << name_of(row);
    EXPECT_EQ(row.blamed_rightly, row.injected) << to_string(row.kind);
    EXPECT_EQ(row.latencies.back(), 1);
  }
}

class SilentDetector : public testing::TestWithParam<Detector> {};

TEST_P(SilentDetector, Fails) {
  const SelftestScore score = score_selftest(
      whole, records_of(whole, [](const Injection& one) { return detector_of(one.kind) != GetParam(); }));
  EXPECT_FALSE(score.passed());
  EXPECT_FALSE(score.settled());
  for (const SelftestRow& row : score.rows) {
    const bool silent = detector_of(row.kind) == GetParam();
    EXPECT_EQ(row.found, silent ? 0 : row.injected) << to_string(row.kind);
    EXPECT_EQ(row.passed(), !silent) << to_string(row.kind);
  }
  EXPECT_TRUE(score.false_alarms.empty());
}

INSTANTIATE_TEST_SUITE_P(Detectors, SilentDetector,
                         testing::Values(Detector::replica, Detector::replay, Detector::extreme,
                                         Detector::collective, Detector::memory, Detector::host_copy,
                                         Detector::vote, Detector::file));

TEST(SelftestScore, OneMissOfAnyKindFails) {
  for (const SelftestRow& each : score_selftest(whole, {}).rows) {
    int number = 0;
    const auto records = records_of(whole, [&](const Injection& one) {
      return one.kind != each.kind || is_persistent(one) != each.is_persistent || ++number != 7;
    });
    const SelftestScore score = score_selftest(whole, records);
    EXPECT_FALSE(score.passed()) << name_of(each);
    EXPECT_EQ(row_of(score, each.kind, each.is_persistent).found, each.planned - 1) << name_of(each);
    if (each.is_persistent) {
      EXPECT_TRUE(row_of(score, each.kind).passed()) << "a row of its own";
    }
  }
}

TEST(SelftestScore, WhatIsNeverInjectedFails) {
  EXPECT_FALSE(score_selftest(whole, {}).passed());
  auto records = records_of(whole);
  records.erase(records.end() - 2, records.end());
  EXPECT_FALSE(score_selftest(whole, records).passed());
}

TEST(SelftestScore, NothingPlannedIsNoPass) {
  EXPECT_FALSE(score_selftest({}, {}).passed());
}

class EachDetector : public testing::TestWithParam<InjectionKind> {
 protected:
  const Injection injection = injection_of(GetParam(), 1, 20);
  const SelftestPlan plan = only(injection);

  SelftestRow row(const std::vector<Record>& records) const {
    return row_of(score_selftest(plan, records), GetParam());
  }
};

TEST_P(EachDetector, AWrongRankIsFoundAndBlamedWrongly) {
  const SelftestScore score = score_selftest(plan, {struck(injection, 20), fault_of(injection, 23, 2)});
  EXPECT_FALSE(score.passed());
  EXPECT_EQ(score.rows[0].found, 1);
  EXPECT_EQ(score.rows[0].blamed_rightly, 0);
}

TEST_P(EachDetector, AnAmbiguousBlameIsNotRight) {
  EXPECT_EQ(row({struck(injection, 20), fault_of(injection, 23, 1, Blame::ambiguous)}).blamed_rightly, 0);
  EXPECT_EQ(row({struck(injection, 20), fault_of(injection, 23, -1, Blame::ambiguous)}).blamed_rightly, 0);
  EXPECT_EQ(row({struck(injection, 20), fault_of(injection, 23, 1, Blame::majority)}).blamed_rightly, 1);
}

TEST_P(EachDetector, AFaultBeforeItStruckIsAFalseAlarm) {
  const SelftestScore score = score_selftest(plan, {fault_of(injection, 19, 1), struck(injection, 20)});
  EXPECT_EQ(score.rows[0].found, 0);
  EXPECT_EQ(score.false_alarms.size(), 1u);
}

TEST_P(EachDetector, ASecondFaultOfTheSameCheckIsAFalseAlarm) {
  const SelftestScore score =
      score_selftest(plan, {struck(injection, 20), fault_of(injection, 23, 1), fault_of(injection, 27, 1)});
  EXPECT_EQ(score.rows[0].found, 1);
  EXPECT_EQ(score.false_alarms.size(), 1u);
  EXPECT_FALSE(score.passed());
}

TEST_P(EachDetector, ASecondFaultOfAnotherCheckIsNone) {
  if (GetParam() == host_copy || GetParam() == multiprocessor) GTEST_SKIP() << "no other check looks at it";
  Record other = fault_of(injection, 23, 1);
  other.body["detector"] = "another check";
  EXPECT_TRUE(score_selftest(plan, {struck(injection, 20), fault_of(injection, 23, 1), other}).passed());
}

TEST_P(EachDetector, AFaultOfAnotherKindIsAFalseAlarmAndAMiss) {
  Record other = fault_of(injection, 23, 1);
  other.body["kind"] = "links";
  const SelftestScore score = score_selftest(plan, {struck(injection, 20), other});
  EXPECT_EQ(score.rows[0].found, 0);
  EXPECT_EQ(score.false_alarms.size(), 1u);
}

TEST_P(EachDetector, OneFaultTellsOfOneInjection) {
  Injection second = injection;
  second.step = 28;
  SelftestPlan both = plan;
  both.injections.push_back(second);
  const SelftestScore score =
      score_selftest(both, {struck(injection, 20), struck(second, 28), fault_of(second, 30, 1)});
  EXPECT_EQ(score.rows[0].injected, 2);
  EXPECT_EQ(score.rows[0].found, 1);
  EXPECT_FALSE(score.passed());
}

TEST_P(EachDetector, LatencyIsBoundedWhereTheDetectorLooksEveryPeriod) {
  EXPECT_TRUE(score_selftest(plan, {struck(injection, 20), fault_of(injection, 26, 1)}).passed());
  const SelftestScore late = score_selftest(plan, {struck(injection, 20), fault_of(injection, 27, 1)});
  EXPECT_EQ(late.rows[0].latencies.back(), 7);
  EXPECT_EQ(late.passed(), !looks_every_period(detector_of(GetParam())));
}

INSTANTIATE_TEST_SUITE_P(Kinds, EachDetector,
                         testing::Values(weight, gradient, activation, gemm, extreme, collective, optimizer,
                                         memory, memory_gemm, host_copy, multiprocessor, file_bit, file_stale,
                                         file_torn, file_misplaced, file_lost),
                         [](const auto& kind) {
                           std::string name = to_string(kind.param);
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST(SelftestScore, RecordsOfOtherRanksMayArriveLate) {
  const Injection injection = injection_of(weight, 1, 20);
  EXPECT_TRUE(score_selftest(only(injection), {fault_of(injection, 20, 1), struck(injection, 20)}).passed())
      << "rank 0 tells of what rank 1 did in the same step";
}

TEST(SelftestScore, ManyOfOneRankInOneStepStayInOrder) {
  const Injection first = injection_of(memory, 1, 0), second = injection_of(memory, 1, 1);
  const SelftestPlan plan{.injections = {first, second}, .left_out = {}, .period = 4};
  const std::vector<Record> records = {struck(first, 20), fault_of(first, 20, 1), struck(second, 20),
                                       fault_of(second, 20, 1)};
  EXPECT_TRUE(score_selftest(plan, records).passed());
}

TEST(SelftestScore, MemoryOfOneRankSaysNothingOfAnother) {
  const Injection one = injection_of(memory, 1, 0), other = injection_of(memory, 2, 0);
  const SelftestPlan plan{.injections = {one, other}, .left_out = {}, .period = 4};
  const SelftestScore score = score_selftest(
      plan, {struck(one, 20), struck(other, 20), fault_of(other, 21, 2), fault_of(one, 22, 1)});
  EXPECT_TRUE(score.passed());
}

}  // namespace
}  // namespace egt
