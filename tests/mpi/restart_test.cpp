#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "device/host/host_device.hpp"
#include "device/host/host_stream.hpp"
#include "egt/core/clock.hpp"
#include "egt/core/wait.hpp"
#include "mpi_test.hpp"
#include "ranks/mpi/mpi_communicator.hpp"
#include "ranks/mpi/mpi_control.hpp"
#include "ranks/restartable_communicator.hpp"

namespace egt::test {
namespace {

constexpr std::size_t count = 500'000;
constexpr double collective_timeout_s = 3600;  // exceeds the time limit of a test

class RestartOnRanks : public testing::Test {
 protected:
  void SetUp() override {
    auto opened = open_mpi_communicator(mpi_session(), collective_timeout_s);
    ASSERT_OK(opened.status());
    communicator = std::make_unique<RestartableCommunicator>(std::move(opened.value()));
    auto opened_device = open_host_device_of_rank();
    ASSERT_OK(opened_device.status());
    device = std::move(opened_device.value());
    auto made = device->create_stream(StreamPriority::normal);
    ASSERT_OK(made.status());
    stream = std::move(made.value());
  }

  bool is_last() const { return communicator->rank() == communicator->size() - 1; }

  /// Sums ones over all ranks; returns the value of every element.
  Result<float> sum() {
    std::vector<float> ones(count, 1.0f);
    EGT_TRY(communicator->all_reduce(ones.data(), ones.size(), ElementType::f32, *stream));
    EGT_TRY(device->synchronize(*stream, timeout_s));
    for (const float one : ones)
      if (one != ones[0]) return Status(StatusCode::internal, "unlike elements");
    return ones[0];
  }

  Status restart() {
    communicator->abort();
    EGT_TRY(device->forget_failure(*stream, timeout_s));
    EGT_TRY_ASSIGN(auto opened, open_mpi_communicator(mpi_session(), collective_timeout_s));
    communicator->replace(std::move(opened));
    return {};
  }

  std::unique_ptr<RestartableCommunicator> communicator;
  std::unique_ptr<Device> device;
  std::unique_ptr<Stream> stream;
  std::vector<float> given_up = std::vector<float>(count);  // see mpi_communicator.hpp: until MPI ends
};

TEST_F(RestartOnRanks, ACollectiveThatOneRankDoesNotComeToIsGivenUpAndTheNextCommunicatorWorks) {
  for (int restarts = 0; restarts < 3; ++restarts) {
    if (!is_last())
      ASSERT_OK(communicator->all_reduce(given_up.data(), given_up.size(), ElementType::f32, *stream));
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    communicator->interrupt();
    EXPECT_EQ(communicator->check().code(), StatusCode::aborted);
    EXPECT_EQ(communicator->broadcast(given_up.data(), 4, 0, *stream).code(), StatusCode::aborted);
    ASSERT_OK(restart());
    const Result<float> summed = sum();
    ASSERT_OK(summed.status());
    EXPECT_EQ(summed.value(), static_cast<float>(communicator->size()));
  }
}

TEST_F(RestartOnRanks, WhatWasSplitIsGivenUpWithItAndSplitAnew) {
  static std::vector<float> left(count);  // allocated until MPI is finalized
  for (int restarts = 0; restarts < 2; ++restarts) {
    auto split = communicator->split(0);
    ASSERT_OK(split.status());
    const Message incoming{left.data(), left.size() * sizeof(float), communicator->size() - 1};
    if (!is_last()) ASSERT_OK(split.value()->exchange({}, {&incoming, 1}, *stream));
    communicator->interrupt();
    EXPECT_EQ(split.value()->check().code(), StatusCode::aborted);
    EXPECT_EQ(split.value()->broadcast(left.data(), 4, 0, *stream).code(), StatusCode::aborted);
    EXPECT_EQ(communicator->split(0).status().code(), StatusCode::aborted);
    ASSERT_OK(restart());  // its drain waits for the end of the exchange
    EXPECT_EQ(split.value()->check().code(), StatusCode::aborted) << "the new one has not made it whole";
    const Result<float> summed = sum();
    ASSERT_OK(summed.status());
    EXPECT_EQ(summed.value(), static_cast<float>(communicator->size()));
  }
}

TEST_F(RestartOnRanks, AnInterruptFromAnotherThreadEndsTheWaitOfThisOne) {
  std::thread other([this] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    communicator->interrupt();
  });
  const Status ended = wait_until(
      [this]() -> Result<bool> {
        EGT_TRY(communicator->check());
        return false;
      },
      {.seconds = timeout_s, .what = "an interrupt"});
  other.join();
  EXPECT_EQ(ended.code(), StatusCode::aborted);
  ASSERT_OK(restart());
  EXPECT_TRUE(sum().ok());
}

}  // namespace
}  // namespace egt::test
