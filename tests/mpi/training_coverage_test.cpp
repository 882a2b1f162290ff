// With --coverage full every pass is computed twice: a transient fault in any step is detected, blamed and
// repaired.
#include <fmt/format.h>
#include <fmt/ranges.h>
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

/// Any bit of a tensor of any kind, once, in random steps of all precisions, also if bias and ReLU are fused
/// with a GEMM. `EGT_STRIKES` sets the count.
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

/// Any bit of one rank's result of an all-reduce, or of one rank's input, in which case all ranks get the
/// same wrong sum.
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

/// Includes one rank, which keeps a second state.
TEST_F(TrainingCoverageOnRanks, AWrongWeightOrMomentAtRestIsDetectedAndRepaired) {
  const std::string clean = run({.covers_all = true}).weight_digest();
  for (const char* spec : {"weight:rank=0,step=6,layer=1,bit=20", "optimizer:rank=0,step=7,layer=2,bit=22",
                           "weight:rank=0,step=3,layer=2,bit=0"}) {
    SCOPED_TRACE(spec);
    const Outcome outcome = run({.injections = {spec}, .covers_all = true});
    ASSERT_THAT(outcome.faults, SizeIs(1)) << all_of(outcome.faults);
    // On one rank, the second pass reads the second state, so the pass may show it first.
    if (size() > 1 || outcome.faults.front().at("kind") != "replay") {
      EXPECT_EQ(outcome.faults.front().at("kind"), "replica");
    }
    if (size() != 2) {
      EXPECT_EQ(outcome.faults.front().at("rank"), 0);
    }
    EXPECT_EQ(outcome.weight_digest(), clean);
  }
}

TEST_F(TrainingCoverageOnRanks, AWrongWordOfTheCopyThatTheGemmsReadIsDetectedOnOneRank) {
  if (size() > 1) GTEST_SKIP() << "all ranks have the same error, and peers would detect another";
  const Outcome outcome =
      run({.precisions = {Precision::bf16}, .error = SystematicError::wrong_copy, .covers_all = true});
  ASSERT_THAT(outcome.faults, SizeIs(1)) << all_of(outcome.faults);
  EXPECT_EQ(outcome.faults.front().at("detector"), "second pass");
}

TEST_F(TrainingCoverageOnRanks, AVoteToStopThatIsLostEndsTheRun) {
  // The votes travel with the loss, in the second word of the all-reduce; each counts 1.
  const auto lose = [all = float_bits(static_cast<float>(size()))](std::uint32_t word) {
    return word == all ? 0 : word;
  };
  std::vector<CorruptingCommunicator::Hit> hits;
  for (int rank = 0; rank < size(); ++rank) hits.push_back({.rank = rank, .word = 1, .change = lose});
  EXPECT_EQ(run({.votes_from = 6}).failure, "");
  EXPECT_THAT(run({.hits = hits, .votes_from = 6}).failure,
              HasSubstr("the votes of step 6 changed in transit: this rank's vote to stop is lost"));
}

/// `EGT_STRIKES` sets the count.
TEST_F(TrainingCoverageOnRanks, AnyFaultThatLastsToTheEndIsDetectedAndBlamed) {
  const char* const asked = std::getenv("EGT_STRIKES");
  const int strikes = asked ? std::atoi(asked) : size() == 1 ? 4 : 2;
  std::mt19937 random(13);  // the same on all ranks
  const char* const kinds[] = {"gemm", "activation", "gradient", "extreme"};
  for (int strike = 0; strike < strikes; ++strike) {
    const int struck = static_cast<int>(random() % static_cast<unsigned>(size()));
    const auto step = random() % 10, bit = random() % 32;
    const std::string spec =
        fmt::format("{}:rank={},step={},bit={},lasting=always", kinds[strike % 4], struck, step, bit);
    SCOPED_TRACE(spec);
    const Outcome outcome = run({.injections = {spec}, .covers_all = true});
    SCOPED_TRACE(all_of(outcome.faults));
    EXPECT_TRUE(std::any_of(outcome.faults.begin(), outcome.faults.end(),
                            [&](const Json& fault) { return fault.at("rank") == struck && is_sure(fault); }));
    for (const Json& fault : outcome.faults) EXPECT_TRUE(!is_sure(fault) || fault.at("rank") == struck);
    EXPECT_EQ(outcome.part.success, rank() != struck && size() > 2) << outcome.part.failure;
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

/// Errors common to all ranks: all digests agree, and only an independent answer reveals the error.
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
    {"no bias", SystematicError::no_bias, "replay", "activation of layer"},
    {"no bias gradient", SystematicError::no_bias_gradient, "replay",
     "bias gradient by the input gradient of layer"},
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
      // Before the first step, ranks divide the GEMMs; later each rank verifies some of them.
      EXPECT_EQ(blamed.size(), static_cast<std::size_t>(size()));
    }
}

