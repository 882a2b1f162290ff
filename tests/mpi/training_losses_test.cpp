// Non-finite losses of training on real ranks: caused by a device, or by diverging training.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include "training_job.hpp"

namespace egt::test {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class TrainingLossesOnRanks : public TrainingJobs {};

TEST_F(TrainingLossesOnRanks, ALossThatIsNotFiniteIsOneRecordAndTrainingHeals) {
  const std::string clean = run({}).weight_digest();
  CorruptingCommunicator::Hit hit = gradient_hit(0, make_nan);
  hit.sent = true;  // so that all ranks get the same value
  hit.first_call = hit.last_call = 5;
  const Outcome outcome = run({.hits = {hit}});
  ASSERT_THAT(outcome.faults, SizeIs(1)) << all_of(outcome.faults);
  EXPECT_EQ(outcome.faults.front().at("kind"), "nonfinite");
  EXPECT_FALSE(outcome.part.success);
  EXPECT_EQ(outcome.weight_digest(), clean);
}

TEST_F(TrainingLossesOnRanks, ALossThatStaysNotFiniteIsToldOfTheRankWhoseStateIsUnlikeItsPeers) {
  const Outcome outcome = run({.hits = {gradient_hit(0, make_nan)}});
  EXPECT_EQ(outcome.part.success, rank() != 0) << outcome.part.failure;
  if (size() == 1) {
    EXPECT_THAT(outcome.part.failure, HasSubstr("or a device computes wrong; compare with `verify`"));
    return;
  }
  ASSERT_THAT(outcome.faults, SizeIs(1)) << all_of(outcome.faults);
  EXPECT_EQ(outcome.faults.front().at("kind"), "nonfinite");
  EXPECT_EQ(outcome.faults.front().at("rank"), 0);
}

TEST_F(TrainingLossesOnRanks, ALossThatIsNotFiniteWhenItIsRepeatedIsADivergence) {
  const Outcome outcome = run({.learning_rate = 1e30});
  EXPECT_THAT(outcome.faults, IsEmpty()) << all_of(outcome.faults);
  EXPECT_FALSE(outcome.part.success);
  EXPECT_THAT(outcome.part.failure, HasSubstr("use a --learning-rate below 1e+30"));
}

TEST_F(TrainingLossesOnRanks, AtTheUsersRateALossThatWasNotFiniteOnceIsAFault) {
  CorruptingCommunicator::Hit hit = gradient_hit(0, make_nan);
  hit.sent = true;
  hit.first_call = hit.last_call = 5;
  const Outcome outcome = run({.learning_rate = 1e-4, .hits = {hit}});
  ASSERT_THAT(outcome.faults, SizeIs(1)) << all_of(outcome.faults);
  EXPECT_EQ(outcome.faults.front().at("kind"), "nonfinite");
}

TEST_F(TrainingLossesOnRanks, ASumOfFiniteLossesThatIsNotFiniteWhenItIsRepeatedIsADivergence) {
  // Grows by less than a factor of two per step: the all-reduced loss is infinite before any rank's own loss.
  const Outcome outcome = run({.steps = 1500,
                               .check_every = 50,
                               .precisions = {Precision::fp32},
                               .learning_rate = 0.8,
                               .layers = {16, 8}});
  EXPECT_THAT(outcome.faults, IsEmpty()) << all_of(outcome.faults);
  EXPECT_THAT(outcome.part.failure, HasSubstr("training diverges"));
}

// A restart before a non-finite loss was examined

TEST_F(TrainingLossesOnRanks, ADivergenceThatOnlySomeRanksSawBeforeARestartIsNoFault) {
  if (size() < 2) GTEST_SKIP() << "needs a peer";
  // The loss of step 1 is not finite, and the last rank has not seen it before it is stuck.
  const Outcome outcome =
      run({.learning_rate = 1e30, .stuck_before = [](int rank) { return rank + 1 == size() ? 3 : 5; }});
  EXPECT_EQ(outcome.restarts, 1);
  EXPECT_THAT(outcome.faults, IsEmpty()) << all_of(outcome.faults);
  EXPECT_THAT(outcome.part.failure, HasSubstr("training diverges"));
}

TEST_F(TrainingLossesOnRanks, ADivergenceThatAllRanksSawBeforeARestartIsNoFault) {
  const Outcome outcome = run({.learning_rate = 1e30, .stuck_before = [](int) { return 4; }});
  EXPECT_EQ(outcome.restarts, 1);
  EXPECT_THAT(outcome.faults, IsEmpty()) << all_of(outcome.faults);
  EXPECT_THAT(outcome.part.failure, HasSubstr("training diverges"));
}

TEST_F(TrainingLossesOnRanks, ALossThatOnlySomeRanksSawDoesNotHinderTheRepairAfterARestart) {
  if (size() < 2) GTEST_SKIP() << "needs a peer";
  const std::string clean = run({}).weight_digest();
  // The other ranks repair what the check after step 7 found; the last rank has not seen the loss of step 7.
  const auto soon = [](int) { return std::chrono::microseconds(100'000); };
  const Outcome outcome = run({.injections = {"weight:rank=1,step=6,layer=2,bit=30"},
                               .restart_in_repair = soon,
                               .stuck_before = [](int rank) { return rank + 1 == size() ? 8 : -1; }});
  EXPECT_GE(outcome.restarts, 1);
  EXPECT_THAT(outcome.of_kind("replica"), SizeIs(1)) << all_of(outcome.faults);
  EXPECT_THAT(outcome.of_kind("nonfinite"), IsEmpty()) << all_of(outcome.faults);
  EXPECT_TRUE(rank() != 1 || !outcome.part.success);
  EXPECT_EQ(outcome.weight_digest(), clean);
}

}  // namespace
}  // namespace egt::test
