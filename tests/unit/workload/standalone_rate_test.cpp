#include "workload/common/standalone_rate.hpp"

#include <utility>

#include <gtest/gtest.h>

#include "tests/support/changed_device.hpp"
#include "tests/support/workload_fixture.hpp"

namespace egt::test {
namespace {

TEST(AloneRate, IsOfOneOperationAfterTheOther) {
  const auto device = small_host_device();
  auto stream = std::move(device->create_stream(StreamPriority::normal).value());
  Buffer words = std::move(device->allocate(4 << 20).value());
  int enqueued = 0;
  const auto begun = Clock::now();
  const auto rate = rate_alone(*device, *stream, 4 << 20, [&] {
    ++enqueued;
    return device->set_zero(words.data(), words.bytes(), *stream);
  });
  ASSERT_TRUE(rate.ok()) << rate.status().what();
  // The fastest of some windows is at least as fast as the mean over all.
  EXPECT_GE(rate.value(), enqueued / 3.0 * (4 << 20) / seconds_since(begun));
  EXPECT_GE(enqueued, 2) << "the first is not timed";
}

/// Its timed windows last the listed milliseconds; the last value repeats.
class TimedDevice : public ForwardingDevice {
 public:
  explicit TimedDevice(std::vector<double> ms) : ForwardingDevice(small_host_device()), ms_(std::move(ms)) {}
  Result<double> elapsed_ms(const Event&, const Event&) override {
    return ms_[std::min(window_++, ms_.size() - 1)];
  }

 private:
  const std::vector<double> ms_;
  std::size_t window_ = 0;
};

TEST(AloneRate, IsOfTheFastestWindow) {
  // First window: the host thread lost its core for 40 ms. Second window: low clocks.
  for (const std::vector<double>& ms : {std::vector{40.0, 8.0, 4.0, 5.0}, {8.0, 8.0, 8.0, 8.0, 4.0}}) {
    TimedDevice device(ms);
    auto stream = std::move(device.create_stream(StreamPriority::normal, StreamUse::all).value());
    const auto rate = rate_alone(device, *stream, 1000, [] { return Status(); });
    ASSERT_TRUE(rate.ok());
    EXPECT_DOUBLE_EQ(rate.value(), 1000 / 4e-3);
  }
}

TEST(AloneRate, ReadingIsOfAllBytes) {
  const auto device = small_host_device();
  auto stream = std::move(device->create_stream(StreamPriority::normal).value());
  Buffer words = std::move(device->allocate(4 << 20).value());
  const auto begun = Clock::now();
  const auto rate = read_rate_alone(*device, *stream, {words.as<std::uint32_t>(), 1 << 20});
  ASSERT_TRUE(rate.ok()) << rate.status().what();
  EXPECT_GE(rate.value(), (4 << 20) / seconds_since(begun));
  EXPECT_LT(rate.value(), 1e13);
}

TEST(AloneRate, ProductsGrowAsLongAsTheyAreShort) {
  std::int64_t largest_rows = 0;
  const auto real = changed<Gemm>(small_host_device(), [&](const Gemm& call, const Enqueue& enqueue) {
    largest_rows = std::max(largest_rows, call.d.rows);
    return enqueue(call);
  });
  Device& device = *real;
  auto stream = std::move(device.create_stream(StreamPriority::normal, StreamUse::all).value());
  for (const Precision precision : {Precision::fp32, Precision::bf16}) {
    const auto rate = product_rate_alone(device, *stream, precision);
    ASSERT_TRUE(rate.ok()) << rate.status().what();
    EXPECT_GT(rate.value(), 1e7);
    EXPECT_LT(rate.value(), 1e15);
  }
  EXPECT_GE(largest_rows, 256);
  EXPECT_LE(3 * 4 * largest_rows * largest_rows, test_memory_bytes / 64 + 3 * 4 * 256 * 256);
}

TEST(AloneRate, OfTheExtremeTermsChains) {
  const auto device = small_host_device();
  auto stream = std::move(device->create_stream(StreamPriority::normal).value());
  const auto few = extreme_rate_alone(*device, *stream, 2), many = extreme_rate_alone(*device, *stream, 40);
  ASSERT_TRUE(few.ok() && many.ok());
  EXPECT_GT(few.value(), 1e5);
  EXPECT_GT(many.value(), 1e5);
  EXPECT_LT(many.value(), 1e12);
}

/// Computes this many chains concurrently, one iteration per nanosecond; further chains wait.
class WideDevice : public ForwardingDevice {
 public:
  WideDevice() : ForwardingDevice(small_host_device()) {}
  virtual double operation_ms(std::int64_t count, int iterations) {
    return static_cast<double>((count + chains - 1) / chains) * iterations * 1e-6;
  }
  double all_ms() const { return ms_; }
  Status record(Event& event, Stream& stream) override {
    begun_ = std::exchange(ended_, ms_);
    return ForwardingDevice::record(event, stream);
  }
  Result<double> elapsed_ms(const Event&, const Event&) override { return ended_ - begun_; }

  static constexpr std::int64_t chains = 1 << 18;

 protected:
  Status enqueue_checked(const Operation& operation, Stream& stream) override {
    const auto* const call = std::get_if<Activation>(&operation);
    if (call == nullptr) return ForwardingDevice::enqueue_checked(operation, stream);
    ms_ += operation_ms(call->h.count(), call->extreme.iterations);
    return {};
  }

 private:
  double ms_ = 0, begun_ = 0, ended_ = 0;
};

TEST(AloneRate, LongChainsFillTheDeviceToo) {
  for (const int iterations : {200, 2000, 200000}) {
    WideDevice device;
    auto stream = std::move(device.create_stream(StreamPriority::normal, StreamUse::all).value());
    const auto rate = extreme_rate_alone(device, *stream, iterations);
    ASSERT_TRUE(rate.ok()) << rate.status().what();
    EXPECT_NEAR(rate.value() / (WideDevice::chains * 1e9), 1, 1e-6) << iterations;
  }
}

/// Appears a fifth faster with each measurement.
class BusyDevice : public WideDevice {
 public:
  double operation_ms(std::int64_t count, int iterations) override {
    if (count != std::exchange(last_, count)) turns_per_ms_ *= 1.2;
    return static_cast<double>(count) * iterations / turns_per_ms_;
  }

 private:
  std::int64_t last_ = 0;
  double turns_per_ms_ = 1e4;
};

TEST(AloneRate, NoiseThatLooksLikeGrowthDoesNotTakeLong) {
  BusyDevice device;
  auto stream = std::move(device.create_stream(StreamPriority::normal, StreamUse::all).value());
  ASSERT_TRUE(extreme_rate_alone(device, *stream, 40).ok());
  EXPECT_LT(device.all_ms(), 5000);
}

TEST(AloneRate, AFailureIsRelayed) {
  const auto device = small_host_device();
  auto stream = std::move(device->create_stream(StreamPriority::normal).value());
  const auto rate = rate_alone(*device, *stream, 1, [] { return Status(StatusCode::aborted, "gone"); });
  EXPECT_EQ(rate.status().code(), StatusCode::aborted);
}

}  // namespace
}  // namespace egt::test
