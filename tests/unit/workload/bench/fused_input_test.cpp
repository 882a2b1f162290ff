#include <gtest/gtest.h>

#include <vector>

#include "egt/core/math/half.hpp"
#include "tests/support/workload_fixture.hpp"
#include "workload/bench/parallel/fused_input.hpp"

namespace egt::test {
namespace {

constexpr std::int64_t samples = 700, inputs = 300;  // for two robots

class FusedInputs : public ::testing::Test {
 protected:
  void SetUp() override {
    MlpConfig network;
    network.neurons = {inputs, 4};
    network.batch.global = samples;
    fused = std::move(FusedInput::create(*device, 42, network).value());
    stream = std::move(device->create_stream(StreamPriority::normal).value());
  }

  template <typename T>
  std::vector<T> read(std::uint64_t sequence, std::int64_t first, std::int64_t rows, ElementType type) {
    const auto count = static_cast<std::size_t>(rows * inputs);
    const Buffer memory = std::move(device->allocate_pinned(count * sizeof(T)).value());
    EXPECT_TRUE(fused->make(sequence, first, {memory.data(), type, rows, inputs}, *stream).ok());
    EXPECT_TRUE(device->synchronize(*stream, 10).ok());
    return {memory.as<T>(), memory.as<T>() + count};
  }
  std::vector<float> floats(std::uint64_t sequence, std::int64_t first, std::int64_t rows) {
    return read<float>(sequence, first, rows, ElementType::f32);
  }

  std::unique_ptr<Device> device = small_host_device();
  std::unique_ptr<FusedInput> fused;
  std::unique_ptr<Stream> stream;
};

TEST_F(FusedInputs, AreTheTimelinesThatMultimodalFuses) {
  const auto operation = std::move(make_multimodal(*device, 42, StreamOrigin::own, {2, 2}).value());
  const Buffer timeline = std::move(device->allocate(multimodal_input_bytes(2, StreamOrigin::own)).value());
  ASSERT_TRUE(operation->make_input(1, timeline.as<std::byte>(), *stream).ok());
  ASSERT_TRUE(operation->enqueue(1, timeline.as<std::byte>(), *stream).ok());
  ASSERT_TRUE(device->synchronize(*stream, 10).ok());
  const float* const expected = operation->outputs().front().memory->as<float>();
  EXPECT_EQ(floats(1 + 3 * BenchOperation::generations, 0, samples),
            std::vector<float>(expected, expected + samples * inputs));
  EXPECT_NE(floats(2, 0, samples), floats(1, 0, samples));
}

TEST_F(FusedInputs, OfAMicroBatchBeginAtItsFirstSample) {
  const auto all = floats(5, 0, samples);
  EXPECT_EQ(floats(5, 123, 7), std::vector<float>(all.begin() + 123 * inputs, all.begin() + 130 * inputs));
  EXPECT_NE(floats(6, 123, 7), floats(5, 123, 7)) << "of another step";
}

TEST_F(FusedInputs, AreRoundedToTheInputsType) {
  const auto all = floats(5, 0, 3);
  const auto rounded = read<Bfloat16>(5, 0, 3, ElementType::bf16);
  for (std::size_t i = 0; i < all.size(); ++i)
    EXPECT_NEAR(to_float(rounded[i]), all[i], std::abs(all[i]) / 128);
}

TEST_F(FusedInputs, AreMeasured) {
  const auto ms = fused->measure();
  ASSERT_TRUE(ms.ok());
  EXPECT_GT(ms.value(), 0);
}

}  // namespace
}  // namespace egt::test
