#include "model/mlp_trainer.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <numeric>
#include <ostream>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "device/host/host_stream.hpp"
#include "egt/core/wait.hpp"
#include "tests/support/trainer_fixture.hpp"

namespace egt::test {
namespace {

TEST_F(Trainer, GradientsAreThoseOfFiniteDifferences) {
  const MlpConfig config = small_network({Precision::fp64});  // learning rate 0: the weights stay unchanged
  auto trainer = make(config);
  step(*trainer, 3);
  const std::vector<float> weights = read(trainer->weights()), gradient = read(trainer->gradient());
  const double outputs = static_cast<double>(config.neurons.back());
  int compared = 0;
  for (const LinearLayer& layer : trainer->layout().layers()) {
    for (const std::int64_t i :
         {layer.weights, layer.weights + 7, layer.weights + layer.inputs * layer.outputs - 1, layer.bias,
          layer.bias + layer.outputs - 1}) {
      constexpr float h = 2e-3f;
      double loss[2];
      for (const int side : {0, 1}) {
        std::vector<float> moved = weights;
        moved[static_cast<std::size_t>(i)] += side ? h : -h;
        write(trainer->weights(), moved);
        ASSERT_TRUE(trainer->set_precision(Precision::fp64).ok());  // copies the weights
        loss[side] = step(*trainer, 3).loss;                        // the same step uses the same batch
      }
      // The loss is a mean over outputs; the gradient is that of half the sum over outputs.
      const double expected = (loss[1] - loss[0]) / (2.0 * h) * outputs / 2.0;
      EXPECT_NEAR(gradient[static_cast<std::size_t>(i)], expected, 2e-3 + 0.01 * std::abs(expected))
          << "parameter " << i;
      ++compared;
    }
  }
  EXPECT_EQ(compared, 15);
}

TEST_F(Trainer, EveryPrecisionGivesTheSameGradientWithinItsRounding) {
  auto reference = make(small_network({Precision::fp64}));
  step(*reference, 0);
  const std::vector<float> expected = read(reference->gradient());
  double norm = 0;
  for (const float g : expected) norm += double{g} * g;
  const std::pair<Precision, double> cases[] = {
      {Precision::fp32, 1e-5}, {Precision::tf32, 5e-3}, {Precision::fp16, 5e-3}, {Precision::bf16, 4e-2}};
  for (const auto& [precision, tolerance] : cases) {
    auto trainer = make(small_network({precision}));
    step(*trainer, 0);
    const std::vector<float> gradient = read(trainer->gradient());
    // fp16 gradients are stored scaled, so the norm is compared after division by the power of two.
    const double scale = precision == Precision::fp16 ? 16.0 * 16.0 : 1.0;
    double error = 0;
    for (std::size_t i = 0; i < gradient.size(); ++i) error += std::pow(gradient[i] / scale - expected[i], 2);
    EXPECT_LT(std::sqrt(error / norm), tolerance) << to_string(precision);
  }
}

TEST_F(Trainer, GradientsInBfloat16AreTheRoundedOnes) {
  MlpConfig config = small_network({Precision::fp32});
  auto exact = make(config);
  config.gradient_type = ElementType::bf16;
  auto rounded = make(config);
  step(*exact, 0);
  step(*rounded, 0);
  const std::vector<float> expected = read(exact->gradient());
  const VectorView view = rounded->gradient();
  ASSERT_EQ(view.type, ElementType::bf16);
  Buffer wide = std::move(device->allocate(static_cast<std::size_t>(view.count) * 4).value());
  const VectorView wide_view{wide.data(), ElementType::f32, view.count};
  ASSERT_TRUE(device->cast(wide_view, view, *stream).ok());
  const std::vector<float> actual = read(wide_view);
  for (std::size_t i = 0; i < actual.size(); ++i)
    EXPECT_NEAR(actual[i], expected[i], std::abs(expected[i]) / 128 + 1e-7) << i;
}

struct Learning {
  std::vector<Precision> precisions;
  Optimizer optimizer;
  int extreme_iterations;
};
void PrintTo(const Learning& way, std::ostream* stream) {
  *stream << (way.optimizer == Optimizer::adam ? "adam" : "sgd");
  for (const Precision precision : way.precisions) *stream << ' ' << to_string(precision);
}

class TrainerLearns : public Trainer, public ::testing::WithParamInterface<Learning> {};

TEST_P(TrainerLearns, TheLossFallsToLessThanHalf) {
  MlpConfig config;
  config.neurons = {64, 128, 96, 16};
  config.batch = {.global = 64, .first = 0, .local = 64};
  config.precisions = GetParam().precisions;
  config.optimizer = GetParam().optimizer;
  config.extreme_iterations = GetParam().extreme_iterations;
  config.learning_rate = default_learning_rate(config.neurons, config.optimizer, config.batch.global);
  auto trainer = make(config);
  double first = 0, last = 0;
  for (std::int64_t i = 0; i < 150; ++i) {
    if (i % 10 == 0) {
      ASSERT_TRUE(
          trainer
              ->set_precision(config.precisions[static_cast<std::size_t>(i / 10) % config.precisions.size()])
              .ok());
    }
    last = step(*trainer, i).loss;
    if (i == 0) first = last;
  }
  EXPECT_GT(first, 1.0);
  EXPECT_LT(last, first / 2);
}

/// Random values of `--layers`, `--batch` and `--optimizer`.
MlpConfig any_network(std::mt19937& random) {
  const auto up_to = [&](std::int64_t most) {
    return std::uniform_int_distribution<std::int64_t>(1, most)(random);
  };
  constexpr Precision precisions[] = {Precision::fp32, Precision::fp16, Precision::bf16};
  MlpConfig config;
  const std::int64_t widest = std::int64_t{4} << up_to(5), alike = up_to(2);
  for (std::int64_t layers = 1 + (up_to(3) == 1 ? up_to(63) : up_to(8)); layers >= 0; --layers)
    config.neurons.push_back(alike == 1 ? widest : up_to(widest));
  const std::int64_t batch = up_to(3) == 1 ? 1 : std::int64_t{1} << up_to(6);
  config.batch = {.global = batch, .first = 0, .local = batch};
  config.precisions = {precisions[up_to(3) - 1]};
  config.optimizer = up_to(4) == 1 ? Optimizer::adam : Optimizer::sgd;
  config.seed = static_cast<std::uint64_t>(up_to(100000));
  return config;
}

TEST_F(Trainer, AtTheDefaultRateNoNetworkDiverges) {
  std::mt19937 random(7);
  for (int network = 0; network < 30; ++network) {
    MlpConfig config = any_network(random);
    config.learning_rate = default_learning_rate(config.neurons, config.optimizer, config.batch.global);
    auto trainer = make(config);
    double worst = 0;
    for (std::int64_t i = 0; i < 200; ++i) {
      const double loss = step(*trainer, i).loss;
      ASSERT_TRUE(std::isfinite(loss)) << "network " << network << ", step " << i;
      if (i >= 150) worst = std::max(worst, loss);
    }
    EXPECT_LT(worst, 10) << "network " << network << ", rate " << config.learning_rate;
  }
}

INSTANTIATE_TEST_SUITE_P(Ways, TrainerLearns,
                         ::testing::Values(Learning{{Precision::fp32}, Optimizer::sgd, 0},
                                           Learning{{Precision::fp32}, Optimizer::adam, 2},
                                           Learning{{Precision::fp16}, Optimizer::sgd, 2},
                                           Learning{{Precision::bf16}, Optimizer::adam, 0},
                                           Learning{{Precision::fp8}, Optimizer::adam, 2},
                                           Learning{all_precisions, Optimizer::sgd, 1}));

TEST_F(Trainer, TheSameStepsGiveTheSameBitsWhileStepsOverlap) {
  MlpConfig config = small_network({Precision::bf16, Precision::fp8});
  config.neurons = {16, 32, 48, 16};
  config.learning_rate = 0.01;
  config.extreme_iterations = 1;
  std::vector<float> weights[2];
  for (auto& result : weights) {
    auto trainer = make(config);
    for (std::int64_t i = 0; i < 12; ++i) {
      const Precision precision = i < 6 ? Precision::bf16 : Precision::fp8;
      ASSERT_TRUE(trainer->set_precision(precision).ok());
      ASSERT_TRUE(trainer->enqueue_step(i, {}, false).ok());
      if (i < MlpTrainer::depth) continue;
      ASSERT_TRUE(trainer->retire_step(i - MlpTrainer::depth, timeout_s).ok());
    }
    for (std::int64_t i = 12 - MlpTrainer::depth; i < 12; ++i)
      ASSERT_TRUE(trainer->retire_step(i, timeout_s).ok());
    result = read(trainer->weights());
  }
  EXPECT_EQ(0, std::memcmp(weights[0].data(), weights[1].data(), weights[0].size() * sizeof(float)));
}

TEST_F(Trainer, WithoutExtremeComputeBiasAndReluComeAlongWithTheProduct) {
  MlpConfig config = small_network({Precision::bf16, Precision::fp8});
  config.neurons = {16, 32, 48, 16};
  auto trainer = make(config);
  const auto activation_ms = [&](std::int64_t at) {
    EXPECT_TRUE(trainer->enqueue_step(at, {}, true).ok());
    EXPECT_TRUE(trainer->retire_step(at, timeout_s).ok());
    const auto times = trainer->measured_times();
    EXPECT_TRUE(times.ok());
    return times.value().of(StepPhase::activation);
  };
  EXPECT_EQ(activation_ms(0), 0);
  ASSERT_TRUE(trainer->set_precision(Precision::fp8).ok());
  EXPECT_GT(activation_ms(1), 0) << "products of fp8 take none along";
}

TEST_F(Trainer, VotesAndTimesComeBack) {
  MlpConfig config = small_network({Precision::fp32});
  config.extreme_iterations = 1;
  auto trainer = make(config);
  ASSERT_TRUE(trainer->enqueue_step(0, 3.0f, true).ok());
  auto result = trainer->retire_step(0, timeout_s);
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result.value().votes, 3.0f);
  EXPECT_FALSE(result.value().step_ms.has_value());
  auto times = trainer->measured_times();
  ASSERT_TRUE(times.ok());
  for (const StepPhase phase : {StepPhase::forward, StepPhase::activation, StepPhase::backward})
    EXPECT_GT(times.value().of(phase), 0) << to_string(phase);
  EXPECT_EQ(times.value().sum_ms.size(), trainer->layout().buckets().size());
  EXPECT_EQ(std::accumulate(times.value().sum_bytes.begin(), times.value().sum_bytes.end(), 0.0),
            static_cast<double>(trainer->layout().size()) * sizeof(float));
  EXPECT_GT(step(*trainer, 1).step_ms.value_or(0), 0);
}

/// The all-reduce of the second layer's gradient, the third of the first step, waits until it is released.
class LateSum : public SingleRankCommunicator {
 public:
  using SingleRankCommunicator::SingleRankCommunicator;
  Status all_reduce(void*, std::size_t, ElementType, Stream& on) override {
    if (calls_++ == 2)
      as_host_stream(on).enqueue([this] {
        while (!released) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        return Status();
      });
    return {};
  }

