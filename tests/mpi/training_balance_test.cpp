// Batch shares that follow the pass times of the ranks: training, checks and repairs continue to work.
#include <gmock/gmock.h>

#include "training_job.hpp"

namespace egt::test {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr std::int64_t even = 8;  ///< samples per rank

/// Rank 1 is four times slower. Shares change after step 39, or after 79 if its load was not measured by
/// then.
class TrainingBalanceOnRanks : public TrainingJobs {
 protected:
  static Job job(std::int64_t steps) {
    return {.steps = steps,
            .check_every = 20,
            .epoch_steps = 40,
            .balances = true,
            .precisions = {Precision::fp32},
            .injections = {"slow:rank=1,step=3,count=300"}};
  }
};

TEST_F(TrainingBalanceOnRanks, ASlowRankGetsLessAndReplicasStayEqual) {
  if (size() < 2) GTEST_SKIP() << "needs a peer";
  const Outcome outcome = run(job(165));
  EXPECT_THAT(outcome.faults, IsEmpty()) << all_of(outcome.faults);
  EXPECT_TRUE(outcome.part.success) << outcome.part.failure;
  EXPECT_GE(outcome.figure("batch_changes"), 1);
  EXPECT_GE(outcome.figure("batch"), 1);
  // Other programs may slow a rank, too, but not four times.
  if (rank() == 1) {
    EXPECT_LE(outcome.figure("batch"), even / 2);
  } else {
    EXPECT_GT(outcome.figure("batch"), even / 2);
  }
  EXPECT_GT(outcome.part.figures.at("balance_gain").get<double>(), 1.0);
}

TEST_F(TrainingBalanceOnRanks, AFaultWhereSharesAreUnequalIsBlamedAndItsStepsAreRepeated) {
  if (size() < 2) GTEST_SKIP() << "needs a peer";
  Job faulty = job(165);
  faulty.covers_all = true;
  faulty.injections.push_back("weight:rank=0,step=110,layer=2,bit=22");
  const Outcome outcome = run(faulty);
  ASSERT_THAT(outcome.faults, SizeIs(1)) << all_of(outcome.faults);
  EXPECT_EQ(outcome.faults.front().at("rank"), 0);
  EXPECT_TRUE(is_sure(outcome.faults.front())) << all_of(outcome.faults);
  EXPECT_EQ(outcome.figure("wrong_checks"), 1);
  EXPECT_GT(outcome.figure("repeated_steps"), 0);
  EXPECT_GE(outcome.figure("batch_changes"), 1);
}

TEST_F(TrainingBalanceOnRanks, AfterARestartSharesAreEvenUntilTheyAreMeasuredAgain) {
  if (size() < 2) GTEST_SKIP() << "needs a peer";
  Job stuck = job(115);
  stuck.stuck_before = [](int rank) { return rank == 0 ? 100 : 101; };
  const Outcome outcome = run(stuck);
  EXPECT_EQ(outcome.restarts, 1);
  EXPECT_THAT(outcome.faults, IsEmpty()) << all_of(outcome.faults);
  EXPECT_GE(outcome.figure("batch_changes"), 2);
  EXPECT_EQ(outcome.figure("batch"), even);
}

}  // namespace
}  // namespace egt::test
