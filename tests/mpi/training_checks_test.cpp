// The checks of training on real ranks, each with a fault injected into the real data: which rank reports it,
// once, and the result of training.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include "training_job.hpp"
#include "workload/common/findings.hpp"

namespace egt::test {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

class TrainingChecksOnRanks : public TrainingJobs {};

/// True if only another rank's state reveals it.
bool needs_a_peer(const std::string& kind) {
  return kind == "weight" || kind == "optimizer";
}

TEST_F(TrainingChecksOnRanks, CleanTrainingTellsNoFaultInEveryPrecision) {
  for (const Optimizer optimizer : {Optimizer::sgd, Optimizer::adam}) {
    const Outcome clean = run({.optimizer = optimizer});
    EXPECT_THAT(clean.faults, IsEmpty());
    EXPECT_THAT(clean.notices, IsEmpty());
    EXPECT_TRUE(clean.part.success) << clean.part.failure;
    const std::uint64_t checks = 4 + 5;  // plus one per precision before the first step
    EXPECT_EQ(clean.part.work.replays, size() > 1 ? checks : checks - 5);
    EXPECT_EQ(clean.part.work.replica_checks, size() > 1 ? checks : 0);
    EXPECT_GT(clean.figure("gemms_verified"), 0);
    EXPECT_GT(clean.figure("operations_sampled"), 0);
    EXPECT_EQ(clean.figure("repeated_steps"), 0);
    EXPECT_GT(clean.part.work.gemm_flops, 0);
  }
}

struct Case {
  const char* injection;  ///< after "KIND:rank=R,"
  const char* kind;
  const char* fault;
  const char* detector;
  const char* where;
};

/// One case per struck tensor, each at a step before the check after step 7.
constexpr Case cases[] = {
    {"step=6,layer=1", "weight", "replica", "state digest", "weights of layer 1"},
    {"step=7,layer=2", "weight", "replica", "state digest", "weights of layer 2"},
    {"step=7,layer=3", "optimizer", "replica", "state digest", "first moment of layer 3"},
    {"step=5,layer=1", "gradient", "replay", "replay digest", "weight gradient of layer 1"},
    {"step=6,layer=3", "gradient", "replay", "replay digest", "weight gradient of layer 3"},
    {"step=5,layer=2", "activation", "replay", "replay digest", "activation of layer 2"},
    {"step=6,layer=3", "activation", "replay", "replay digest", "output gradient of layer 3"},
    {"step=6,layer=1", "gemm", "replay", "replay digest", "product of layer 1"},
    {"step=5,layer=2", "gemm", "replay", "replay digest", "input product of layer 2"},
    {"step=7,layer=1", "extreme", "extreme", "replay digest", "extreme term of layer 1"},
    {"step=6,layer=2,bit=0", "extreme", "extreme", "replay digest", "extreme term of layer 2"},
};

TEST_F(TrainingChecksOnRanks, EachInjectionOnEachRankIsOneRecordOfThatRankAndTrainingHeals) {
  const std::string clean = run({}).weight_digest();
  for (const Case& one : cases) {
    if (needs_a_peer(one.kind) && size() == 1) continue;
    // Three ranks already have a majority, so of four only the last is struck.
    for (int victim = size() > 3 ? size() - 1 : 0; victim < size(); ++victim) {
      const std::string text = fmt::format("{}:rank={},{}", one.kind, victim, one.injection);
      SCOPED_TRACE(text);
      const Outcome outcome = run({.injections = {text}});
      EXPECT_THAT(outcome.injections, SizeIs(1));
      ASSERT_THAT(outcome.faults, SizeIs(1)) << all_of(outcome.faults);
      const Json& fault = outcome.faults.front();
      EXPECT_EQ(fault.at("rank"), victim);
      EXPECT_EQ(fault.at("kind"), one.fault);
      EXPECT_EQ(fault.at("detector"), one.detector);
      EXPECT_EQ(fault.at("step"), 7);
      EXPECT_TRUE(where(fault).starts_with(one.where)) << where(fault);
      EXPECT_TRUE(is_sure(fault)) << fault.at("blame");
      EXPECT_EQ(outcome.part.success, rank() != victim);
      EXPECT_EQ(outcome.figure("wrong_checks"), 1);
      EXPECT_GT(outcome.figure("repeated_steps"), 0);
      EXPECT_EQ(outcome.weight_digest(), clean);
    }
  }
}

/// The operands of fp8 GEMMs are copies that only these GEMMs read.
TEST_F(TrainingChecksOnRanks, InFp8CleanTrainingTellsNoFaultAndEachInjectionIsFound) {
  Job job{.samples = 16, .precisions = {Precision::fp8}, .layers = {16, 96, 32, 16}};
  const Outcome clean = run(job);
  EXPECT_THAT(clean.faults, IsEmpty()) << all_of(clean.faults);
  EXPECT_GT(clean.figure("gemms_verified"), 0);
  EXPECT_GT(clean.figure("operations_sampled"), 0);
  for (const Case& one : cases) {
    if (needs_a_peer(one.kind) && size() == 1) continue;
    SCOPED_TRACE(std::string(one.kind) + " " + one.injection);
    job.injections = {fmt::format("{}:rank={},{}", one.kind, size() - 1, one.injection)};
    const Outcome outcome = run(job);
    ASSERT_THAT(outcome.faults, SizeIs(1)) << all_of(outcome.faults);
    EXPECT_EQ(outcome.faults.front().at("rank"), size() - 1);
    EXPECT_EQ(outcome.faults.front().at("kind"), one.fault);
    EXPECT_TRUE(where(outcome.faults.front()).starts_with(one.where)) << where(outcome.faults.front());
    EXPECT_EQ(outcome.weight_digest(), clean.weight_digest());
  }
}

TEST_F(TrainingChecksOnRanks, AdamHealsToo) {
  const std::string clean = run({.optimizer = Optimizer::adam}).weight_digest();
  const std::pair<const char*, const char*> struck[] = {{"weight", "weights of layer 2"},
                                                        {"optimizer", "second moment of layer 2"},
                                                        {"gradient", "weight gradient of layer 2"}};
  for (const auto& [kind, tensor] : struck) {
    if (needs_a_peer(kind) && size() == 1) continue;
    SCOPED_TRACE(kind);
    const Outcome outcome = run({.optimizer = Optimizer::adam,
                                 .injections = {fmt::format("{}:rank={},step=7,layer=2", kind, size() - 1)}});
    ASSERT_THAT(outcome.faults, SizeIs(1)) << all_of(outcome.faults);
    EXPECT_EQ(outcome.faults.front().at("rank"), size() - 1);
    EXPECT_TRUE(where(outcome.faults.front()).starts_with(tensor)) << where(outcome.faults.front());
    EXPECT_EQ(outcome.weight_digest(), clean);
  }
}

TEST_F(TrainingChecksOnRanks, AFlippedWeightIsLocatedToTheElementAndTheBits) {
  if (size() < 2) GTEST_SKIP() << "needs a peer";
  for (const int layer : {1, 2, 3}) {  // 1536, 2304 and 192 weights: with and without halving
    SCOPED_TRACE(layer);
    const Outcome outcome = run({.injections = {fmt::format("weight:rank=1,step=7,layer={}", layer)}});
    ASSERT_THAT(outcome.faults, SizeIs(1)) << all_of(outcome.faults);
    ASSERT_THAT(outcome.injections, SizeIs(1));
    const Json &fault = outcome.faults.front(), &injection = outcome.injections.front();
    const auto word = injection.at("first_word").get<std::uint64_t>();
    EXPECT_EQ(fault.at("offset"), 4 * word);
    EXPECT_EQ(fault.at("xor"), injection.at("mask"));
    EXPECT_EQ(fault.at("count"), 1);
    EXPECT_EQ(fault.at("rank"), 1);
    EXPECT_EQ(fault.at("blame"), "majority");
    EXPECT_EQ(where(fault), fmt::format("weights of layer {}, element {}", layer, word));
  }
}

TEST_F(TrainingChecksOnRanks, SeveralFlippedWeightsAreCounted) {
  if (size() < 2) GTEST_SKIP() << "needs a peer";
  const Outcome outcome = run({.injections = {"weight:rank=0,step=7,layer=3,count=3,stride=5,bit=20"}});
  ASSERT_THAT(outcome.faults, SizeIs(1)) << all_of(outcome.faults);
  EXPECT_EQ(outcome.faults.front().at("count"), 3);
  EXPECT_EQ(outcome.faults.front().at("rank"), 0);
}

TEST_F(TrainingChecksOnRanks, TwoFaultsThatComeOneAfterTheOtherAreTwoRecords) {
  const std::string clean = run({}).weight_digest();
  const Outcome outcome =
      run({.injections = {"gemm:rank=0,step=1,layer=1", fmt::format("gemm:rank={},step=9", size() - 1)}});
  ASSERT_THAT(outcome.faults, SizeIs(2)) << all_of(outcome.faults);
  EXPECT_EQ(outcome.weight_digest(), clean);
}

TEST_F(TrainingChecksOnRanks, AReplicaThatKeepsDivergingIsToldOrCountedInEveryCheck) {
  if (size() < 2) GTEST_SKIP() << "needs a peer";
  const Outcome outcome = run({.hits = {gradient_hit(1, flip_bit_29)}});
  EXPECT_EQ(outcome.part.success, rank() != 1 && size() > 2) << "two ranks: both are suspects";
  EXPECT_EQ(outcome.faults.size() + outcome.repeats, 4u) << "behind steps 3, 7, 11 and 12";
  for (const Json& fault : outcome.faults) {
    EXPECT_EQ(fault.at("kind"), "replica");
    if (size() == 2) {
      EXPECT_TRUE(fault.at("rank").is_null());
      EXPECT_EQ(fault.at("blame"), "ambiguous");
      EXPECT_EQ(fault.at("suspects"), (Json{0, 1}));
    } else {
      EXPECT_EQ(fault.at("rank"), 1);
      EXPECT_EQ(fault.at("blame"), "majority");
    }
  }
}

// Wrong from the first answer on, the same way every time

constexpr Flip slight{.mask = 1u << 3}, large{.mask = 3u << 29};

TEST_F(TrainingChecksOnRanks, APersistentFaultFromTheStartIsNamedByTheMajority) {
  if (size() < 3) GTEST_SKIP() << "needs two peers";
  for (int victim = 0; victim < size(); ++victim) {
    SCOPED_TRACE(victim);
    const Outcome outcome = run({.broken_rank = victim, .broken_words = slight});
    ASSERT_THAT(outcome.faults, SizeIs(5))
        << "one a precision, before the first step: " << all_of(outcome.faults);
    EXPECT_EQ(outcome.repeats, 4u) << "the checks behind steps 3, 7, 11 and 12";
    for (const Json& fault : outcome.faults) {
      EXPECT_EQ(fault.at("rank"), victim);
      EXPECT_EQ(fault.at("kind"), "replay");
      EXPECT_EQ(fault.at("blame"), "majority");
      EXPECT_TRUE(fault.at("step").is_null()) << "before the first";
    }
    const Json& first = outcome.faults.front();
    EXPECT_TRUE(where(first).starts_with("product of layer 1, fp64 replay")) << where(first);
  }
}

TEST_F(TrainingChecksOnRanks, APersistentFaultFromTheStartOnOneOfTwoNamesBoth) {
  if (size() != 2) GTEST_SKIP() << "for two ranks";
  for (int victim = 0; victim < size(); ++victim) {
    SCOPED_TRACE(victim);
    const Outcome outcome = run({.broken_rank = victim, .broken_words = slight});
    ASSERT_THAT(outcome.of_kind("replay"), SizeIs(5)) << all_of(outcome.faults);
    for (const Json& fault : outcome.of_kind("replay")) {
      EXPECT_TRUE(fault.at("rank").is_null());
      EXPECT_EQ(fault.at("blame"), "ambiguous");
      EXPECT_EQ(fault.at("suspects"), (Json{0, 1}));
      EXPECT_TRUE(fault.at("step").is_null());
    }
  }
}

TEST_F(TrainingChecksOnRanks, ALargePersistentFaultIsNamedByTheAuditWhereThereIsNoMajority) {
  if (size() > 2) GTEST_SKIP() << "for one rank or two";
  for (int victim = 0; victim < size(); ++victim) {
    SCOPED_TRACE(victim);
    const Outcome outcome = run({.precisions = {Precision::fp32},
                                 .broken_rank = victim,
                                 .broken_words = large,
                                 .golden_path = "golden.json"});
    ASSERT_THAT(outcome.of_kind("gemm"), Not(IsEmpty())) << all_of(outcome.faults);
    EXPECT_TRUE(outcome.of_kind("gemm").front().at("step").is_null());
    for (const Json& fault : outcome.of_kind("gemm")) {
      EXPECT_EQ(fault.at("rank"), victim);
      EXPECT_EQ(fault.at("blame"), "certain");
    }
    EXPECT_FALSE(outcome.part.success);
    EXPECT_TRUE(outcome.golden.empty()) << "wrong answers were taken for known ones";
  }
}

TEST_F(TrainingChecksOnRanks, AWrongFirstAnswerIsNotWhatLaterOnesAreHeldAgainst) {
  if (size() < 2) GTEST_SKIP() << "alone, nobody knows that it is wrong";
  const std::string clean = run({}).weight_digest();
  const Outcome outcome = run({.broken_rank = 1, .broken_until = 0, .broken_words = slight});
  ASSERT_THAT(outcome.of_kind("replay"), SizeIs(5)) << all_of(outcome.faults);
  for (const Json& fault : outcome.faults)
    EXPECT_TRUE(fault.at("step").is_null()) << "none once it is whole again";
  EXPECT_EQ(outcome.figure("wrong_checks"), 5) << "the first in each precision";
  EXPECT_EQ(outcome.weight_digest(), clean);
}

TEST_F(TrainingChecksOnRanks, APersistentFaultFromALaterStepIsToldInEveryCheckAndTrainingGoesBackOnce) {
  for (int victim = 0; victim < size(); ++victim) {
    SCOPED_TRACE(victim);
    const Outcome outcome = run({.broken_rank = victim, .broken_from = 5, .broken_words = slight});
    ASSERT_THAT(outcome.faults, SizeIs(3)) << all_of(outcome.faults);
    for (const Json& fault : outcome.faults) {
      EXPECT_EQ(fault.at("kind"), "replay");
      EXPECT_EQ(fault.at("rank"), victim);
      EXPECT_EQ(fault.at("blame"), "certain") << "its own past is against it";
    }
    EXPECT_EQ(outcome.faults.front().at("step"), 7);
    EXPECT_EQ(outcome.figure("wrong_checks"), 3) << "behind steps 7, 11 and 12";
    EXPECT_EQ(outcome.figure("repeated_steps"), 9 - 3) << "from the last proven step, once";
  }
}

// Golden file

TEST_F(TrainingChecksOnRanks, TheGoldenFileFindsWhatIsWrongFromTheStartEvenAlone) {
  const Outcome clean = run({.golden_path = "golden.json"});
  ASSERT_FALSE(clean.golden.empty());
  EXPECT_TRUE(clean.part.figures.at("golden").is_null());
  const Outcome again = run({.golden_path = "golden.json", .golden = clean.golden});
  EXPECT_THAT(again.faults, IsEmpty()) << all_of(again.faults);
  EXPECT_THAT(again.notices, IsEmpty());
  EXPECT_TRUE(again.golden.empty()) << "what is there is not written anew";
  EXPECT_EQ(again.part.figures.at("golden"), "checked");

  const int victim = size() - 1;
  const Outcome faulty = run(
      {.broken_rank = victim, .broken_words = slight, .golden_path = "golden.json", .golden = clean.golden});
  const auto by_golden = [](const Json& fault) { return fault.at("detector") == "golden digest"; };
  EXPECT_EQ(std::count_if(faulty.faults.begin(), faulty.faults.end(), by_golden), size() == 1 ? 5 : 0)
      << "known already where there is a peer: " << all_of(faulty.faults);
  if (size() > 1) return;
  ASSERT_THAT(faulty.faults, SizeIs(5)) << all_of(faulty.faults);
  EXPECT_EQ(faulty.faults.front().at("kind"), "replay");
  EXPECT_TRUE(faulty.faults.front().at("step").is_null());
  EXPECT_THAT(where(faulty.faults.front()), HasSubstr("product of layer 1, fp64 replay"));
}

TEST_F(TrainingChecksOnRanks, TheGoldenFileFindsWhatIsWrongOnAllRanksAlike) {
  const Outcome clean = run({.golden_path = "golden.json"});
  Golden other;
  const Golden::Digests* known = nullptr;
  const std::string work = fmt::format(
      "layers 16,96,24,8, batch 8 of {}, extreme iterations 1 of chains 2, biases, gradient f32, seed 5",
      8 * size());
  known = clean.golden.find("test device", work, "bf16");
  ASSERT_NE(known, nullptr) << clean.golden.text();
  Golden::Digests changed = *known;
  changed.at("input gradient of layer 2").a ^= 1;
  other.add("test device", work, "bf16", changed);
  const Outcome outcome =
      run({.precisions = {Precision::bf16}, .golden_path = "golden.json", .golden = other});
  ASSERT_THAT(outcome.faults, SizeIs(static_cast<std::size_t>(size()))) << "each rank's own";
  EXPECT_THAT(where(outcome.faults.front()), HasSubstr("input gradient of layer 2, bf16 replay"));
  EXPECT_FALSE(outcome.part.success);
}

TEST_F(TrainingChecksOnRanks, AFaultKeepsWrongAnswersOutOfTheGoldenFile) {
  const Outcome outcome =
      run({.injections = {fmt::format("gemm:rank={},step=5", size() - 1)}, .golden_path = "golden.json"});
  EXPECT_THAT(outcome.faults, SizeIs(1));
  EXPECT_TRUE(outcome.golden.empty());
}

TEST_F(TrainingChecksOnRanks, AStackThatTheGoldenFileDoesNotKnowIsSaidNotFailed) {
  const Outcome clean = run({.golden_path = "golden.json"});
  const Outcome other = run(
      {.model = [](int) { return "another device"; }, .golden_path = "golden.json", .golden = clean.golden});
  EXPECT_THAT(other.faults, IsEmpty());
  EXPECT_TRUE(other.part.success) << other.part.failure;
  ASSERT_THAT(other.notices, SizeIs(static_cast<std::size_t>(size()))) << "once a rank";
  EXPECT_THAT(other.notices.front(), HasSubstr("golden.json"));
  EXPECT_EQ(other.part.figures.at("golden"), "not known");
}

// Several device models in one job

std::string last_is_another(int rank) {
  return rank + 1 == mpi_session().place().size ? "another device" : "test device";
}

TEST_F(TrainingChecksOnRanks, DevicesOfOtherModelsMayRoundInOtherWays) {
  if (size() < 2) GTEST_SKIP() << "needs a peer";
  // All precisions in which the changed bit is within the rounding that an audit allows for.
  const Job job{.precisions = {Precision::fp64, Precision::fp32},
                .broken_rank = size() - 1,
                .broken_words = {.mask = 1},
                .model = last_is_another};
  const Outcome outcome = run(job);
  EXPECT_THAT(outcome.faults, IsEmpty()) << all_of(outcome.faults);
  EXPECT_TRUE(outcome.part.success) << outcome.part.failure;
  EXPECT_GT(outcome.part.work.replica_checks, 0u) << "the states are compared all the same";
  Job same = job;
  same.model = [](int) { return "test device"; };
  EXPECT_THAT(run(same).faults, Not(IsEmpty())) << "within one model the same is a fault";
}

TEST_F(TrainingChecksOnRanks, AGroupOfOneIsHeldAgainstItsPastAndItsAudit) {
  if (size() < 2) GTEST_SKIP() << "needs a peer";
  const int victim = size() - 1;
  const Outcome by_past =
      run({.injections = {fmt::format("gemm:rank={},step=5", victim)}, .model = last_is_another});
  ASSERT_THAT(by_past.faults, SizeIs(1)) << all_of(by_past.faults);
  EXPECT_EQ(by_past.faults.front().at("rank"), victim);
  EXPECT_EQ(by_past.faults.front().at("kind"), "replay");
  EXPECT_EQ(by_past.faults.front().at("blame"), "certain");

  const Outcome by_audit = run({.precisions = {Precision::fp32},
                                .broken_rank = victim,
                                .broken_words = {.count = 3, .mask = large.mask},
                                .model = last_is_another});
  EXPECT_THAT(by_audit.of_kind("gemm"), Not(IsEmpty()));
  for (const Json& fault : by_audit.of_kind("gemm")) {
    EXPECT_EQ(fault.at("rank"), victim);
    EXPECT_EQ(fault.value("map", Json())["columns"], (Json{0, 1, 2}));
  }
  EXPECT_THAT(by_audit.of_kind("replay"), IsEmpty());
}

TEST_F(TrainingChecksOnRanks, TheStateOfAnotherModelIsComparedAllTheSame) {
  if (size() < 2) GTEST_SKIP() << "needs a peer";
  const int victim = size() - 1;
  const Outcome outcome =
      run({.injections = {fmt::format("weight:rank={},step=7,layer=2", victim)}, .model = last_is_another});
  ASSERT_THAT(outcome.faults, SizeIs(1)) << all_of(outcome.faults);
  EXPECT_EQ(outcome.faults.front().at("kind"), "replica");
  EXPECT_EQ(outcome.faults.front().at("rank"), victim);
}

}  // namespace
}  // namespace egt::test