  std::atomic<bool> released{false};

 private:
  int calls_ = 0;
};

TEST_F(Trainer, UpperLayersAreUpdatedWhileTheSecondOnesSumIsMissing) {
  auto owned = std::make_unique<LateSum>(*device);
  LateSum& late = *owned;
  communicator = std::move(owned);
  MlpConfig config = small_network({Precision::fp32});
  config.learning_rate = 0.01;
  auto trainer = make(config);
  const auto weight = [&](std::size_t layer) {
    return read(trainer->weights())[static_cast<std::size_t>(trainer->layout().layers()[layer].weights)];
  };
  const float second = weight(1), third = weight(2);
  EXPECT_TRUE(trainer->enqueue_step(0, {}, false).ok());
  EXPECT_TRUE(trainer->enqueue_step(1, {}, false).ok());
  const Status updated = wait_until([&] { return Result<bool>(weight(2) != third); },
                                    {.seconds = 10, .what = "the third layer's update"});
  EXPECT_TRUE(updated.ok()) << updated.what();
  EXPECT_EQ(weight(1), second);
  late.released = true;
  for (const std::int64_t s : {0, 1}) EXPECT_TRUE(trainer->retire_step(s, timeout_s).ok());
  EXPECT_NE(weight(1), second);
}

TEST_F(Trainer, ThePhasesOfAStepThatWaitedForALateSumAreWithinItsPass) {
  auto owned = std::make_unique<LateSum>(*device);
  LateSum& late = *owned;
  communicator = std::move(owned);
  auto trainer = make(small_network({Precision::fp32}));
  EXPECT_TRUE(trainer->enqueue_step(0, {}, false).ok());
  EXPECT_TRUE(trainer->enqueue_step(1, {}, true).ok());
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  late.released = true;
  EXPECT_TRUE(trainer->retire_step(0, timeout_s).ok());
  const auto result = trainer->retire_step(1, timeout_s);
  ASSERT_TRUE(result.ok() && result.value().pass_ms);
  const auto times = trainer->measured_times();
  ASSERT_TRUE(times.ok());
  double all = 0;
  for (const double ms : times.value().phase_ms) all += ms;
  EXPECT_GT(times.value().of(StepPhase::wait), 0);
  EXPECT_LE(all, *result.value().pass_ms * (1 + 1e-9));
  EXPECT_LT(*result.value().step_ms, *result.value().pass_ms) << "which begins when the late sum has come";
}

TEST_F(Trainer, ThePhasesOfAMeasuredStepMakeUpItsPass) {
  MlpConfig config = small_network({Precision::fp32});
  config.extreme_iterations = 300;
  auto trainer = make(config);
  step(*trainer, 0);
  ASSERT_TRUE(trainer->enqueue_step(1, {}, true).ok());
  const auto result = trainer->retire_step(1, timeout_s);
  ASSERT_TRUE(result.ok());
  const auto times = trainer->measured_times();
  ASSERT_TRUE(times.ok());
  EXPECT_GT(times.value().of(StepPhase::update), 0);
  EXPECT_GT(times.value().of(StepPhase::activation), times.value().of(StepPhase::forward));
  double all = 0;
  for (const double ms : times.value().phase_ms) all += ms;
  EXPECT_GT(all, 0.9 * *result.value().compute_ms);
}

TEST_F(Trainer, TheTimeOfAPassComesBackAndIsToldToThePeersWithTheNextStep) {
  auto trainer = make(small_network({Precision::fp32}));
  const StepResult first = step(*trainer, 0);
  ASSERT_TRUE(first.compute_ms.has_value());
  EXPECT_GT(*first.compute_ms, 0);
  EXPECT_EQ(first.all_compute_ms, std::vector<double>{0}) << "nothing was known yet";
  const StepResult second = step(*trainer, 1);
  EXPECT_EQ(second.all_compute_ms, std::vector<double>{static_cast<float>(*first.compute_ms)});
}

TEST_F(Trainer, WorkThatIsAddedCountsAsTimeOfThePassAndLeavesTheTrainingAlone) {
  auto plain = make(small_network({Precision::fp32})), slowed = make(small_network({Precision::fp32}));
  constexpr std::uint64_t words = 1 << 12;
  Buffer scratch = std::move(device->allocate(words * 4).value());
  Buffer digest = std::move(device->allocate(sizeof(Digest)).value());
  ASSERT_TRUE(device->set_zero(scratch.data(), scratch.bytes(), *stream).ok());
  ASSERT_TRUE(device->synchronize(*stream, timeout_s).ok());
  std::vector<std::int64_t> steps;
  slowed->set_extra_work([&](std::int64_t at, Stream& compute) {
    steps.push_back(at);
    return device->sine_exponential({scratch.as<std::uint32_t>(), words}, 300, digest.as<Digest>(), compute);
  });
  double plain_ms = 0, slowed_ms = 0;
  for (std::int64_t s = 0; s < 3; ++s) {
    plain_ms += *step(*plain, s).compute_ms;
    slowed_ms += *step(*slowed, s).compute_ms;
  }
  EXPECT_GT(slowed_ms, 2 * plain_ms);
  EXPECT_EQ(steps, (std::vector<std::int64_t>{0, 1, 2}));
  EXPECT_EQ(read(slowed->weights()), read(plain->weights()));
}

TEST_F(Trainer, WhatAPrecisionCannotTrainIsRefusedWithItsReason) {
  const auto refusal = [&](Precision precision, std::vector<std::int64_t> neurons, std::int64_t samples) {
    MlpConfig config = small_network({precision});
    config.neurons = std::move(neurons);
    config.batch = {.global = samples, .first = 0, .local = samples};
    auto trainer = MlpTrainer::create(*device, *communicator, config);
    EXPECT_FALSE(trainer.ok());
    return trainer.status();
  };
  EXPECT_EQ(refusal(Precision::int8, {16, 16}, 16).code(), StatusCode::unsupported);
  EXPECT_EQ(refusal(Precision::fp8, {16, 20, 16}, 16).what(),
            "fp8 needs layers of a multiple of 16 neurons, and one has 20");
  EXPECT_EQ(refusal(Precision::fp8, {16, 32, 16}, 24).what(),
            "fp8 needs a multiple of 16 samples per rank, not 24");
}

/// Requirement of the issue on 8-bit training: within 5 % after 500 steps.
TEST_F(Trainer, InFp8TheLossFallsAsInBf16) {
  const auto last_loss = [&](Precision precision, ElementType gradient_type) {
    MlpConfig config;
    config.neurons = {64, 128, 96, 16};
    config.batch = {.global = 64, .first = 0, .local = 64};
    config.precisions = {precision};
    config.gradient_type = gradient_type;
    config.learning_rate = default_learning_rate(config.neurons, config.optimizer, config.batch.global);
    auto trainer = make(config);
    double mean = 0;
    for (std::int64_t i = 0; i < 500; ++i) {
      const double loss = step(*trainer, i).loss;
      if (i >= 480) mean += loss / 20;
    }
    return mean;
  };
  const double bf16 = last_loss(Precision::bf16, ElementType::f32);
  EXPECT_LT(bf16, 0.5);
  EXPECT_NEAR(last_loss(Precision::fp8, ElementType::f32) / bf16, 1, 0.05);
  EXPECT_NEAR(last_loss(Precision::fp8, ElementType::bf16) / bf16, 1, 0.05);
}

}  // namespace
}  // namespace egt::test
