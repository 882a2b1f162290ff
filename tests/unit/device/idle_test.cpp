#include <array>
#include <cstring>

#include <gtest/gtest.h>

#include "device/injection/injecting_device.hpp"
#include "tests/support/workload_fixture.hpp"

namespace egt::test {
namespace {

constexpr std::int64_t n = 8;
constexpr double timeout_s = 20;

class Idle : public ::testing::Test {
 protected:
  void SetUp() override {
    device_ = std::make_unique<InjectingDevice>(small_host_device());
    stream_ = std::move(device_->create_stream(StreamPriority::normal, StreamUse::all).value());
    for (Buffer* buffer : {&a_, &b_, &c_})
      *buffer = std::move(device_->allocate(n * n * sizeof(float)).value());
    for (Buffer* buffer : {&a_, &b_, &c_}) fill(*buffer, 2.0f);
  }
  static void fill(const Buffer& buffer, float value) { std::fill_n(buffer.as<float>(), n * n, value); }
  void settle() { ASSERT_TRUE(device_->synchronize(*stream_, timeout_s).ok()); }
  static MatrixView matrix(const Buffer& buffer) { return {buffer.data(), ElementType::f32, n, n}; }
  static VectorView vector(const Buffer& buffer) { return {buffer.data(), ElementType::f32, n * n}; }
  static WordsView words(const Buffer& buffer) { return {buffer.as<std::uint32_t>(), n * n}; }

  /// One operation of each compute kind, all into c, from a and b, which are 2.
  void compute() {
    ASSERT_TRUE(device_->gemm({.a = matrix(a_), .b = matrix(b_), .d = matrix(c_)}, *stream_).ok());
    settle();
    product_ = c_.as<float>()[0];
    ASSERT_TRUE(device_->randomize(vector(c_), {.seed = 1}, *stream_).ok());
    settle();
    random_ = c_.as<float>()[0];
    fill(c_, 2.0f);
    ASSERT_TRUE(
        device_->sgd_step({c_.as<float>(), vector(a_), {}, n * n}, nullptr, {0.25f, 0.0f, 1.0f}, *stream_)
            .ok());
    settle();
    weight_ = c_.as<float>()[0];
    fill(c_, -2.0f);
    ASSERT_TRUE(device_->activate(matrix(c_), b_.as<float>(), {}, *stream_).ok());
    settle();
    activation_ = c_.as<float>()[0];
  }

  std::unique_ptr<InjectingDevice> device_;
  Buffer a_, b_, c_;
  float product_ = 0, random_ = 0, weight_ = 0, activation_ = 0;
  std::unique_ptr<Stream> stream_;
};

TEST_F(Idle, ComputesUntilItIsMadeIdle) {
  compute();
  EXPECT_EQ(product_, 4.0f * n);
  EXPECT_NE(random_, 4.0f * n);
  EXPECT_EQ(weight_, 1.5f);
  EXPECT_EQ(activation_, 0.0f);
}

TEST_F(Idle, ThenLeavesEveryResultAsItWas) {
  device_->make_idle();
  compute();
  EXPECT_EQ(product_, 2.0f);
  EXPECT_EQ(random_, 2.0f);
  EXPECT_EQ(weight_, 2.0f);
  EXPECT_EQ(activation_, -2.0f);
}

TEST_F(Idle, StillHoldsCopiesAndChecksMemory) {
  device_->make_idle();
  const Pattern pattern{.kind = PatternKind::random, .seed = 5};
  Buffer report = std::move(device_->allocate(sizeof(Mismatches)).value());
  ASSERT_TRUE(device_->fill(words(a_), pattern, *stream_).ok());
  ASSERT_TRUE(device_->copy(b_.data(), a_.data(), a_.bytes(), *stream_).ok());
  ASSERT_TRUE(device_->flip(words(b_), {.first = 3}, *stream_).ok());
  ASSERT_TRUE(device_->reset(report.as<Mismatches>(), *stream_).ok());
  ASSERT_TRUE(device_->verify(words(b_), pattern, report.as<Mismatches>(), *stream_).ok());
  settle();
  EXPECT_EQ(report.as<Mismatches>()->count, 1u);
  EXPECT_EQ(report.as<Mismatches>()->first_index, 3u);
}

TEST(InjectedDeviceError, FailsAtItsCallAndAtEveryLaterOne) {
  InjectingDevice device(small_host_device());
  int strikes = 0;
  device.fail_at(3, [&] { ++strikes; });
  device.fail_at(1, [] { FAIL() << "only the first one counts"; });
  EXPECT_TRUE(device.memory().ok());
  EXPECT_TRUE(device.create_event(EventUse::order).ok());
  EXPECT_EQ(strikes, 0);
  const Status failed = device.allocate(64).status();
  EXPECT_EQ(failed.code(), StatusCode::device_error);
  EXPECT_EQ(failed.native(), 214);
  EXPECT_NE(failed.what().find("cudaErrorECCUncorrectable"), std::string::npos);
  EXPECT_EQ(device.memory().status().code(), StatusCode::device_error);
  EXPECT_EQ(device.create_stream(StreamPriority::normal, StreamUse::all).status().code(),
            StatusCode::device_error);
  EXPECT_EQ(strikes, 1);
}

}  // namespace
}  // namespace egt::test
