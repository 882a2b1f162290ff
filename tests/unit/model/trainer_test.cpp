#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "device/host/host_device.hpp"
#include "egt/core/wait.hpp"
#include "model/mlp_trainer.hpp"
#include "tests/support/single_rank_communicator.hpp"
#include "tests/support/state_digests.hpp"

namespace egt {
namespace {

constexpr double timeout_s = 60;

MlpConfig small_network(std::vector<Precision> precisions) {
  MlpConfig config;
  config.neurons = {12, 20, 17, 5};
  config.batch = {.global = 16, .first = 0, .local = 16};
  config.precisions = std::move(precisions);
  config.seed = 7;
  return config;
}

class Trainer : public ::testing::Test {
 protected:
  void SetUp() override {
    auto opened = open_host_device({});
    ASSERT_TRUE(opened.ok()) << opened.status().what();
    device = std::move(opened.value());
    communicator = std::make_unique<SingleRankCommunicator>(*device);
    stream = std::move(device->create_stream(StreamPriority::normal).value());
  }

  std::unique_ptr<MlpTrainer> make(const MlpConfig& config) {
    auto trainer = MlpTrainer::create(*device, *communicator, config);
    EXPECT_TRUE(trainer.ok()) << trainer.status().what();
    return std::move(trainer.value());
  }

  StepResult step(MlpTrainer& trainer, std::int64_t index, bool measure = false) {
    EXPECT_TRUE(trainer.enqueue_step(index, {}, measure).ok());
    auto result = trainer.retire_step(index, timeout_s);
    EXPECT_TRUE(result.ok()) << result.status().what();
    return result.value();
  }

  std::vector<float> read(VectorView view) {
    Buffer pinned = std::move(device->allocate_pinned(view.bytes()).value());
    EXPECT_TRUE(device->copy(pinned.data(), view.data, view.bytes(), *stream).ok());
    EXPECT_TRUE(device->synchronize(*stream, timeout_s).ok());
    return {pinned.as<float>(), pinned.as<float>() + view.count};
  }

  void write(VectorView view, const std::vector<float>& values) {
    Buffer pinned = std::move(device->allocate_pinned(view.bytes()).value());
    std::memcpy(pinned.data(), values.data(), view.bytes());
    EXPECT_TRUE(device->copy(view.data, pinned.data(), view.bytes(), *stream).ok());
    EXPECT_TRUE(device->synchronize(*stream, timeout_s).ok());
  }