std::vector<Json> of_step(const std::vector<Json>& faults, int step) {
  std::vector<Json> found;
  for (const Json& fault : faults)
    if (fault.at("step") == step) found.push_back(fault);
  return found;
}

/// Fails on the reporting rank, on the faulty rank, and on a third one; also if an earlier fault of the same
/// ranks was reported already. `EGT_MOMENTS` sets the number of all-gathers of each.
TEST_F(TrainingCoverageOnRanks, AMismatchIsReportedThoughPublishingOrAnAllGatherFails) {
  const std::string clean = run({.steps = 65, .check_every = 60, .covers_all = true}).weight_digest();
  const char* const asked = std::getenv("EGT_MOMENTS");
  const int moments = asked ? std::atoi(asked) : 2;
  std::mt19937 random(17);  // the same on all ranks
  for (int moment = -1; moment < moments; ++moment)
    for (const bool is_second : {false, true}) {
      ExaminationFailure failure{.rank = static_cast<int>(random() % static_cast<unsigned>(size())),
                                 .publication = is_second ? 2 : 0,
                                 .all_gather = moment < 0 ? -1 : static_cast<int>(random() % 12),
                                 .is_late = random() % 2 == 0};
      const int struck = static_cast<int>(random() % static_cast<unsigned>(size()));
      SCOPED_TRACE(fmt::format("rank {}, publication {}, all-gather {}, late {}, struck {}", failure.rank,
                               failure.publication, failure.all_gather, failure.is_late, struck));
      std::vector<std::string> injections = {
          fmt::format("gradient:rank={},step=30,layer=2,bit=20,lasting=once", struck)};
      if (is_second)
        injections.push_back(fmt::format("gradient:rank={},step=10,layer=1,bit=20,lasting=once", struck));
      const Outcome outcome = run(
          {.steps = 65, .check_every = 60, .injections = injections, .failure = failure, .covers_all = true});
      EXPECT_THAT(of_step(outcome.faults, 30), SizeIs(1)) << all_of(outcome.faults);
      EXPECT_THAT(outcome.faults, SizeIs(injections.size())) << all_of(outcome.faults);
      if (failure.all_gather < 1) {
        EXPECT_EQ(outcome.restarts, 1);
      }
      EXPECT_EQ(outcome.weight_digest(), clean);
    }
}

/// The digests of one of the first steps are wrong in the copy of one rank, which begins a repair alone. The
/// check after step 3 comes first.
TEST_F(TrainingCoverageOnRanks, AMismatchThatOneRankSeesIsReportedAfterTheRestart) {
  if (size() == 1) GTEST_SKIP() << "needs peers";
  constexpr int before_step_0 =
      4;  // all-gathers: groups, their agreement, the initial state, and the first check
  for (int step = 0; step < 4; ++step) {
    SCOPED_TRACE(step);
    const CorruptingCommunicator::Hit hit{.rank = size() - 1,
                                          .collective = CorruptingCommunicator::Collective::all_gather,
                                          .change = flip_bit_29,
                                          .first_call = before_step_0 + step,
                                          .last_call = before_step_0 + step};
    const Outcome outcome = run({.precisions = {Precision::fp32},
                                 .hits = {hit},
                                 .failure = ExaminationFailure{.rank = size() - 1, .publication = 1},
                                 .covers_all = true});
    EXPECT_EQ(outcome.restarts, 1);
    ASSERT_THAT(outcome.faults, SizeIs(1)) << all_of(outcome.faults);
    EXPECT_EQ(outcome.faults[0].at("step"), step);
    EXPECT_EQ(outcome.faults[0].at("blame"), "ambiguous");
  }
}

