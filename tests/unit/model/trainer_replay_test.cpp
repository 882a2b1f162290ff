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
std::vector<TensorFault> element_lost(const PassTensor& tensor, ElementType type, Lost lost) {
  constexpr std::uint64_t element = 3;
  const auto word = [&](std::uint64_t index, std::uint32_t keep, std::uint32_t bits) {
    return TensorFault{tensor, {.first = index, .keep = keep, .mask = bits}};
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
    default:
      return {};
  }
}

/// True if `later`, in order of computation, depends on `earlier`, directly or not.
bool is_made_from(const PassTensor& later, const PassTensor& earlier) {
  if (earlier.kind == TensorKind::weight_gradient) return false;  // no other tensor of the pass depends on it
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
    if (GetParam().precision == Precision::fp8) {            // supports multiples of 16 only
      config.neurons = {16, 32, 48, 16};
      config.batch = {.global = 16, .first = 0, .local = 16};
    }
    config.gradient_type = GetParam().gradient_type;
    config.extreme_iterations = GetParam().extreme_iterations;
    trainer = make(config);
    tensors = trainer->replay_tensors();
    clean = digests();
  }
  /// True for a GEMM with fused bias and ReLU; then only the activation has a digest.
  bool is_fused(std::size_t q) const { return clean[q] == Digest(); }
  std::vector<Digest> digests() { return replay(*device, *trainer, GetParam().precision); }

  std::unique_ptr<MlpTrainer> trainer;
  std::vector<PassTensor> tensors;
  std::vector<Digest> clean;
};

TEST_P(ReplayShows, ThatNothingWasLostWhenItIsRepeated) {
  EXPECT_EQ(digests(), clean);
}

/// Element 3 is in row 0. A mask can set an infinite gradient to 0. Hence for tensors before a mask each
/// element of row 0 is set, and some of them pass.
TEST_P(ReplayShows, ANanOrAnInfinityInAnyTensorAndInAllThatIsMadeFromIt) {
  for (std::size_t struck = 0; struck < tensors.size(); ++struck) {
    const PassTensor& tensor = tensors[struck];
    const ElementType type = tensor.kind == TensorKind::weight_gradient
                                 ? GetParam().gradient_type
                                 : activation_type(GetParam().precision);
    for (const Lost lost : {Lost::nan, Lost::infinity}) {
      SCOPED_TRACE(to_string(tensor) + (lost == Lost::nan ? ": NaN" : ": infinity"));
      std::vector<TensorFault> tensor_faults = element_lost(tensor, type, lost);
      if (tensor.kind == TensorKind::input_product && lost == Lost::infinity)
        for (TensorFault& one : tensor_faults) {
          one.flip.count = 6;
          one.flip.stride = size_of(type) == 8 ? 2 : 1;
        }
      trainer->set_tensor_faults(tensor_faults);
      const std::vector<Digest> actual = digests();
      // A chain changes its activation little, so fp8 and fp16 may round the change away.
      const bool is_short = GetParam().precision == Precision::fp8 || GetParam().precision == Precision::fp16;
      const bool is_small = is_short && tensor.kind == TensorKind::extreme;
      for (std::size_t q = 0; q < (is_small ? struck + 2 : tensors.size()); ++q) {
        const bool shows = !is_fused(q) && (q == struck || (q > struck && is_made_from(tensors[q], tensor)));
        EXPECT_EQ(actual[q] != clean[q], shows) << to_string(tensors[q]);
      }
    }
  }
  trainer->set_tensor_faults({});
  EXPECT_EQ(digests(), clean);
}

/// The smallest change of a single bit.
TEST_P(ReplayShows, TheLowestBitOfAnyTensor) {
  for (std::size_t struck = 0; struck < tensors.size(); ++struck) {
    SCOPED_TRACE(to_string(tensors[struck]));
    trainer->set_tensor_faults({{tensors[struck], {.first = 6, .mask = 1}}});
    const std::vector<Digest> actual = digests();
    for (std::size_t q = 0; q < struck; ++q) EXPECT_EQ(actual[q], clean[q]) << to_string(tensors[q]);
    const std::size_t shown = is_fused(struck) ? struck + 1 : struck;
    EXPECT_NE(actual[shown], clean[shown]);
  }
}

std::vector<Epilogue> all_epilogues() {
  std::vector<Epilogue> epilogues;
  std::vector<Precision> precisions = all_precisions;
  precisions.push_back(Precision::fp8);
  for (const Precision precision : precisions)
    for (const ElementType gradient : {ElementType::f32, ElementType::bf16})
      for (const int iterations : {0, 2}) epilogues.push_back({precision, gradient, iterations});
  return epilogues;
}
INSTANTIATE_TEST_SUITE_P(Epilogues, ReplayShows, ::testing::ValuesIn(all_epilogues()));

TEST_F(Trainer, ReplaysDoNotDependOnHowFarTrainingIs) {
  MlpConfig config = small_network(all_precisions);
  config.learning_rate = 0.01;
  auto trainer = make(config);
  std::vector<std::vector<Digest>> before;
  for (const Precision precision : all_precisions) before.push_back(replay(*device, *trainer, precision));
  for (std::int64_t i = 0; i < 5; ++i) step(*trainer, i);
  for (std::size_t p = 0; p < all_precisions.size(); ++p)
    EXPECT_EQ(replay(*device, *trainer, all_precisions[p]), before[p]) << to_string(all_precisions[p]);
}

TEST_F(Trainer, APassThatIsTamperedWithChangesTheTrainingToo) {
  MlpConfig config = small_network({Precision::fp32});
  config.learning_rate = 0.01;
  auto clean = make(config), struck = make(config);
  struck->set_tensor_faults({{{TensorKind::weight_gradient, 1}, {.first = 2, .mask = 1u << 22}}});
  step(*clean, 0);
  step(*struck, 0);
  const auto expected = test::state_digests(*device, *communicator, *clean).at(0);
  const auto actual = test::state_digests(*device, *communicator, *struck).at(0);
  const std::size_t layers = clean->layout().layers().size();
  for (std::size_t q = 0; q < expected.size(); ++q)
    EXPECT_EQ(actual[q] != expected[q], q % layers == 1) << "the layer's weights and momentum: " << q;
}

}  // namespace
}  // namespace egt::test