  std::unique_ptr<Device> device;
  std::unique_ptr<Stream> stream;
  std::unique_ptr<SingleRankCommunicator> communicator;
};

TEST_F(Trainer, GradientsAreThoseOfFiniteDifferences) {
  const MlpConfig config = small_network({Precision::fp64});  // rate 0: the weights stay
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
        ASSERT_TRUE(trainer->set_precision(Precision::fp64).ok());  // takes the weights into the copy
        loss[side] = step(*trainer, 3).loss;                        // the same step: the same batch
      }
      // The loss is a mean over outputs, the gradient that of half the sum over outputs.
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
    // fp16 gradients are kept scaled: the norm is compared after undoing the power of two.
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

/// Of `--layers`, `--batch` and `--optimizer`, as anybody may choose them.
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
  for (int network = 0; network < 100; ++network) {
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

const std::vector<Precision> all = {Precision::fp64, Precision::fp32, Precision::tf32, Precision::fp16,
                                    Precision::bf16};
INSTANTIATE_TEST_SUITE_P(Ways, TrainerLearns,
                         ::testing::Values(Learning{{Precision::fp32}, Optimizer::sgd, 0},
                                           Learning{{Precision::fp32}, Optimizer::adam, 2},
                                           Learning{{Precision::fp16}, Optimizer::sgd, 2},
                                           Learning{{Precision::bf16}, Optimizer::adam, 0},
                                           Learning{all, Optimizer::sgd, 1}));

TEST_F(Trainer, TheSameStepsGiveTheSameBitsWhileStepsOverlap) {
  MlpConfig config = small_network({Precision::bf16});
  config.learning_rate = 0.01;
  config.extreme_iterations = 1;
  std::vector<float> weights[2];
  for (auto& result : weights) {
    auto trainer = make(config);
    for (std::int64_t i = 0; i < 12; ++i) {
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

// Known-answer replays, and the state that is kept

std::vector<Digest> replay(Device& device, MlpTrainer& trainer, Precision precision) {
  const std::size_t count = trainer.replay_tensors().size();
  const Buffer answers = std::move(device.allocate(count * sizeof(Digest)).value());
  const Buffer pinned = std::move(device.allocate_pinned(count * sizeof(Digest)).value());
  Stream& stream = trainer.communication_stream();
  EXPECT_TRUE(trainer.enqueue_replay(precision, answers.as<Digest>()).ok());
  EXPECT_TRUE(device.copy(pinned.data(), answers.data(), count * sizeof(Digest), stream).ok());
  EXPECT_TRUE(device.synchronize(stream, timeout_s).ok());
  return {pinned.as<Digest>(), pinned.as<Digest>() + count};
}

enum class Lost { nan, infinity };

/// Element 3 of the tensor becomes `lost`.
std::vector<Tampering> element_lost(const PassTensor& tensor, ElementType type, Lost lost) {
  constexpr std::uint64_t element = 3;
  const auto word = [&](std::uint64_t index, std::uint32_t keep, std::uint32_t bits) {
    return Tampering{tensor, {.first = index, .keep = keep, .mask = bits}};
  };
  const bool is_nan = lost == Lost::nan;
  switch (type) {
    case ElementType::f64:
      return {word(2 * element, 0, 0), word(2 * element + 1, 0, is_nan ? 0x7FF80000u : 0x7FF00000u)};
    case ElementType::f32:
      return {word(element, 0, is_nan ? 0x7FC00000u : 0x7F800000u)};
    case ElementType::f16:
      return {word(element / 2, 0x0000FFFFu, is_nan ? 0x7E000000u : 0x7C000000u)};
    case ElementType::bf16:
      return {word(element / 2, 0x0000FFFFu, is_nan ? 0x7FC00000u : 0x7F800000u)};
  }
  return {};
}

/// Is `later`, in the order of making, made from `earlier`, directly or not?
bool is_made_from(const PassTensor& later, const PassTensor& earlier) {
  if (earlier.kind == TensorKind::weight_gradient) return false;  // no other tensor of the pass
  const bool of_inputs =
      earlier.kind == TensorKind::input_product || earlier.kind == TensorKind::input_gradient;
  const bool beside = of_inputs && later.layer == earlier.layer && later.kind == TensorKind::weight_gradient;
  return !beside;
}

struct Epilogue {
  Precision precision;
  ElementType gradient_type;
  int extreme_iterations;
};
void PrintTo(const Epilogue& epilogue, std::ostream* stream) {
  *stream << to_string(epilogue.precision) << ", gradient " << to_string(epilogue.gradient_type)
          << ", extreme iterations " << epilogue.extreme_iterations;
}

class ReplayShows : public Trainer, public ::testing::WithParamInterface<Epilogue> {
 protected:
  void SetUp() override {
    Trainer::SetUp();
    MlpConfig config = small_network({GetParam().precision});
    config.batch = {.global = 15, .first = 0, .local = 15};  // some tensors end within a word
    config.gradient_type = GetParam().gradient_type;
    config.extreme_iterations = GetParam().extreme_iterations;
    trainer = make(config);
    tensors = trainer->replay_tensors();
    clean = digests();
  }
  std::vector<Digest> digests() { return replay(*device, *trainer, GetParam().precision); }

  std::unique_ptr<MlpTrainer> trainer;
  std::vector<PassTensor> tensors;
  std::vector<Digest> clean;
};

TEST_P(ReplayShows, ThatNothingWasLostWhenItIsRepeated) {
  EXPECT_EQ(digests(), clean);
}

/// Element 3 is of row 0. An infinity in a gradient that the mask sets to 0 ends there, so those before a
/// mask are put into each element of row 0, some of which pass.
TEST_P(ReplayShows, ANanOrAnInfinityInAnyTensorAndInAllThatIsMadeFromIt) {
  for (std::size_t struck = 0; struck < tensors.size(); ++struck) {
    const PassTensor& tensor = tensors[struck];
    const ElementType type = tensor.kind == TensorKind::weight_gradient ? GetParam().gradient_type
                                                                        : storage_type(GetParam().precision);
    for (const Lost lost : {Lost::nan, Lost::infinity}) {
      SCOPED_TRACE(to_string(tensor) + (lost == Lost::nan ? ": NaN" : ": infinity"));
      std::vector<Tampering> tampering = element_lost(tensor, type, lost);
      if (tensor.kind == TensorKind::input_product && lost == Lost::infinity)
        for (Tampering& one : tampering) {
          one.flip.count = 6;
          one.flip.stride = size_of(type) == 8 ? 2 : 1;
        }
      trainer->set_tampering(tampering);
      const std::vector<Digest> actual = digests();
      for (std::size_t q = 0; q < tensors.size(); ++q) {
        const bool shows = q == struck || (q > struck && is_made_from(tensors[q], tensor));
        EXPECT_EQ(actual[q] != clean[q], shows) << to_string(tensors[q]);
      }
    }
  }
  trainer->set_tampering({});
  EXPECT_EQ(digests(), clean);
}

/// The least change of a single bit.
TEST_P(ReplayShows, TheLowestBitOfAnyTensor) {
  for (std::size_t struck = 0; struck < tensors.size(); ++struck) {
    SCOPED_TRACE(to_string(tensors[struck]));
    trainer->set_tampering({{tensors[struck], {.first = 6, .mask = 1}}});
    const std::vector<Digest> actual = digests();
    for (std::size_t q = 0; q < struck; ++q) EXPECT_EQ(actual[q], clean[q]) << to_string(tensors[q]);
    EXPECT_NE(actual[struck], clean[struck]);
  }
}

std::vector<Epilogue> all_epilogues() {
  std::vector<Epilogue> epilogues;
  for (const Precision precision : all)
    for (const ElementType gradient : {ElementType::f32, ElementType::bf16})
      for (const int iterations : {0, 2}) epilogues.push_back({precision, gradient, iterations});
  return epilogues;
}
INSTANTIATE_TEST_SUITE_P(Epilogues, ReplayShows, ::testing::ValuesIn(all_epilogues()));

TEST_F(Trainer, ReplaysDoNotDependOnHowFarTrainingIs) {
  MlpConfig config = small_network(all);
  config.learning_rate = 0.01;
  auto trainer = make(config);
  std::vector<std::vector<Digest>> before;
  for (const Precision precision : all) before.push_back(replay(*device, *trainer, precision));
  for (std::int64_t i = 0; i < 5; ++i) step(*trainer, i);
  for (std::size_t p = 0; p < all.size(); ++p)
    EXPECT_EQ(replay(*device, *trainer, all[p]), before[p]) << to_string(all[p]);
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
    MlpConfig config = small_network(all);
    config.optimizer = GetParam().optimizer;
    config.gradient_type = GetParam().gradient_type;
    config.learning_rate = 0.01;
    config.keeps_states = true;
    return make(config);
  }
  /// Each in the precision that is its turn.
  void steps(MlpTrainer& trainer, std::int64_t first, std::int64_t end) {
    for (std::int64_t i = first; i < end; ++i) {
      ASSERT_TRUE(trainer.set_precision(all[static_cast<std::size_t>(i) % all.size()]).ok());
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
    ASSERT_TRUE(checked->set_precision(all[turn % all.size()]).ok());
    ASSERT_TRUE(checked->enqueue_step(i, {}, false).ok());
    // In line right behind the step, which is still under way; in another precision than the next step's.
    ASSERT_TRUE(checked->enqueue_replay(all[turn * 3 % all.size()], answers.as<Digest>()).ok());
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
  steps(*trainer, 3, 5);  // the last one's updates would come with the next
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

TEST_F(Trainer, APassThatIsTamperedWithChangesTheTrainingToo) {
  MlpConfig config = small_network({Precision::fp32});
  config.learning_rate = 0.01;
  auto clean = make(config), struck = make(config);
  struck->set_tampering({{{TensorKind::weight_gradient, 1}, {.first = 2, .mask = 1u << 22}}});
  step(*clean, 0);
  step(*struck, 0);
  const auto expected = test::state_digests(*device, *communicator, *clean).at(0);
  const auto actual = test::state_digests(*device, *communicator, *struck).at(0);
  const std::size_t layers = clean->layout().layers().size();
  for (std::size_t q = 0; q < expected.size(); ++q)
    EXPECT_EQ(actual[q] != expected[q], q % layers == 1) << "the layer's weights and momentum: " << q;
}

TEST_F(Trainer, VotesAndTimesComeBack) {
  auto trainer = make(small_network({Precision::fp32}));
  ASSERT_TRUE(trainer->enqueue_step(0, {.vote = 3.0f}, true).ok());
  auto result = trainer->retire_step(0, timeout_s);
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result.value().notes.vote, 3.0f);
  EXPECT_FALSE(result.value().step_ms.has_value());
  auto times = trainer->measured_times();
  ASSERT_TRUE(times.ok());
  EXPECT_GT(times.value().activation_ms, 0);
  EXPECT_GT(step(*trainer, 1).step_ms.value_or(0), 0);
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

TEST_F(Trainer, AnUnsupportedPrecisionIsRefusedWithItsReason) {
  auto trainer = MlpTrainer::create(*device, *communicator, small_network({Precision::fp8}));
  ASSERT_FALSE(trainer.ok());
  EXPECT_EQ(trainer.status().code(), StatusCode::unsupported);
  EXPECT_NE(trainer.status().what().find("fp8"), std::string::npos);
}

}  // namespace
}  // namespace egt
