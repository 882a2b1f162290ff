#include "model/mlp_trainer.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <ostream>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/state_digests.hpp"
#include "tests/support/trainer_fixture.hpp"

namespace egt::test {
namespace {

TEST_F(Trainer, AFlippedWeightBitChangesTheDigestOfItsLayerOnly) {
  auto trainer = make(small_network({Precision::fp32}));
  const auto digests = [&] { return test::state_digests(*device, *communicator, *trainer).at(0); };
  const auto before = digests();
  EXPECT_EQ(before, digests());
  std::vector<float> weights = read(trainer->weights());
  float& victim = weights[static_cast<std::size_t>(trainer->layout().layers()[1].weights + 5)];
  victim = float_from_bits(float_bits(victim) ^ 1u);
  write(trainer->weights(), weights);
  const auto after = digests();
  EXPECT_EQ(before[0], after[0]);
  EXPECT_NE(before[1], after[1]);
  EXPECT_EQ(before[2], after[2]);
}

struct Keeping {
  Optimizer optimizer;
  ElementType gradient_type;
};
void PrintTo(const Keeping& keeping, std::ostream* stream) {
  *stream << (keeping.optimizer == Optimizer::adam ? "adam" : "sgd") << ", gradient "
          << to_string(keeping.gradient_type);
}

class TrainerState : public Trainer, public ::testing::WithParamInterface<Keeping> {
 protected:
  std::unique_ptr<MlpTrainer> make_trainer() {
    MlpConfig config = small_network(all_precisions);
    config.optimizer = GetParam().optimizer;
    config.gradient_type = GetParam().gradient_type;
    config.learning_rate = 0.01;
    config.keeps_states = true;
    return make(config);
  }
  /// Each step in the precision of its turn.
  void steps(MlpTrainer& trainer, std::int64_t first, std::int64_t end) {
    for (std::int64_t i = first; i < end; ++i) {
      ASSERT_TRUE(
          trainer.set_precision(all_precisions[static_cast<std::size_t>(i) % all_precisions.size()]).ok());
      step(trainer, i);
    }
  }
  std::vector<Digest> state(MlpTrainer& trainer) {
    return test::state_digests(*device, *communicator, trainer).at(0);
  }
};

TEST_P(TrainerState, IsNotTouchedByReplaysAndDigestsBetweenAndBesideSteps) {
  auto plain = make_trainer(), checked = make_trainer();
  steps(*plain, 0, 10);
  const Buffer answers =
      std::move(device->allocate(checked->replay_tensors().size() * sizeof(Digest)).value());
  for (std::int64_t i = 0; i < 10; ++i) {
    const auto turn = static_cast<std::size_t>(i);
    ASSERT_TRUE(checked->set_precision(all_precisions[turn % all_precisions.size()]).ok());
    ASSERT_TRUE(checked->enqueue_step(i, {}, false).ok());
    // Enqueued directly after the step, which is still running; in another precision than the next step's.
    ASSERT_TRUE(
        checked->enqueue_replay(all_precisions[turn * 3 % all_precisions.size()], answers.as<Digest>()).ok());
    ASSERT_TRUE(checked->enqueue_state_digests(answers.as<Digest>()).ok());
    ASSERT_TRUE(checked->keep_state(static_cast<int>(i % 2)).ok());
    if (i < MlpTrainer::depth) continue;
    ASSERT_TRUE(checked->retire_step(i - MlpTrainer::depth, timeout_s).ok());
  }
  for (std::int64_t i = 10 - MlpTrainer::depth; i < 10; ++i)
    ASSERT_TRUE(checked->retire_step(i, timeout_s).ok());
  EXPECT_EQ(state(*checked), state(*plain));
}

TEST_P(TrainerState, TakenBackGivesTheSameStepsAgain) {
  auto trainer = make_trainer();
  steps(*trainer, 0, 3);
  const std::vector<Digest> early = state(*trainer);
  ASSERT_TRUE(trainer->keep_state(1).ok());
  steps(*trainer, 3, 9);
  const std::vector<Digest> late = state(*trainer);
  ASSERT_TRUE(trainer->keep_state(0).ok());
  EXPECT_NE(early, late);
  ASSERT_TRUE(trainer->restore_state(1).ok());
  EXPECT_EQ(state(*trainer), early);
  steps(*trainer, 3, 9);
  EXPECT_EQ(state(*trainer), late);
  ASSERT_TRUE(trainer->restore_state(1).ok());
  ASSERT_TRUE(trainer->restore_state(0).ok());
  EXPECT_EQ(state(*trainer), late) << "each slot has its own";
}

TEST_P(TrainerState, UpdatesThatAreStillDueAreDroppedWhenStateIsTakenBack) {
  auto trainer = make_trainer();
  steps(*trainer, 0, 3);
  const std::vector<Digest> early = state(*trainer);
  ASSERT_TRUE(trainer->keep_state(0).ok());
  steps(*trainer, 3, 5);  // otherwise the updates of the last step would come with the next
  ASSERT_TRUE(trainer->restore_state(0).ok());
  EXPECT_EQ(state(*trainer), early);
}

TEST_P(TrainerState, AChangeOfOneTensorShowsInItsDigestOnlyAndNotInWhatIsKept) {
  auto trainer = make_trainer();
  steps(*trainer, 0, 3);
  ASSERT_TRUE(trainer->keep_state(0).ok());
  const std::vector<Digest> clean = state(*trainer);
  const std::vector<StateTensor> tensors = trainer->state_tensors();
  ASSERT_EQ(tensors.size(), GetParam().optimizer == Optimizer::adam ? 9u : 6u);
  for (std::size_t struck = 0; struck < tensors.size(); ++struck) {
    SCOPED_TRACE(to_string(tensors[struck]));
    ASSERT_TRUE(trainer->tamper_state(tensors[struck], {.first = 7, .mask = 1}).ok());
    const std::vector<Digest> actual = state(*trainer);
    for (std::size_t q = 0; q < tensors.size(); ++q) EXPECT_EQ(actual[q] != clean[q], q == struck) << q;
    ASSERT_TRUE(trainer->restore_state(0).ok());
    EXPECT_EQ(state(*trainer), clean);
  }
}

INSTANTIATE_TEST_SUITE_P(Ways, TrainerState,
                         ::testing::Values(Keeping{Optimizer::sgd, ElementType::f32},
                                           Keeping{Optimizer::adam, ElementType::f32},
                                           Keeping{Optimizer::sgd, ElementType::bf16},
                                           Keeping{Optimizer::adam, ElementType::bf16}));

}  // namespace
}  // namespace egt::test
