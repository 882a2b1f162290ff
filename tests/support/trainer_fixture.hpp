#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "device/host/host_device.hpp"
#include "model/mlp_trainer.hpp"
#include "tests/support/single_rank_communicator.hpp"

/// One rank that trains small networks on a host device.
namespace egt::test {

constexpr double timeout_s = 60;

inline const std::vector<Precision> all_precisions = {Precision::fp64, Precision::fp32, Precision::tf32,
                                                      Precision::fp16, Precision::bf16};

inline MlpConfig small_network(std::vector<Precision> precisions) {
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

}  // namespace egt::test
