// Gradient compression: each rank sends its largest elements. Tests sent and kept data and fault detection.
#include <gmock/gmock.h>

#include <cmath>
#include <cstring>
#include <numeric>

#include "model/mlp_trainer.hpp"
#include "ranks_on_host.hpp"
#include "tests/support/changed_device.hpp"
#include "tests/support/corrupting_communicator.hpp"
#include "tests/support/single_rank_communicator.hpp"
#include "tests/support/state_digests.hpp"

namespace egt::test {
namespace {

using ::testing::Each;

using Floats = std::vector<float>;

constexpr std::int64_t batch_each = 12;

class CompressedGradients : public RanksOnHost {
 protected:
  MlpConfig config(double share) const {
    MlpConfig c;
    c.neurons = {24, 40, 33, 7};
    c.batch = {.global = batch_each * size(), .first = batch_each * rank(), .local = batch_each};
    c.precisions = {Precision::fp32};
    c.learning_rate = default_learning_rate(c.neurons, c.optimizer, c.batch.global);
    c.top_k_share = share;
    c.seed = 11;
    c.keeps_states = true;
    return c;
  }
  static std::unique_ptr<MlpTrainer> make(Device& on, Communicator& ranks, const MlpConfig& c) {
    auto made = MlpTrainer::create(on, ranks, c);
    EXPECT_TRUE(made.ok()) << made.status().what();
    return made.ok() ? std::move(made.value()) : nullptr;
  }

  /// Runs the steps from `first` on; returns their losses.
  std::vector<double> steps(MlpTrainer& trainer, std::int64_t first, std::int64_t end) {
    std::vector<double> losses;
    for (std::int64_t step = first; step < end; ++step) {
      EXPECT_TRUE(trainer.enqueue_step(step, {}, false).ok());
      auto result = trainer.retire_step(step, timeout_s);
      EXPECT_TRUE(result.ok()) << result.status().what();
      losses.push_back(result.ok() ? result.value().loss : NAN);
    }
    EXPECT_TRUE(trainer.settle().ok());
    EXPECT_TRUE(device->synchronize(trainer.compute_stream(), timeout_s).ok());
    return losses;
  }

  Floats read(VectorView view) {
    auto stream = std::move(device->create_stream(StreamPriority::normal).value());
    Buffer pinned = std::move(device->allocate_pinned(view.bytes()).value());
    EXPECT_TRUE(device->copy(pinned.data(), view.data, view.bytes(), *stream).ok());
    EXPECT_TRUE(device->synchronize(*stream, timeout_s).ok());
    return {pinned.as<float>(), pinned.as<float>() + view.count};
  }
  void write(VectorView view, const Floats& values) {
    auto stream = std::move(device->create_stream(StreamPriority::normal).value());
    Buffer pinned = std::move(device->allocate_pinned(view.bytes()).value());
    std::memcpy(pinned.data(), values.data(), view.bytes());
    EXPECT_TRUE(device->copy(view.data, pinned.data(), view.bytes(), *stream).ok());
    EXPECT_TRUE(device->synchronize(*stream, timeout_s).ok());
  }

  /// Sum of all ranks' values, starting with rank 0.
  Floats sum_in_order(const Floats& own) {
    auto stream = std::move(device->create_stream(StreamPriority::normal).value());
    const std::size_t bytes = own.size() * sizeof(float);
    Buffer sent = std::move(device->allocate(bytes).value());
    Buffer all = std::move(device->allocate(bytes * static_cast<std::size_t>(size())).value());
    const auto count = static_cast<std::int64_t>(own.size());
    write({sent.data(), ElementType::f32, count}, own);
    EXPECT_TRUE(real->all_gather(sent.data(), all.data(), bytes, *stream).ok());
    EXPECT_TRUE(device->synchronize(*stream, timeout_s).ok());
    const Floats ranks = read({all.data(), ElementType::f32, count * size()});
    Floats sum(own.size(), 0.0f);
    for (std::size_t i = 0; i < ranks.size(); ++i) sum[i % own.size()] += ranks[i];
    return sum;
  }

  /// Only this rank's gradient of the step at these weights.
  Floats own_gradient(const Floats& weights, std::int64_t step) {
    SingleRankCommunicator alone(*device);
    auto trainer = make(*device, alone, config(0));
    write(trainer->weights(), weights);
    steps(*trainer, step, step + 1);
    return read(trainer->gradient());
  }

