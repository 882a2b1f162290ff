#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <thread>
#include <vector>

#include "tests/support/changed_device.hpp"
#include "tests/support/workload_fixture.hpp"
#include "workload/bench/bench_job.hpp"
#include "workload/common/value_exchange.hpp"

namespace egt::test {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

/// From call `first` on it changes a word of each output.
std::unique_ptr<Device> wrong_device(int& calls, int first) {
  return changed<Voxelization>(
      small_host_device(), [&calls, first](const Voxelization& call, const Enqueue& enqueue) -> Status {
        EGT_TRY(enqueue(call));
        if (calls++ < first) return {};
        return enqueue(
            FlipWords{{reinterpret_cast<std::uint32_t*>(call.features), 4}, {.first = 1, .mask = 4}});
      });
}

FeedShape alone(std::size_t bytes, std::int64_t per_delivery = 1) {
  return {.index = 0,
          .devices = 1,
          .per_delivery = per_delivery,
          .stride = aligned_input(bytes),
          .bytes = {bytes}};
}

Result<std::unique_ptr<BenchJob>> make_job(World& world, BenchWorkload workload, std::int64_t items,
                                           const std::optional<Injection>& slow = {},
                                           std::int64_t per_delivery = 1) {
  Device& device = *world.device;
  const BatchItems own{items, items};
  const bool voxels = workload == BenchWorkload::voxelize;
  EGT_TRY_ASSIGN(auto operation, voxels ? make_voxelize(device, 1, 16, own)
                                        : make_multimodal(device, 1, StreamOrigin::own, own));
  const FeedShape shape = alone(
      voxels ? voxelize_input_bytes(items) : multimodal_input_bytes(items, StreamOrigin::own), per_delivery);
  EGT_TRY_ASSIGN(auto feed,
                 make_local_feed(device, shape, [&](int generation, std::byte* input, Stream& stream) {
                   return operation->make_input(generation, input, stream);
                 }));
  return make_stream_job(world.environment, std::move(operation), std::move(feed), shape, slow);
}

TEST(BenchJob, MeasuresAndVerifiesBothOperations) {
  for (const auto workload : {BenchWorkload::voxelize, BenchWorkload::multimodal}) {
    World world;
    auto job = make_job(world, workload, workload == BenchWorkload::voxelize ? 1000 : 1);
    ASSERT_TRUE(job.ok()) << job.status().what();
    const auto answers = job.value()->answers();
    ASSERT_TRUE(answers.ok()) << answers.status().what();
    const std::size_t outputs = workload == BenchWorkload::voxelize ? voxelize_outputs : multimodal_outputs;
    EXPECT_THAT(answers.value(), SizeIs(outputs * BenchOperation::generations));
    EXPECT_NE(answers.value()[0], answers.value()[outputs]) << "batches differ";
    const auto ms = job.value()->burst(3, 4);
    ASSERT_TRUE(ms.ok()) << ms.status().what();
    ASSERT_THAT(ms.value().chunk_ms, SizeIs(3));
    for (const double chunk : ms.value().chunk_ms) EXPECT_GT(chunk, 0);
    EXPECT_GT(ms.value().busy_ms, 0);
    const auto report = job.value()->check();
    ASSERT_TRUE(report.ok()) << report.status().what();
    EXPECT_EQ(report.value().failure, "");
    EXPECT_EQ(report.value().work.outputs_verified, outputs);
    EXPECT_GT(report.value().figures.copy_ms, 0);
    EXPECT_THAT(world.faults(), IsEmpty());
  }
}

TEST(BenchJob, BatchesOfADeliveryAreAllUsed) {
  World world;
  auto job = make_job(world, BenchWorkload::voxelize, 1000, {}, 4);
  ASSERT_TRUE(job.ok());
  EXPECT_EQ(job.value()->multiple(), 4);
  ASSERT_TRUE(job.value()->answers().ok());
  ASSERT_TRUE(job.value()->burst(2, 8).ok());
  EXPECT_EQ(job.value()->check().value().failure, "");
}

// A rank blamed for a hang must be one that does not wait, so the board must show which ranks wait.

TEST(BenchJob, AloneItWaitsForNobodyAndItsClockStartsAgain) {
  World world;
  ProgressBoard::Line& line = world.board.line("main");
  line.begin("a trial", 7);
  line.wait_for_peers("a trial");
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  const Clock::time_point start = Clock::now();
  auto job = make_job(world, BenchWorkload::voxelize, 10);
  ASSERT_TRUE(job.ok());
  ASSERT_TRUE(job.value()->answers().ok());
  ASSERT_TRUE(job.value()->burst(1, 64).ok());
  const Activity activity = line.read();
  EXPECT_EQ(activity.phase, "bench: batches");
  EXPECT_EQ(activity.step, 7);
  EXPECT_FALSE(activity.waits_for_peers);
  EXPECT_LE(activity.seconds, seconds_since(start)) << "its clock began anew";
}

TEST(BenchJob, BehindAnExchangeOfFiguresNobodyIsWaitedFor) {
  World world;
  ProgressBoard::Line& line = world.board.line("main");
  ValueExchange exchange(*world.device, world.communicator, line, 10);
  ASSERT_TRUE(exchange.prepare(1).ok());
  const std::array own = {1.5};
  EXPECT_EQ(exchange.all(own, 3, "figures").value(), std::vector{1.5});
  EXPECT_EQ(line.read().phase, "figures");
  EXPECT_EQ(line.read().step, 3);
  EXPECT_FALSE(line.read().waits_for_peers);
}

TEST(BenchJob, AWrongOutputIsAFaultOfThisRank) {
  int calls = 0;
  World world(wrong_device(calls, BenchOperation::generations + 2));
  auto job = make_job(world, BenchWorkload::voxelize, 1000);
  ASSERT_TRUE(job.ok());
  ASSERT_TRUE(job.value()->answers().ok());
  ASSERT_TRUE(job.value()->burst(1, 1).ok());
  EXPECT_THAT(world.faults(), IsEmpty()) << "still right";
  ASSERT_TRUE(job.value()->burst(1, 1).ok());
  ASSERT_TRUE(job.value()->burst(1, 1).ok());
  const auto faults = world.faults();
  ASSERT_THAT(faults, SizeIs(1)) << "told once";
  EXPECT_EQ(faults[0]["kind"], "output");
  EXPECT_EQ(faults[0]["rank"], 3);
  EXPECT_EQ(faults[0]["blame"], "certain");
  EXPECT_THAT(faults[0]["where"].get<std::string>(), HasSubstr("features of batch"));
  EXPECT_THAT(job.value()->check().value().failure, HasSubstr("rank 3: features"));
}

TEST(BenchJob, ASlowDeviceDoesItsWorkMoreOften) {
  int calls = 0;
  World world(wrong_device(calls, 1 << 30));
  Injection half;
  half.kind = InjectionKind::slow;
  half.count = 50;
  auto job = make_job(world, BenchWorkload::voxelize, 100, half);
  ASSERT_TRUE(job.ok());
  ASSERT_TRUE(job.value()->answers().ok());
  const int before = calls;
  ASSERT_TRUE(job.value()->burst(1, 19).ok());
  EXPECT_EQ(calls - before, 30) << "20 batches, and half of them again";
}

TEST(BenchJob, TrainsAndLearns) {
  World world;
  FaultReporter reporter(world.environment);
  MlpJobConfig config;
  config.train.layers = {16, 32, 8};
  config.train.extreme_iterations = 0;
  config.batch = {.global = 32, .first = 0, .local = 32};
  auto job = make_mlp_job(world.environment, world.communicator, config, {}, reporter);
  ASSERT_TRUE(job.ok()) << job.status().what();
  ASSERT_THAT(job.value()->answers().value(), SizeIs(1));
  const auto ms = job.value()->burst(4, 10);
  ASSERT_TRUE(ms.ok()) << ms.status().what();
  ASSERT_THAT(ms.value().chunk_ms, SizeIs(4));
  for (const double chunk : ms.value().chunk_ms) EXPECT_GT(chunk, 0);
  EXPECT_EQ(world.board.line("main").read().phase, "bench: pass");
  EXPECT_FALSE(world.board.line("main").read().waits_for_peers);
  const auto report = job.value()->check();
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report.value().failure, "");
  EXPECT_EQ(report.value().work.replays, 2u);
}

TEST(BenchJob, TrainingThatDoesNotLearnFails) {
  World world;
  FaultReporter reporter(world.environment);
  MlpJobConfig config;
  config.train.layers = {16, 32, 8};
  config.train.learning_rate = 1e-12;
  config.train.extreme_iterations = 0;
  config.batch = {.global = 4096, .first = 0, .local = 4096};
  auto job = make_mlp_job(world.environment, world.communicator, config, {}, reporter);
  ASSERT_TRUE(job.ok()) << job.status().what();
  ASSERT_TRUE(job.value()->answers().ok());
  bool failed = false;  // the loss of new samples fluctuates
  for (int i = 0; i < 12 && !failed; ++i) {
    ASSERT_TRUE(job.value()->burst(1, 20).ok());
    failed = job.value()->check().value().failure.find("did not fall") != std::string::npos;
  }
  EXPECT_TRUE(failed);
}

}  // namespace
}  // namespace egt::test
