#include "session/health/pulse.hpp"

#include <chrono>
#include <thread>
#include <utility>

#include <gtest/gtest.h>

#include "tests/support/workload_fixture.hpp"

namespace egt::test {
namespace {

TEST(PulsePhase, IsHighForTheDutyOfEachPeriod) {
  const PulseShape shape{.hertz = 2, .duty = 0.3};  // 0.15 s of 0.5 s
  const auto at = [&](double seconds) { return phase_at(shape, seconds); };
  EXPECT_TRUE(at(0).is_high);
  EXPECT_NEAR(at(0).until_edge, 0.15, 1e-12);
  EXPECT_TRUE(at(0.1).is_high);
  EXPECT_NEAR(at(0.1).since_edge, 0.1, 1e-12);
  EXPECT_FALSE(at(0.151).is_high);
  EXPECT_NEAR(at(0.4).since_edge, 0.25, 1e-12);
  EXPECT_NEAR(at(0.4).until_edge, 0.1, 1e-12);
  EXPECT_TRUE(at(1000.6).is_high) << "a high part every half a second";
  EXPECT_FALSE(at(1000.7).is_high);
}

/// Runs short operations in sequence.
class Worker {
 public:
  explicit Worker(Device& device)
      : device_(device),
        memory_(std::move(device.allocate(1 << 20).value())),
        stream_(std::move(device.create_stream(StreamPriority::normal).value())) {}
  /// Runs for `seconds`; returns the number of operations that took longer than `long_s`, and of all.
  std::pair<int, int> work(double seconds, double long_s) {
    std::pair<int, int> operations;
    for (const auto begun = Clock::now(); seconds_since(begun) < seconds; ++operations.second) {
      const auto operation = Clock::now();
      EXPECT_TRUE(device_.set_zero(memory_.data(), memory_.bytes(), *stream_).ok());
      EXPECT_TRUE(device_.synchronize(*stream_, 30).ok());
      operations.first += seconds_since(operation) > long_s;
    }
    return operations;
  }

 private:
  Device& device_;
  Buffer memory_;
  std::unique_ptr<Stream> stream_;
};

TEST(Pulse, HoldsTheDeviceInItsLowParts) {
  const auto device = small_host_device();
  ASSERT_TRUE(device->allow_holds().ok());
  Worker worker(*device);
  auto pulse = Pulse::create(*device, {.hertz = 5, .duty = 0.25, .warm_up_seconds = 0.3}, Clock::now(),
                             1e-4);  // low for 0.15 s
  ASSERT_TRUE(pulse.ok());
  EXPECT_TRUE(pulse.value()->figures()["late_ms"].is_null()) << "nothing rose yet";
  ASSERT_TRUE(pulse.value()->start().ok());
  EXPECT_EQ(worker.work(0.25, 0.1).first, 0) << "nothing is held yet";
  const auto [held, all] = worker.work(2, 0.1);
  EXPECT_GE(held, 5) << "one in each low part";
  EXPECT_LE(held, 10);
  EXPECT_GT(all, 2 * held) << "in the high parts they are not held";
  const Json figures = pulse.value()->figures();
  EXPECT_EQ(figures["hertz"], 5.0);
  EXPECT_EQ(figures["duty"], 0.25);
  EXPECT_GE(figures["rises"], 5);
  EXPECT_LE(figures["rises"], 12);
  EXPECT_GT(figures["late_ms"]["max"], 0.0);
  EXPECT_NEAR(figures["clock_error_ms"].get<double>(), 0.1, 1e-9);
  pulse.value().reset();
  EXPECT_LT(worker.work(0.5, 0.1).first, 3) << "its end lets go";
}

/// Its caller returns from a low phase only after the next rise.
class SlowHold : public ForwardingDevice {
 public:
  SlowHold() : ForwardingDevice(small_host_device()) {}
  void hold(bool is_held) override {
    ForwardingDevice::hold(is_held);
    if (is_held) std::this_thread::sleep_for(std::chrono::milliseconds(160));
  }
};

TEST(Pulse, ARiseThatItComesTooLateForIsMadeGood) {
  SlowHold device;
  ASSERT_TRUE(device.allow_holds().ok());
  Worker worker(device);
  const auto pulse = Pulse::create(device, {.hertz = 5, .duty = 0.25, .warm_up_seconds = 0}, Clock::now(), 0);
  ASSERT_TRUE(pulse.ok());
  ASSERT_TRUE(pulse.value()->start().ok());
  EXPECT_GT(worker.work(2, 0.1).second, 20) << "it works in the high parts";
}

TEST(Pulse, PowerIsReadInTheLaterHalfOfAPartAndOnlyWhereSensorsAreFastEnough) {
  const auto device = small_host_device();
  ASSERT_TRUE(device->allow_holds().ok());
  const auto part_at = [&](double hertz, double phase) {
    const auto since = std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(phase));
    auto pulse = std::move(
        Pulse::create(*device, {.hertz = hertz, .duty = 0.5, .warm_up_seconds = 0}, Clock::now() - since, 0)
            .value());
    EXPECT_FALSE(pulse->settled_part()) << "not begun";
    EXPECT_TRUE(pulse->start().ok());
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    return pulse->settled_part();
  };
  EXPECT_EQ(part_at(0.2, 0.5), std::nullopt) << "the beginning of 2.5 s of full load";
  EXPECT_EQ(part_at(0.2, 1.5), true);
  EXPECT_EQ(part_at(0.2, 3), std::nullopt);
  EXPECT_EQ(part_at(0.2, 4.2), false);
  EXPECT_EQ(part_at(5, 0.06), std::nullopt) << "faster than a sensor";
}

}  // namespace
}  // namespace egt::test
