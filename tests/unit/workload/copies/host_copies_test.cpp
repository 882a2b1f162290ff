#include <algorithm>
#include <atomic>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/memory_fixture.hpp"
#include "tests/support/workload_fixture.hpp"
#include "workload/copies/host_copies_workload.hpp"

namespace egt {
namespace {

using test::eventually;
using test::figure;
using test::ForwardingDevice;
using test::injections_of;
using test::small_host_device;
using test::World;
using ::testing::HasSubstr;

constexpr std::uint64_t chunk_bytes = test::test_memory_bytes / 512, trips_of_round = 4;

TEST(HostCopies, VerifiesAllThatComesBack) {
  World world;
  HostCopiesWorkload copies(world.environment);
  ASSERT_TRUE(copies.prepare().ok());
  EXPECT_EQ(figure(copies, "chunk_bytes"), chunk_bytes);
  ASSERT_TRUE(copies.start().ok());
  ASSERT_TRUE(eventually([&] { return figure(copies, "copies") >= 2 * trips_of_round; }));
  ASSERT_TRUE(copies.finish(false).ok());
  EXPECT_TRUE(world.faults().empty());
  const PartReport report = copies.report();
  EXPECT_TRUE(report.success) << report.failure;
  const std::uint64_t bytes = figure(copies, "copies") * chunk_bytes;
  EXPECT_EQ(report.figures["bytes_each_way"], bytes);
  EXPECT_EQ(report.work.bytes_exchanged_verified, bytes);
  const auto rate = report.load.alone["host_copy_gb_per_s"].get<double>();
  EXPECT_DOUBLE_EQ(report.load.host_copies.value(), static_cast<double>(bytes) / (rate * 1e9));
  EXPECT_GT(report.figures["gb_per_s_each_way"].get<double>(), 0);
}

TEST(HostCopies, MakesARoundAtTheEndOfAnyRun) {
  World world;
  HostCopiesWorkload copies(world.environment);
  ASSERT_TRUE(copies.prepare().ok());
  EXPECT_TRUE(copies.report().figures["planned"].get<bool>());
  ASSERT_TRUE(copies.finish(false).ok());
  EXPECT_EQ(figure(copies, "copies"), trips_of_round);
}

/// Omits one of the chunk copies, counted from when it is enabled.
class ForgetfulDevice : public ForwardingDevice {
 public:
  ForgetfulDevice() : ForwardingDevice(small_host_device()) {}
  void forget(int which) { left_ = which; }

 protected:
  Status enqueue_checked(const Operation& operation, Stream& stream) override {
    const auto* const copy = std::get_if<Copy>(&operation);
    if (copy && copy->bytes == chunk_bytes && left_ >= 0 && left_-- == 0) return {};
    return ForwardingDevice::enqueue_checked(operation, stream);
  }

