#include "workload/train/loss_watch.hpp"

#include <gmock/gmock.h>

#include <limits>
#include <vector>

#include "tests/support/workload_fixture.hpp"

namespace egt::test {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float nan = std::numeric_limits<float>::quiet_NaN();
constexpr float largest = std::numeric_limits<float>::max();

/// The result of a repetition of steps from `first_step` on: each rank's own loss.
Repetition repeated(std::int64_t first_step, std::vector<std::vector<float>> own_losses) {
  Repetition made{.alike = true, .states = {}, .first_step = first_step};
  for (const std::vector<float>& losses : own_losses) {
    float sum = 0;
    for (const float loss : losses) sum += loss;
    made.losses.push_back(sum);
  }
  made.own_losses = std::move(own_losses);
  return made;
}

// The monitored loss, on rank 3 of 4

class LossWatched : public ::testing::Test {
 protected:
  void note(std::int64_t step, const std::vector<float>& own_losses) {
    StepResult result;
    result.own_losses = own_losses;
    float sum = 0;
    for (const float loss : own_losses) sum += loss;
    result.loss = sum;
    watch.note(step, result);
  }

  World world;
  FaultReporter reporter{world.environment};
  LossWatch watch{world.environment, reporter};
};

TEST_F(LossWatched, IsOpenFromTheFirstStepThatIsNotFinite) {
  note(4, {1, 1, 1, 1});
  EXPECT_FALSE(watch.open_step());
  note(5, {1, 1, 1, nan});
  note(6, {nan, nan, nan, nan});
  EXPECT_EQ(watch.open_step(), 5);
  EXPECT_EQ(watch.figures().unexamined_step, 5);
}

TEST_F(LossWatched, ThatIsFiniteWhenItIsRepeatedIsAFaultOfTheRankWhoseOwnWasNot) {
  note(5, {1, 1, 1, nan});
  EXPECT_TRUE(watch.judge(repeated(4, {{1, 1, 1, 1}, {1, 1, 1, 1}}), false, 9));
  const auto faults = world.faults();
  ASSERT_THAT(faults, SizeIs(1));
  EXPECT_EQ(faults.front().at("kind"), "nonfinite");
  EXPECT_EQ(faults.front().at("rank"), 3);
  EXPECT_EQ(faults.front().at("step"), 5);
  EXPECT_EQ(faults.front().at("blame"), "certain");
  EXPECT_FALSE(watch.open_step() || watch.figures().diverged_step || watch.figures().unexamined_step);
}

TEST_F(LossWatched, ThatIsNotFiniteAgainIsADivergence) {
  note(5, {1, 1, 1, infinity});
  EXPECT_FALSE(watch.judge(repeated(4, {{1, 1, 1, 1}, {1, 1, 1, infinity}}), false, 9));
  EXPECT_EQ(watch.figures().diverged_step, 5);
  EXPECT_FALSE(watch.open_step() || watch.figures().unexamined_step);
  note(6, {1, 1, 1, 1});
  note(7, {1, 1, 1, infinity});
  EXPECT_FALSE(watch.open_step()) << "known";
  EXPECT_THAT(world.faults(), IsEmpty());
}

TEST_F(LossWatched, ThatDivergesNamesTheRankWhoseOwnWentFirst) {
  note(6, {nan, nan, nan, nan});
  EXPECT_FALSE(watch.judge(repeated(4, {{1, 2, 3, 1}, {1, 2, 30, 1}, {nan, nan, nan, nan}}), false, 9));
  EXPECT_EQ(watch.figures().diverged_step, 6);
  ASSERT_TRUE(watch.figures().diverged_first);
  EXPECT_EQ(watch.figures().diverged_first->rank, 2);
  EXPECT_EQ(watch.figures().diverged_first->step, 5);
}

TEST(LossApart, IsOfOneRankAlone) {
  EXPECT_EQ(first_loss_apart(repeated(4, {{1, nan}}), 4)->rank, 1);
  EXPECT_FALSE(first_loss_apart(repeated(4, {{1, 9}, {nan, nan}, {1, 1}}), 6)) << "all at once";
  EXPECT_FALSE(first_loss_apart(repeated(4, {{1, 2, nan, infinity}}), 4)) << "two of them";
  EXPECT_FALSE(first_loss_apart(repeated(4, {{1, 1}, {1, nan}}), 4)) << "behind the last step";
  EXPECT_FALSE(first_loss_apart(repeated(4, {{nan}}), 4)) << "one rank has no peers";
}

TEST_F(LossWatched, OfFinitePartsWhoseSumIsNotIsADivergenceToo) {
  const std::vector<float> parts(4, largest / 2);
  note(5, parts);
  EXPECT_EQ(watch.open_step(), 5);
  EXPECT_FALSE(watch.judge(repeated(5, {parts}), false, 9));
  EXPECT_EQ(watch.figures().diverged_step, 5);
  note(6, {infinity, infinity, infinity, infinity});
  EXPECT_FALSE(watch.open_step()) << "it was not finite when it was repeated either";
  EXPECT_THAT(world.faults(), IsEmpty());
}

TEST_F(LossWatched, ThatIsNotFiniteAgainBecauseTheRanksStatesAreUnlikeIsAFault) {
  note(5, {1, 1, 1, nan});
  Repetition again = repeated(5, {{1, 1, 1, nan}});
  again.alike_before_loss = false;
  EXPECT_TRUE(watch.judge(again, false, 9));
  EXPECT_THAT(world.faults(), SizeIs(1));
}

TEST_F(LossWatched, IsExplainedByWhatElseWasWrong) {
  note(5, {1, 1, 1, nan});
  EXPECT_FALSE(watch.judge(repeated(5, {{1, 1, 1, 1}}), true, 9));
  EXPECT_FALSE(watch.open_step() || watch.figures().diverged_step || watch.figures().unexamined_step);
  EXPECT_THAT(world.faults(), IsEmpty());
}

TEST_F(LossWatched, OfAStepThatWasNotRepeatedStaysUnexamined) {
  note(5, {1, 1, 1, nan});
  EXPECT_FALSE(watch.judge(repeated(6, {}), false, 9));
  EXPECT_EQ(watch.figures().unexamined_step, 5);
  EXPECT_FALSE(watch.open_step());
  EXPECT_THAT(world.faults(), IsEmpty());
}

TEST_F(LossWatched, IsWatchedAnewAfterARestart) {
  note(5, {1, 1, 1, nan});
  watch.give_up();
  EXPECT_FALSE(watch.open_step()) << "other ranks may not know of it";
  EXPECT_EQ(watch.figures().unexamined_step, 5);
  note(5, {1, 1, 1, nan});
  EXPECT_EQ(watch.open_step(), 5) << "the first of the steps that are made again";
  EXPECT_FALSE(watch.judge(repeated(5, {{1, 1, 1, nan}}), false, 9));
  watch.give_up();
  note(5, {1, 1, 1, nan});
  EXPECT_EQ(watch.open_step(), 5) << "a rank that did not come to judge it opens it, too";
  EXPECT_EQ(watch.figures().diverged_step, 5);
}

}  // namespace
}  // namespace egt::test