  std::vector<Digest> replayed(MlpTrainer& trainer) {
    const std::size_t count = trainer.replay_tensors().size();
    Buffer answers = std::move(device->allocate(count * sizeof(Digest)).value());
    EXPECT_TRUE(trainer.enqueue_replay(Precision::fp32, answers.as<Digest>()).ok());
    EXPECT_TRUE(device->synchronize(trainer.communication_stream(), timeout_s).ok());
    return {answers.as<Digest>(), answers.as<Digest>() + count};
  }
};

TEST_F(CompressedGradients, OfAWholeShareAreThePlainSumInTheOrderOfTheRanks) {
  auto trainer = make(*device, *real, config(1));
  const Floats weights = read(trainer->weights());
  steps(*trainer, 0, 1);
  EXPECT_EQ(read(trainer->gradient()), sum_in_order(own_gradient(weights, 0)));
  EXPECT_THAT(read(trainer->residual()), Each(0.0f));
}

TEST_F(CompressedGradients, WhatIsSentAndWhatIsLeftAreTheGradientAndWhatWasLeftBefore) {
  auto trainer = make(*device, *real, config(0.01));
  Floats left(static_cast<std::size_t>(trainer->layout().size()), 0.0f);
  for (std::int64_t step = 0; step < 4; ++step) {
    const Floats weights = read(trainer->weights());
    steps(*trainer, step, step + 1);
    Floats whole = own_gradient(weights, step), sent(whole.size(), 0.0f);
    std::transform(whole.begin(), whole.end(), left.begin(), whole.begin(), std::plus<>());
    left = read(trainer->residual());
    std::size_t others = 0;
    for (std::size_t i = 0; i < whole.size(); ++i) {
      if (left[i] == whole[i]) continue;
      sent[i] = whole[i];
      others += left[i] != 0.0f;
    }
    EXPECT_EQ(others, 0u) << "neither what it was nor 0, in step " << step;
    const auto reported = std::count_if(sent.begin(), sent.end(), [](float value) { return value != 0.0f; });
    const double ring = trainer->sent_bytes() / sizeof(SparseElement);
    EXPECT_DOUBLE_EQ(static_cast<double>(reported) * (size() - 1), ring);
    EXPECT_NEAR(static_cast<double>(reported), 0.01 * static_cast<double>(whole.size()), 4);
    EXPECT_EQ(read(trainer->gradient()), sum_in_order(sent)) << "step " << step;
  }
}

TEST_F(CompressedGradients, KeepReplicasEqualAndTrain) {
  auto trainer = make(*device, *real, config(0.01));
  const std::vector<double> losses = steps(*trainer, 0, 50);
  const auto ranks = state_digests(*device, *real, *trainer);
  EXPECT_THAT(ranks, Each(ranks.front()));
  EXPECT_LT(std::accumulate(losses.end() - 4, losses.end(), 0.0),
            std::accumulate(losses.begin(), losses.begin() + 4, 0.0));
}

TEST_F(CompressedGradients, TakenBackStepsGiveTheSameBitsAgain) {
  auto trainer = make(*device, *real, config(0.05));
  steps(*trainer, 0, 5);
  ASSERT_OK(trainer->keep_state(1));
  steps(*trainer, 5, 12);
  const Floats weights = read(trainer->weights()), left = read(trainer->residual());
  ASSERT_OK(trainer->restore_state(1));
  ASSERT_OK(trainer->set_precision(Precision::fp32));
  steps(*trainer, 5, 12);
  EXPECT_EQ(read(trainer->weights()), weights);
  EXPECT_EQ(read(trainer->residual()), left);
}

TEST_F(CompressedGradients, AWrongGradientShowsInTheReplayOfItsRank) {
  auto trainer = make(*device, *real, config(0.05));
  const std::vector<PassTensor> tensors = trainer->replay_tensors();
  const std::vector<Digest> clean = replayed(*trainer);
  steps(*trainer, 0, 3);
  EXPECT_EQ(replayed(*trainer), clean) << "it leaves what is not sent alone";
  const bool is_victim = rank() == size() - 1;
  const PassTensor struck{TensorKind::weight_gradient, 2};
  if (is_victim) trainer->set_tensor_faults({{.tensor = struck, .flip = {.first = 3, .mask = 1u << 30}}});
  const std::vector<Digest> again = replayed(*trainer);
  for (std::size_t i = 0; i < tensors.size(); ++i)
    if (tensors[i] == struck) {
      EXPECT_EQ(again[i] != clean[i], is_victim) << to_string(tensors[i]);
    }
}

TEST_F(CompressedGradients, AWrongSelectionShowsInTheReplayOfItsRank) {
  bool is_broken = false;  // one selected value has a flipped bit
  const auto wrong = changed<TopKSelection>(
      std::move(open_host_device_of_rank().value()),
      [&](const TopKSelection& call, const Enqueue& enqueue) -> Status {
        EGT_TRY(enqueue(call));
        if (!is_broken) return {};
        return enqueue(FlipWords{{reinterpret_cast<std::uint32_t*>(call.selected.data), 2}, {.first = 1}});
      });
  auto trainer = make(*wrong, *real, config(0.05));
  const std::vector<PassTensor> tensors = trainer->replay_tensors();
  const std::vector<Digest> clean = replayed(*trainer);
  is_broken = rank() == 0;
  const std::vector<Digest> again = replayed(*trainer);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const bool is_compressed =
        tensors[i].kind == TensorKind::sent_gradient || tensors[i].kind == TensorKind::kept_gradient;
    EXPECT_EQ(again[i] != clean[i], rank() == 0 && is_compressed) << to_string(tensors[i]);
  }
}

TEST_F(CompressedGradients, WhatOneRankReceivesWronglyShowsInItsReplica) {
  CorruptingCommunicator ranks(*real, {.rank = size() - 1,
                                       .collective = CorruptingCommunicator::Collective::all_gather,
                                       .word = 1,
                                       .change = [](std::uint32_t word) { return word ^ (1u << 29); },
                                       .last_call = 0});
  auto trainer = make(*device, ranks, config(0.05));
  steps(*trainer, 0, 2);
  const auto digests = state_digests(*device, *real, *trainer);
  ASSERT_EQ(digests.size(), static_cast<std::size_t>(size()));
  for (int other = 0; other + 1 < size(); ++other) {
    EXPECT_EQ(digests[static_cast<std::size_t>(other)], digests.front());
    EXPECT_NE(digests.back(), digests.front());
  }
}

TEST_F(CompressedGradients, AreRefusedWhereGradientsAreNotFp32) {
  MlpConfig c = config(0.01);
  c.gradient_type = ElementType::bf16;
  EXPECT_EQ(MlpTrainer::create(*device, *real, c).status().code(), StatusCode::invalid_argument);
}

}  // namespace
}  // namespace egt::test