 private:
  std::atomic<int> left_{-1};
};

/// The first and the last transfer of a round, in both directions.
class LostCopy : public testing::TestWithParam<int> {};

TEST_P(LostCopy, IsAFaultOfThisRank) {
  auto device = std::make_unique<ForgetfulDevice>();
  ForgetfulDevice& forgetful = *device;
  World world(std::move(device));
  HostCopiesWorkload copies(world.environment);
  ASSERT_TRUE(copies.prepare().ok());
  forgetful.forget(GetParam());
  ASSERT_TRUE(copies.finish(false).ok());
  const std::vector<Json> faults = world.faults();
  ASSERT_EQ(faults.size(), 1u);
  EXPECT_EQ(faults[0]["kind"], "link");
  EXPECT_EQ(faults[0]["part"], "host-copies");
  EXPECT_EQ(faults[0]["rank"], 3);
  EXPECT_EQ(faults[0]["blame"], "certain");
  EXPECT_THAT(faults[0]["where"].get<std::string>(),
              HasSubstr(GetParam() % 2 == 0 ? "to the host" : "to the device"));
  EXPECT_GT(faults[0]["count"].get<std::uint64_t>(), chunk_bytes / 4 - 16)
      << "words that are equal by chance";
  EXPECT_FALSE(copies.report().success);
  EXPECT_LE(copies.report().work.bytes_exchanged_verified, 3 * chunk_bytes + 64);
}

INSTANTIATE_TEST_SUITE_P(Copies, LostCopy, testing::Values(0, 1, 6, 7));

TEST(HostCopies, TellAFaultOnPurposeOnce) {
  World world(small_host_device(), injections_of({"host-copy:rank=3,step=7,bit=5"}));
  HostCopiesWorkload copies(world.environment);
  ASSERT_TRUE(copies.prepare().ok());
  ASSERT_TRUE(copies.start().ok());
  ASSERT_TRUE(eventually([&] { return figure(copies, "copies") >= trips_of_round; }));
  EXPECT_TRUE(world.faults().empty()) << "it is not due";
  ASSERT_TRUE(copies.enqueue({.index = 7}).ok());
  ASSERT_TRUE(eventually([&] { return figure(copies, "mismatches") > 0; }));
  ASSERT_TRUE(copies.finish(false).ok());
  const std::vector<Json> faults = world.faults();
  ASSERT_EQ(faults.size(), 1u);
  EXPECT_EQ(faults[0]["step"], 7);
  EXPECT_EQ(faults[0]["xor"], "0x00000020");
  EXPECT_EQ(faults[0]["count"], 1);
  EXPECT_EQ(faults[0]["where"],
            "what went between rank 3's device and its host, a copy of 524288 B, to the device: right in "
            "host memory");
  EXPECT_THAT(copies.report().failure, HasSubstr("1 wrong word in host copies"));
}

TEST(HostCopies, AFaultOfTheCopyToTheHostIsSeenInHostMemory) {
  for (const int count : {1, 3}) {
    World world(small_host_device(),
                injections_of({fmt::format("host-copy:rank=3,step=7,bit=5,layer=2,count={}", count)}));
    HostCopiesWorkload copies(world.environment);
    ASSERT_TRUE(copies.prepare().ok());
    ASSERT_TRUE(copies.enqueue({.index = 7}).ok());
    ASSERT_TRUE(copies.finish(false).ok());
    const std::vector<Json> faults = world.faults();
    ASSERT_EQ(faults.size(), 1u) << "the source has its bits back";
    EXPECT_EQ(faults[0]["count"], count);
    EXPECT_EQ(faults[0]["xor"], "0x00000020");
    EXPECT_THAT(faults[0]["where"].get<std::string>(),
                HasSubstr(fmt::format("to the host, or in host memory: wrong there ({})",
                                      faults[0]["actual"].get<std::string>())));
  }
}

/// Starts at least one round's time after the last one.
void keeps_to_its_pace(double duty, std::uint64_t rounds) {
  World world;
  world.load.set_duty(duty);
  HostCopiesWorkload copies(world.environment);
  ASSERT_TRUE(copies.prepare().ok());
  const Json alone = copies.report().load.alone, figures = copies.report().figures;
  const double rate = figures["pace"].get<double>() * alone["host_copy_gb_per_s"].get<double>() * 1e9;
  const double round = std::min(static_cast<double>(trips_of_round * chunk_bytes) / rate, 0.5) / duty;
  const Clock::time_point begin = Clock::now();
  ASSERT_TRUE(copies.start().ok());
  ASSERT_TRUE(eventually([&] { return figure(copies, "copies") > rounds * trips_of_round; }));
  EXPECT_GE(seconds_since(begin), static_cast<double>(rounds) * round);
  ASSERT_TRUE(copies.finish(false).ok());
}

TEST(HostCopies, KeepToTheirPace) {
  keeps_to_its_pace(1, 10);
}

TEST(HostCopies, KeepToTheDutyOfTheLoad) {
  keeps_to_its_pace(0.05, 2);
}

/// Reports operation times so long that a round is due every 3 hours at the min duty cycle.
class SlowCopiesDevice : public ForwardingDevice {
 public:
  SlowCopiesDevice() : ForwardingDevice(small_host_device()) {}
  Result<double> elapsed_ms(const Event&, const Event&) override { return 10'000; }
};

TEST(HostCopies, EndAtOnceWhileTheyRest) {
  for (const bool hurry : {false, true}) {
    World world(std::make_unique<SlowCopiesDevice>());
    world.load.set_duty(LoadControl::min_duty);
    HostCopiesWorkload copies(world.environment);
    ASSERT_TRUE(copies.prepare().ok());
    ASSERT_TRUE(copies.start().ok());
    ASSERT_TRUE(eventually([&] { return figure(copies, "copies") == trips_of_round; }));
    copies.stop_background();
    ASSERT_TRUE(copies.finish(hurry).ok());
    EXPECT_EQ(figure(copies, "copies"), (hurry ? 1 : 2) * trips_of_round) << "one at the end";
    EXPECT_TRUE(copies.report().success) << copies.report().failure;
  }
}

/// Its streams never complete.
class StuckDevice : public ForwardingDevice {
 public:
  StuckDevice() : ForwardingDevice(small_host_device()) {}
  Result<bool> done(const Event& event) override {
    if (is_stuck) {
      was_asked = true;
      return false;
    }
    return ForwardingDevice::done(event);
  }
  std::atomic<bool> is_stuck = false, was_asked = false;
};

TEST(HostCopies, AHurriedEndDoesNotWaitForTheDevice) {
  auto device = std::make_unique<StuckDevice>();
  StuckDevice& stuck = *device;
  World world(std::move(device));
  HostCopiesWorkload copies(world.environment);
  ASSERT_TRUE(copies.prepare().ok());
  stuck.is_stuck = true;
  ASSERT_TRUE(copies.start().ok());
  ASSERT_TRUE(eventually([&] { return stuck.was_asked.load(); }));
  ASSERT_TRUE(copies.finish(true).ok());
  EXPECT_EQ(figure(copies, "copies"), 0);
  stuck.is_stuck = false;
}

}  // namespace
}  // namespace egt
