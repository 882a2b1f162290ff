// A fault of the training state is reported before its repair and whatever the outcome of the repair. This
// includes several faults in one check period, and one long before it.
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "training_job.hpp"
#include "workload/common/findings.hpp"

namespace egt::test {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

class TrainingRepairOnRanks : public TrainingJobs {};

TEST_F(TrainingRepairOnRanks, AStateFaultIsToldBeforeTheRepairAndOnceMoreWithItsPlace) {
  if (size() < 2) GTEST_SKIP() << "needs a peer";
  const Outcome outcome = run({.injections = {"weight:rank=1,step=7,layer=2"}});
  ASSERT_THAT(outcome.faults, SizeIs(1)) << all_of(outcome.faults);
  EXPECT_EQ(outcome.faults.front().at("provisional"), false);
  ASSERT_THAT(outcome.superseded, SizeIs(1));
  const Json& first = outcome.superseded.front();
  EXPECT_EQ(first.at("provisional"), true);
  EXPECT_EQ(first.at("incident"), outcome.faults.front().at("incident"));
  EXPECT_TRUE(where(first).starts_with("weights of layer 2")) << where(first);
}

TEST_F(TrainingRepairOnRanks, ARepairTellsItsProgressSoThatNoWatchdogBreaksItOff) {
  if (size() < 2) GTEST_SKIP() << "needs a peer";
  const Outcome outcome =
      run({.steps = 205, .check_every = 200, .injections = {"weight:rank=1,step=30,layer=2,bit=20"}});
  EXPECT_THAT(outcome.faults, SizeIs(1)) << all_of(outcome.faults);
  EXPECT_GT(outcome.repaired_steps.size(), 5u) << "of 200";
}

TEST_F(TrainingRepairOnRanks, AStateFaultOutlivesARestartAtAnyMomentOfItsRepair) {
  if (size() < 2) GTEST_SKIP() << "needs a peer";
  const std::string clean = run({.steps = 65, .check_every = 60, .covers_all = true}).weight_digest();
  int restarts = 0, blamed = 0;
  const int rounds = size() == 2 ? 20 : 5;
  for (int round = 0; round < rounds; ++round) {
    SCOPED_TRACE(round);
    const auto delay =
        [round, step = 80'000 / rounds](int rank) {  // 0.1 to 80 ms, at about the same time on all ranks
          return std::chrono::microseconds(100 + round * step + (rank * 7919 + round * 104729) % 3000);
        };
    const Outcome outcome = run({.steps = 65,
                                 .check_every = 60,
                                 .injections = {"weight:rank=1,step=50,layer=2,bit=20"},
                                 .restart_in_repair = delay,
                                 .covers_all = true});
    restarts += outcome.restarts;
    ASSERT_THAT(outcome.faults, SizeIs(1)) << all_of(outcome.faults);
    const Json &fault = outcome.faults.front(), &injection = outcome.injections.front();
    EXPECT_GT(fault.at("step"), 50);
    EXPECT_LE(fault.at("step"), 59);
    if (fault.at("kind") == "replica") {
      EXPECT_EQ(where(fault),
                fmt::format("weights of layer 2, element {}", injection.at("first_word").get<int>()));
    } else {  // broken off before the states were compared
      EXPECT_THAT(where(fault), ::testing::HasSubstr(" of layer 2"));
    }
    if (is_sure(fault)) {
      EXPECT_EQ(fault.at("rank"), 1);
      ++blamed;
    } else {
      EXPECT_EQ(size(), 2) << "three ranks have a majority";
      EXPECT_EQ(fault.at("suspects"), (Json{0, 1}));
    }
    EXPECT_TRUE(rank() != 1 || !outcome.part.success);
    EXPECT_EQ(outcome.weight_digest(), clean);
  }
  EXPECT_GT(restarts, rounds / 4) << "the repair was over before it was broken off";
  EXPECT_GT(blamed, 0) << "of two ranks; how often depends on how much of the repair was done";
}

TEST_F(TrainingRepairOnRanks, WhatOneRankAloneHeardOfAnotherIsToldForIt) {
  if (size() < 2) GTEST_SKIP() << "needs a peer";
  Context world = context();
  FaultReporter reporter(world.environment);
  Mismatch dissent;
  dissent.rank = (rank() + 1) % size();
  Fault fault = fault_of(world.environment, "replay", "replay digest", "train", 7);
  fault.incident = "replay in check 3";
  reporter.report(fault, dissent);
  reporter.end_check();
  EXPECT_THAT(world.records.drain(), IsEmpty()) << "it tells that itself";
  reporter.report_for_others();
  const auto reported = world.records.drain();
  ASSERT_THAT(reported, SizeIs(1));
  EXPECT_EQ(reported.front().body.at("rank"), dissent.rank);
  reporter.report(fault, dissent);
  reporter.end_check();
  reporter.confirm_last_check();
  reporter.report_for_others();
  EXPECT_THAT(world.records.drain(), IsEmpty()) << "all ranks have come to the next check";
}

TEST_F(TrainingRepairOnRanks, AKeptStateThatChangedIsAFaultAndEndsTheRun) {
  if (size() < 2) GTEST_SKIP() << "needs a peer";
  const Outcome outcome =
      run({.injections = {"weight:rank=1,step=7,layer=2"}, .spoilt_rank = 0, .covers_all = true});
  EXPECT_EQ(outcome.failure,
            "the kept state of step 3 changed on rank 0; there is no verified state to continue from");
  ASSERT_THAT(outcome.of_kind("replica"), SizeIs(2)) << all_of(outcome.faults);
  const auto kept = std::find_if(outcome.faults.begin(), outcome.faults.end(), [](const Json& fault) {
    return where(fault) == "kept copy of the weights of layer 1";
  });
  ASSERT_NE(kept, outcome.faults.end()) << all_of(outcome.faults);
  EXPECT_EQ(kept->at("rank"), 0);
  EXPECT_EQ(kept->at("blame"), "certain");
}

TEST_F(TrainingRepairOnRanks, AnInitialStateThatDiffersIsBlamedOnNoHealthyRank) {
  if (size() < 2) GTEST_SKIP() << "needs a peer";
  for (const int spoilt : {0, size() - 1}) {
    const Outcome outcome = run({.spoilt_rank = spoilt, .spoilt_at_start = true, .covers_all = true});
    EXPECT_THAT(outcome.failure, testing::StartsWith("the kept initial state ")) << all_of(outcome.faults);
    ASSERT_FALSE(outcome.of_kind("replica").empty());
    for (const Json& fault : outcome.of_kind("replica")) {
      EXPECT_EQ(fault.at("rank"), size() > 2 ? Json(spoilt) : Json(nullptr)) << fault.dump();
      EXPECT_NE(fault.at("blame"), "certain") << fault.dump();
    }
  }
}

// Several faults in one check period, and faults long before it

TEST_F(TrainingRepairOnRanks, FaultsOfTwoRanksInOnePeriodAreBothToldAndBlamed) {
  if (size() < 2) GTEST_SKIP() << "needs a peer";
  const std::string clean = run({.covers_all = true}).weight_digest();
  const std::vector<std::vector<std::string>> pairs = {
      {"weight:rank=0,step=7,layer=1", "weight:rank=1,step=7,layer=2"},
      {"weight:rank=0,step=5,layer=1", "weight:rank=1,step=6,layer=2"},
      {"weight:rank=1,step=4,layer=3,bit=21", "weight:rank=0,step=6,layer=1,bit=21"}};
  for (const auto& injections : pairs) {
    SCOPED_TRACE(injections[0] + " " + injections[1]);
    const Outcome outcome = run({.injections = injections, .covers_all = true});
    EXPECT_TRUE(size() == 2 || outcome.faults.size() == 2) << all_of(outcome.faults);
    std::set<int> named;
    for (const Json& fault : outcome.faults) {
      if (size() == 2 &&
          fault.at("rank").is_null()) {  // no right state or pass to compare the other rank with
        EXPECT_EQ(fault.at("suspects"), (Json{0, 1}));
        named.insert({0, 1});
        continue;
      }
      EXPECT_TRUE(is_sure(fault)) << fault;
      named.insert(fault.at("rank").get<int>());
      for (const Json& injection : outcome.injections) {
        if (injection.at("rank") != fault.at("rank")) continue;
        EXPECT_EQ(where(fault),
                  fmt::format("weights of layer {}, element {}", injection.at("layer").get<int>(),
                              injection.at("first_word").get<std::uint64_t>()));
      }
    }
    EXPECT_EQ(named, (std::set<int>{0, 1}));
    EXPECT_EQ(outcome.weight_digest(), clean);
  }
}

TEST_F(TrainingRepairOnRanks, AWeightThatIsWrongAtAnyStepBetweenChecksIsBlamedRightly) {
  if (size() < 2) GTEST_SKIP() << "needs a peer";
  // Two ranks decide by their passes, so each layer is struck; more ranks have a majority.
  for (const int step : {50, 55, 60, 80, 90, 98})
    for (const int layer : size() > 2 ? std::vector{1 + step % 3} : std::vector{1, 2, 3}) {
      const int victim = (step + layer) % 2;
      SCOPED_TRACE(fmt::format("rank {}, step {}, layer {}", victim, step, layer));
      const Outcome outcome =
          run({.steps = 103,
               .check_every = 50,
               .precisions = {Precision::fp32},
               .injections = {fmt::format("weight:rank={},step={},layer={},bit=22", victim, step, layer)},
               .covers_all = true});
      ASSERT_THAT(outcome.faults, SizeIs(1)) << all_of(outcome.faults);
      EXPECT_EQ(outcome.faults.front().at("rank"), victim) << all_of(outcome.faults);
    }
}

TEST_F(TrainingRepairOnRanks, AFaultInTheNextPeriodIsNotBlamedOnTheRankOfTheFirst) {
  if (size() < 2) GTEST_SKIP() << "needs a peer";
  for (const int step : {50, 55, 60, 80})
    for (const int layer : size() > 2 ? std::vector{1 + step % 3} : std::vector{1, 2, 3}) {
      SCOPED_TRACE(fmt::format("step {}, layer {}", step, layer));
      const Outcome outcome =
          run({.steps = 103,
               .check_every = 50,
               .precisions = {Precision::fp32},
               .injections = {"weight:rank=0,step=20,layer=2,bit=22",
                              fmt::format("weight:rank=1,step={},layer={},bit=22", step, layer)},
               .covers_all = true});
      ASSERT_THAT(outcome.faults, SizeIs(2)) << all_of(outcome.faults);
      for (const Json& fault : outcome.faults)
        EXPECT_EQ(fault.at("rank"), fault.at("step") < 49 ? 0 : 1) << fault;
    }
}

TEST_F(TrainingRepairOnRanks, AFaultInEveryCheckIsCountedInEveryCheck) {
  if (size() < 2) GTEST_SKIP() << "needs a peer";
  std::vector<std::string> injections;
  for (int step = 0; step < 40; ++step)
    injections.push_back(fmt::format("weight:rank=1,step={},bit=20,layer=1", step));
  const Outcome outcome = run({.steps = 40, .injections = injections, .covers_all = true});
  EXPECT_GE(outcome.figure("wrong_checks"), 10);
  EXPECT_EQ(static_cast<double>(outcome.faults.size() + outcome.repeats), outcome.figure("wrong_checks"))
      << all_of(outcome.faults);
  for (const Json& fault : outcome.faults) EXPECT_EQ(fault.at("rank"), 1) << fault;
}

}  // namespace
}  // namespace egt::test
