// With --coverage full every pass is computed twice: a fault that strikes once, in any step, is detected,
// blamed and repaired.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <cstdlib>
#include <random>

#include "training_job.hpp"

namespace egt::test {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

class TrainingCoverageOnRanks : public TrainingJobs {
 protected:
  static int last_rank() { return size() - 1; }
};

TEST_F(TrainingCoverageOnRanks, ACleanRunComparesEveryStepAndTrainsTheSame) {
  const Outcome sampled = run({}), full = run({.covers_all = true});
  EXPECT_THAT(full.faults, IsEmpty()) << all_of(full.faults);
  EXPECT_TRUE(full.part.success) << full.part.failure;
  EXPECT_EQ(full.figure("compared_steps"), 13);
  EXPECT_EQ(sampled.figure("compared_steps"), 0);
  EXPECT_EQ(full.weight_digest(), sampled.weight_digest());
}

TEST_F(TrainingCoverageOnRanks, UnevenAndBalancedSharesAreCompared) {
  EXPECT_THAT(run({.samples = 7, .balances = true, .covers_all = true}).faults, IsEmpty());
  const auto model = [](int rank) { return std::string(rank % 2 == 0 ? "a" : "b"); };
  EXPECT_THAT(run({.model = model, .covers_all = true}).faults, IsEmpty());
}

/// Any bit of a tensor of any kind, once, in random steps of all precisions, also where bias and ReLU are
/// fused with a product. `EGT_STRIKES`: how many.
TEST_F(TrainingCoverageOnRanks, AStrikeInOneStepIsDetectedBlamedAndRepaired) {
  const std::string clean = run({.covers_all = true}).weight_digest();
  const std::string clean_fused = run({.extreme_iterations = 0, .covers_all = true}).weight_digest();
  const char* const asked = std::getenv("EGT_STRIKES");
  const int strikes = asked ? std::atoi(asked) : size() < 3 ? 8 : 4;
  std::mt19937 random(7);  // the same on all ranks
  const char* const kinds[] = {"gemm", "activation", "gradient", "extreme"};
  for (int strike = 0; strike < strikes; ++strike) {
    const int struck = static_cast<int>(random() % static_cast<unsigned>(size()));
    const auto step = random() % 13, bit = random() % 32;
    const bool is_fused = strike % 4 < 3 && random() % 3 == 0;
    const std::string spec =
        fmt::format("{}:rank={},step={},bit={},lasting=once", kinds[strike % 4], struck, step, bit);
    SCOPED_TRACE(spec);
    const Outcome outcome =
        run({.injections = {spec}, .extreme_iterations = is_fused ? 0 : 1, .covers_all = true});
    ASSERT_THAT(outcome.faults, SizeIs(1)) << all_of(outcome.faults);
    const Json& fault = outcome.faults.front();
    EXPECT_EQ(fault.at("rank"), struck);
    EXPECT_EQ(fault.at("step"), step);
    EXPECT_EQ(fault.at("blame"), "certain");
    EXPECT_EQ(fault.at("detector"), "second pass");
    EXPECT_EQ(outcome.weight_digest(), is_fused ? clean_fused : clean);
    EXPECT_EQ(outcome.part.success, rank() != struck) << outcome.part.failure;
  }
}

/// Any bit of one rank's result of one all-reduce, and what one rank puts in, so that all get the same wrong
/// sum.
TEST_F(TrainingCoverageOnRanks, AWrongAllReduceIsDetectedAndRepaired) {
  if (size() == 1) GTEST_SKIP() << "one rank has no all-reduces";
  const std::string clean = run({.covers_all = true}).weight_digest();
  const char* const asked = std::getenv("EGT_STRIKES");
  const int strikes = asked ? std::atoi(asked) : 4;
  std::mt19937 random(11);  // the same on all ranks
  for (int strike = 0; strike < strikes; ++strike) {
    const int struck = static_cast<int>(random() % static_cast<unsigned>(size()));
    const auto step = random() % 13, bit = strike % 4 == 3 ? 30 : random() % 32;
    const std::string spec = fmt::format("all-reduce:rank={},step={},bit={}", struck, step, bit);
    SCOPED_TRACE(spec);
    const Outcome outcome = run({.injections = {spec}, .covers_all = true});
    ASSERT_THAT(outcome.faults, SizeIs(1)) << all_of(outcome.faults);
    const Json& fault = outcome.faults.front();
    EXPECT_EQ(fault.at("kind"), "all-reduce");
    EXPECT_EQ(fault.at("detector"), "all-reduce check");
    EXPECT_EQ(fault.at("step"), step);
    EXPECT_EQ(outcome.weight_digest(), clean);
    if (bit != 30) {
      EXPECT_EQ(fault.at("rank"), struck);
      EXPECT_EQ(fault.at("blame"), "majority");
    } else {
      EXPECT_EQ(fault.at("blame"), "ambiguous");
      EXPECT_THAT(fault.at("suspects"), SizeIs(size()));
    }
  }
}

/// Also on one rank, which has a second state of its own.
TEST_F(TrainingCoverageOnRanks, AWrongWeightOrMomentAtRestIsDetectedAndRepaired) {
  const std::string clean = run({.covers_all = true}).weight_digest();
  for (const char* spec : {"weight:rank=0,step=6,layer=1,bit=20", "optimizer:rank=0,step=7,layer=2,bit=22",
                           "weight:rank=0,step=3,layer=2,bit=0"}) {
    SCOPED_TRACE(spec);
    const Outcome outcome = run({.injections = {spec}, .covers_all = true});
    ASSERT_THAT(outcome.faults, SizeIs(1)) << all_of(outcome.faults);
    EXPECT_EQ(outcome.faults.front().at("kind"), "replica");
    if (size() != 2) {
      EXPECT_EQ(outcome.faults.front().at("rank"), 0);
    }
    EXPECT_EQ(outcome.weight_digest(), clean);
  }
}

TEST_F(TrainingCoverageOnRanks, AFaultThatLastsIsBlamedToo) {
  for (const char* lasting : {"check", "always"}) {
    const Outcome outcome = run(
        {.injections = {fmt::format("gemm:rank={},step=5,bit=24,layer=2,lasting={}", last_rank(), lasting)},
         .covers_all = true});
    SCOPED_TRACE(all_of(outcome.faults));
    ASSERT_FALSE(outcome.faults.empty());
    EXPECT_TRUE(std::any_of(outcome.faults.begin(), outcome.faults.end(), [](const Json& fault) {
      return fault.at("rank") == last_rank() && is_sure(fault);
    }));
    for (const Json& fault : outcome.faults) EXPECT_TRUE(!is_sure(fault) || fault.at("rank") == last_rank());
  }
}

TEST_F(TrainingCoverageOnRanks, AStrikeOutlivesARestartAtAnyMomentOfItsExamination) {
  const std::string clean = run({.steps = 65, .check_every = 60, .covers_all = true}).weight_digest();
  const int rounds = size() < 3 ? 5 : 2;
  for (int round = 0; round < rounds; ++round) {
    SCOPED_TRACE(round);
    const auto delay = [round](int rank) {
      return std::chrono::microseconds(100 + round * 8'000 + (rank * 7919 + round * 104729) % 3000);
    };
    const Outcome outcome =
        run({.steps = 65,
             .check_every = 60,
             .injections = {fmt::format("gradient:rank={},step=30,layer=2,bit=20,lasting=once", last_rank())},
             .restart_in_repair = delay,
             .covers_all = true});
    ASSERT_THAT(outcome.faults, SizeIs(1)) << all_of(outcome.faults);
    EXPECT_EQ(outcome.faults.front().at("step"), 30);
    EXPECT_EQ(outcome.weight_digest(), clean);
  }
}

/// Errors that all ranks make alike: they agree on every digest, and an independent answer shows the error.
struct Systematic {
  const char* name;
  SystematicError error;
  const char* kind;
  const char* where;
  int extreme_iterations = 1;
  Optimizer optimizer = Optimizer::sgd;
};

constexpr Systematic systematic_errors[] = {
    {"middle element", SystematicError::middle_element, "gemm", "of layer"},
    {"middle element, fused", SystematicError::middle_element, "gemm", "of layer", 0},
    {"bit 20", SystematicError::middle_bit, "gemm", "of layer"},
    {"no epilogue", SystematicError::no_epilogue, "gemm", "activation of layer", 0},
    {"no activation", SystematicError::no_activation, "replay", "activation of layer"},
    {"no loss gradient", SystematicError::no_loss_gradient, "replay", "output gradient of layer"},
    {"no mask", SystematicError::no_mask, "replay", "input gradient of layer"},
    {"no update", SystematicError::no_update, "replay", "update by the weight gradient of layer"},
    {"wrong decay", SystematicError::wrong_decay, "replay", "update by the weight gradient of layer", 1,
     Optimizer::adam},
};

class SystematicErrorsOnRanks : public TrainingJobs {};

TEST_F(SystematicErrorsOnRanks, AreFaultsOfEveryRankThatMakesThem) {
  for (const Systematic& one : systematic_errors)
    for (const Precision precision : {Precision::fp32, Precision::bf16}) {
      SCOPED_TRACE(fmt::format("{}, {}", one.name, to_string(precision)));
      const Outcome outcome = run({.precisions = {precision},
                                   .optimizer = one.optimizer,
                                   .error = one.error,
                                   .extreme_iterations = one.extreme_iterations,
                                   .covers_all = true});
      ASSERT_THAT(outcome.faults, Not(IsEmpty()));
      for (const Json& fault : outcome.faults) {
        EXPECT_EQ(fault.at("kind"), one.kind);
        EXPECT_EQ(fault.at("blame"), "certain");
        EXPECT_THAT(where(fault), HasSubstr(one.where));
      }
      std::set<int> blamed;
      for (const Json& fault : outcome.faults) blamed.insert(fault.at("rank").get<int>());
      // Before the first step ranks share the GEMMs; later each verifies some of them.
      EXPECT_EQ(blamed.size(), static_cast<std::size_t>(size()));
    }
}

}  // namespace
}  // namespace egt::test