TEST_F(TrainingCoverageOnRanks, RanksThatDoNotAgreeOnTheirGroupsDoNotStart) {
  if (size() == 1) GTEST_SKIP() << "needs peers";
  const CorruptingCommunicator::Hit first_digest{.rank = size() - 1,
                                                 .collective = CorruptingCommunicator::Collective::all_gather,
                                                 .change = flip_bit_29,
                                                 .last_call = 0};
  const Outcome outcome = run({.hits = {first_digest}, .spoilt_at_start = true, .covers_all = true});
  EXPECT_THAT(outcome.failure, HasSubstr("do not agree on the groups"));
  EXPECT_THAT(outcome.faults, IsEmpty()) << all_of(outcome.faults);
}

/// Equal faults are only counted, but a provisional fault is settled by a record. In the first and in the
/// second pass a rank is suspected together with another neighbour.
TEST_F(TrainingCoverageOnRanks, FaultsLikeEarlierOnesLeaveNoneUndecided) {
  std::vector<std::string> injections;
  for (int step = 1; step < 120; step += 15)  // all in one precision
    injections.push_back(fmt::format("gradient:rank=0,step={},layer=2,bit=20,lasting=once", step));
  const Outcome outcome = run({.steps = 120, .injections = injections, .covers_all = true});
  std::set<std::string> passes;
  for (const Json& injection : outcome.injections) passes.insert(where(injection));
  EXPECT_THAT(passes, SizeIs(2));
  for (const Json& fault : outcome.faults) {
    EXPECT_EQ(fault.at("rank"), 0);
    EXPECT_TRUE(is_sure(fault)) << fault;
  }
  EXPECT_EQ(outcome.faults.size() + outcome.repeats, injections.size()) << all_of(outcome.faults);
}

/// `EGT_NETWORKS` sets the count, `EGT_SEED` other networks.
TEST_F(TrainingCoverageOnRanks, RandomNetworksHaveNoFault) {
  const char* const asked = std::getenv("EGT_NETWORKS");
  const int networks = asked ? std::atoi(asked) : 5;
  const char* const seed = std::getenv("EGT_SEED");
  std::mt19937 random(seed ? static_cast<unsigned>(std::atoi(seed)) : 19U);  // the same on all ranks
  std::int64_t digests = 0;
  for (int network = 0; network < networks; ++network) {
    Job job{.steps = 8, .check_every = 3, .covers_all = true};
    job.layers.resize(2 + random() % 6);
    for (std::int64_t& neurons : job.layers) neurons = 1 + random() % (random() % 2 == 0 ? 16 : 160);
    job.samples = 1 + random() % 16;
    job.optimizer = random() % 2 == 0 ? Optimizer::sgd : Optimizer::adam;
    job.extreme_iterations = static_cast<int>(random() % 3);
    job.balances = random() % 4 == 0;
    SCOPED_TRACE(fmt::format("network {}: {}, {} samples, {} iterations", network, fmt::join(job.layers, ","),
                             job.samples, job.extreme_iterations));
    const Outcome outcome = run(job);
    ASSERT_THAT(outcome.faults, IsEmpty()) << all_of(outcome.faults);
    EXPECT_TRUE(outcome.part.success) << outcome.part.failure;
    EXPECT_EQ(outcome.figure("compared_steps"), 8);
    digests += outcome.figure("digests_compared");
  }
  EXPECT_GT(digests, 50 * networks);
}

}  // namespace
}  // namespace egt::test
