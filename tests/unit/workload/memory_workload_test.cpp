#include <atomic>
#include <cstring>
#include <thread>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/changed_device.hpp"
#include "tests/support/memory_fixture.hpp"
#include "tests/support/workload_fixture.hpp"
#include "workload/common/findings.hpp"
#include "workload/memory/memory_workload.hpp"

namespace egt {
namespace {

using test::bodies;
using test::eventually;
using test::figure;
using test::fill_of;
using test::ForwardingDevice;
using test::injections_of;
using test::small_host_device;
using test::test_memory_bytes;
using test::World;
using ::testing::HasSubstr;

TEST(MemoryPlan, TakesWhatIsMissingInWholeQuanta) {
  const MemoryInfo now{.total_bytes = 1000 << 20, .free_bytes = 900 << 20};
  const auto plan = plan_memory(now, {.share = 0.9, .is_share = true});
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan.value().used_bytes, 100u << 20);
  const std::uint64_t taken = plan.value().fill_bytes() + plan.value().product_bytes();
  EXPECT_GE(taken, 800u << 20);
  EXPECT_LT(taken, (800u << 20) + memory_quantum_bytes);
  for (const std::uint64_t bytes : plan.value().block_bytes) EXPECT_EQ(bytes % memory_quantum_bytes, 0u);
}

TEST(MemoryPlan, BlocksGrowWithTheRegion) {
  const MemoryInfo big{.total_bytes = 140ull << 30, .free_bytes = 139ull << 30};
  const auto plan = plan_memory(big, {.share = 0.9, .is_share = true});
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan.value().block_bytes.front(), 1024u << 20);
  EXPECT_EQ(plan.value().product_rows, 8192);
}

TEST(MemoryPlan, MoreThanIsFreeIsAnErrorThatTellsWhatIs) {
  const MemoryInfo now{.total_bytes = 1'000'000'000, .free_bytes = 300'000'000};
  const auto plan = plan_memory(now, {.share = 0, .bytes = 1'000'000'000, .is_share = false});
  ASSERT_EQ(plan.status().code(), StatusCode::out_of_memory);
  EXPECT_THAT(plan.status().what(), HasSubstr("1.00 GB requested, 984 MB usable: "));
  EXPECT_THAT(plan.status().what(), HasSubstr("700 MB in use and 300 MB free"));
}

TEST(MemoryPlan, NothingIsLeftToFillWhereMoreIsUsed) {
  const auto plan =
      plan_memory({.total_bytes = 1 << 30, .free_bytes = 1 << 29}, {.share = 0.2, .is_share = true});
  ASSERT_TRUE(plan.ok());
  EXPECT_TRUE(plan.value().block_bytes.empty());
}

/// A GPU by name only.
class NamedDevice : public ForwardingDevice {
 public:
  explicit NamedDevice(const char* backend) : ForwardingDevice(small_host_device()) {
    info_ = ForwardingDevice::info();
    info_.backend = backend;
  }
  const DeviceInfo& info() const override { return info_; }

 private:
  DeviceInfo info_;
};

/// Findings after steps of `step_s` seconds of a fake clock, with a window of 1.2 s. `verifies`: the memory
/// test runs, with 5 % of its rate or more in that window.
std::vector<Json> findings_with(const char* backend, double duty, int steps, double step_s, bool verifies) {
  World world(std::make_unique<NamedDevice>(backend));
  world.load.set_duty(duty);
  MemoryOptions options = fill_of(1 << 20);
  options.starvation_seconds = 1.2;
  double now = 0;
  MemoryWorkload memory(world.environment, options, {}, [&] { return now; });
  EXPECT_TRUE(memory.prepare().ok());
  if (verifies) {
    EXPECT_TRUE(memory.start().ok());
    const double rate = 1e9 * memory.report().load.alone.at("verify_gb_per_s").get<double>();
    EXPECT_TRUE(
        eventually([&] { return static_cast<double>(figure(memory, "bytes_verified")) >= 0.06 * rate; }));
  }
  for (int step = 0; step < steps; ++step) {
    now += step_s;
    StepOutcome outcome;
    EXPECT_TRUE(memory.retire(step, outcome).ok());
  }
  EXPECT_TRUE(memory.finish(true).ok());
  std::vector<Json> found;
  for (const Record& record : world.records.drain())
    if (record.kind == RecordKind::finding) found.push_back(record.body);
  return found;
}

TEST(MemoryWorkload, ThatItsTestsStarveOnAGpuIsReportedOnce) {
  const std::vector<Json> found = findings_with("cuda", 1, 10, 0.61, false);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0]["kind"], "starved");
  EXPECT_EQ(found[0]["rank"], 3);
  EXPECT_THAT(found[0]["text"].get<std::string>(), HasSubstr("the memory test starves: "));
  EXPECT_LT(found[0]["actual"], found[0]["expected"]);
  EXPECT_TRUE(findings_with("cuda", 1, 2, 0.61, true).empty()) << "all is well";
  EXPECT_TRUE(findings_with("cuda", 0.5, 10, 0.61, false).empty()) << "the limiter reduces the load";
  EXPECT_TRUE(findings_with("host", 1, 10, 0.61, false).empty()) << "other processes may have the cores";
  EXPECT_TRUE(findings_with("cuda", 1, 1, 30, false).empty())
      << "the process was stopped, not its memory test alone";
}

TEST(MemoryWorkload, VerifiesAndUsesEveryBlock) {
  World world;
  world.load.set_lead(LoadLead::products);
  MemoryWorkload memory(world.environment, fill_of(12'345'679));
  ASSERT_TRUE(memory.prepare().ok());
  ASSERT_TRUE(memory.start().ok());
  // Blocks become operands in sequence: after all were operands, each word has at least one iteration, twice.
  ASSERT_TRUE(eventually([&] {
    return figure(memory, "minimum_visits") >= 10 &&
           figure(memory, "sine_exponential_turns") >= 3 * figure(memory, "filled_bytes") / 4;
  }));
  StepOutcome outcome;
  EXPECT_TRUE(memory.retire(0, outcome).ok());
  ASSERT_TRUE(memory.finish(false).ok());

  const PartReport report = memory.report();
  EXPECT_TRUE(report.success) << report.failure;
  EXPECT_TRUE(world.faults().empty());
  EXPECT_NEAR(report.figures["used_bytes"].get<double>(), 12'345'679, 1024);
  EXPECT_EQ(report.figures["total_bytes"], test_memory_bytes);
  EXPECT_GT(report.figures["verify_gb_per_s"].get<double>(), 0);
  EXPECT_GT(report.figures["gemm_tflops"].get<double>(), 0);
  EXPECT_GE(report.work.bytes_patrolled, 10 * report.figures["filled_bytes"].get<std::uint64_t>());
  EXPECT_GT(report.work.gemm_flops, 0);
}

TEST(MemoryWorkload, SeesEveryByteOnceEvenWithoutAPatrol) {
  World world;
  MemoryWorkload memory(world.environment, fill_of(8 << 20));
  ASSERT_TRUE(memory.prepare().ok());
  ASSERT_TRUE(memory.finish(false).ok());
  EXPECT_TRUE(memory.report().success);
  EXPECT_EQ(figure(memory, "minimum_visits"), 1u);
  EXPECT_EQ(memory.report().work.bytes_patrolled, figure(memory, "filled_bytes"));
}

TEST(MemoryWorkload, AHurriedEndVerifiesNoMore) {
  World world;
  MemoryWorkload memory(world.environment, fill_of(8 << 20));
  ASSERT_TRUE(memory.prepare().ok());
  ASSERT_TRUE(memory.finish(true).ok());
  EXPECT_EQ(figure(memory, "minimum_visits"), 0u);
  EXPECT_EQ(memory.report().work.bytes_patrolled, 0u);
}

TEST(MemoryWorkload, NamesAWrongWord) {
  World world;
  MemoryWorkload memory(world.environment, fill_of(8 << 20));
  ASSERT_TRUE(memory.prepare().ok());
  const std::vector<WordsView> blocks = memory.blocks();
  ASSERT_GE(blocks.size(), 4u);
  ASSERT_TRUE(memory.enqueue({.index = 17}).ok());
  std::uint32_t& word = blocks[2].data[1000];
  const std::uint32_t expected = word;
  word ^= 1u << 9;
  ASSERT_TRUE(memory.start().ok());
  ASSERT_TRUE(eventually([&] { return figure(memory, "sweeps") >= 2; }));
  ASSERT_TRUE(memory.finish(false).ok());

  const std::vector<Json> faults = world.faults();
  ASSERT_EQ(faults.size(), 1u) << "one record a visit, and the rewritten block is right again";
  const Json& fault = faults[0];
  EXPECT_EQ(fault["kind"], "memory");
  EXPECT_EQ(fault["detector"], "pattern");
  EXPECT_EQ(fault["rank"], 3);
  EXPECT_EQ(fault["hostname"], "node7");
  EXPECT_EQ(fault["step"], 17);
  EXPECT_EQ(fault["offset"], blocks[0].bytes() + blocks[1].bytes() + 4000);
  EXPECT_EQ(fault["expected"], hex(expected));
  EXPECT_EQ(fault["actual"], hex(expected ^ (1u << 9)));
  EXPECT_EQ(fault["xor"], "0x00000200");
  EXPECT_EQ(fault["count"], 1);
  EXPECT_THAT(fault["where"].get<std::string>(), HasSubstr("block 3 of"));
  EXPECT_THAT(fault["where"].get<std::string>(), HasSubstr("generation 0, pattern finite"));
  EXPECT_THAT(fault["where"].get<std::string>(),
              HasSubstr("second read " + hex(expected ^ (1u << 9)) + " (same)"));
  EXPECT_FALSE(memory.report().success);
  EXPECT_EQ(figure(memory, "mismatches"), 1u);
}

TEST(MemoryWorkload, GoesThroughTheWholeSuite) {
  World world;
  MemoryWorkload memory(world.environment, fill_of(4 << 20, 1));
  ASSERT_TRUE(memory.prepare().ok());
  ASSERT_TRUE(memory.start().ok());
  ASSERT_TRUE(eventually([&] { return figure(memory, "rounds") >= 2; }));
  ASSERT_TRUE(memory.finish(false).ok());
  const Json figures = memory.report().figures;
  EXPECT_TRUE(memory.report().success);
  EXPECT_TRUE(world.faults().empty());
  ASSERT_EQ(figures["passes"].size(), memory_suite().size());
  const std::uint64_t blocks = figure(memory, "blocks");
  for (const MemoryTest& test : memory_suite())
    EXPECT_GE(figures["passes"][test.name].get<std::uint64_t>(), (blocks - 1) * test.passes.size())
        << test.name;
  EXPECT_GT(figures["bytes_written"], 0);
  EXPECT_GT(figures["memory_gb_per_s"], figures["verify_gb_per_s"]);
}

TEST(MemoryWorkload, TheLastSweepFindsWhatThePatrolDidNotReach) {
  World world;
  MemoryWorkload memory(world.environment, fill_of(4 << 20));
  ASSERT_TRUE(memory.prepare().ok());
  const WordsView last = memory.blocks().back();
  last.data[last.count - 1] ^= 0x80000001u;
  last.data[last.count - 2] ^= 0x80000001u;
  ASSERT_TRUE(memory.finish(false).ok());
  const std::vector<Json> faults = world.faults();
  ASSERT_EQ(faults.size(), 1u);
  EXPECT_EQ(faults[0]["offset"], figure(memory, "filled_bytes") - 8);
  EXPECT_EQ(faults[0]["count"], 2);
}

TEST(MemoryPlan, StaysALittleBelowTheLimit) {
  const std::uint64_t total = 1'000'000'000;
  const auto within = [&](double share) {
    return fill_within({.share = share, .bytes = 0, .is_share = true}, total, 0.95).of(total);
  };
  EXPECT_EQ(within(0.9), 900'000'000u);
  EXPECT_EQ(within(0.94), 940'000'000u);
  EXPECT_NEAR(static_cast<double>(within(0.95)), 940e6, 2);
  EXPECT_NEAR(static_cast<double>(within(1.0)), 940e6, 2);
  EXPECT_EQ(fill_within({.share = 0, .bytes = 2 * total, .is_share = false}, total, 0.95).bytes, 2 * total);
}

TEST(MemoryShare, AFillBeyondTheLimitIsMadeSmallerAtTheStart) {
  World world;
  MemoryOptions options = fill_of(test_memory_bytes / 2, 1);
  options.limit = 0.3;
  MemoryWorkload memory(world.environment, options);
  ASSERT_TRUE(memory.prepare().ok());
  EXPECT_NEAR(memory.report().figures["used_bytes"].get<double>(), 0.29 * test_memory_bytes, 2048);
  EXPECT_TRUE(world.faults().empty());
  ASSERT_EQ(world.notices.size(), 1u);
  EXPECT_THAT(world.notices[0], HasSubstr("would exceed the limit of 30 % (--memory-limit)"));
}

TEST(MemoryShare, TheLastBlocksAreGivenBack) {
  World world;
  MemoryWorkload memory(world.environment, fill_of(32 << 20, 1));
  ASSERT_TRUE(memory.prepare().ok());
  const std::uint64_t planned = figure(memory, "filled_bytes"), blocks = figure(memory, "blocks");
  const std::uint64_t free_before = world.device->memory().value().free_bytes;
  ASSERT_TRUE(memory.start().ok());
  world.load.set_memory_share(0.6);
  ASSERT_TRUE(eventually([&] { return figure(memory, "freed_bytes") > 0; }));
  const std::uint64_t held = figure(memory, "filled_bytes"), freed = figure(memory, "freed_bytes");
  EXPECT_EQ(held + freed, planned);
  EXPECT_LE(held, planned * 6 / 10);
  EXPECT_GT(held, planned * 5 / 10) << "no more than has to be";
  EXPECT_LT(figure(memory, "blocks"), blocks);
  EXPECT_EQ(world.device->memory().value().free_bytes, free_before + freed);
  world.load.set_memory_share(1);
  const std::uint64_t sweep = figure(memory, "sweeps");
  ASSERT_TRUE(eventually([&] { return figure(memory, "sweeps") >= sweep + 2; }));
  ASSERT_TRUE(memory.finish(false).ok());
  EXPECT_EQ(figure(memory, "filled_bytes"), held) << "what was given back is not taken again";
  EXPECT_TRUE(memory.report().success) << memory.report().failure;
  EXPECT_GE(figure(memory, "minimum_visits"), 2u) << "of the blocks that are held";
  EXPECT_EQ(memory.blocks().size(), figure(memory, "blocks"));
  EXPECT_TRUE(world.faults().empty());
  ASSERT_EQ(world.notices.size(), 1u);
  EXPECT_THAT(world.notices[0], HasSubstr("memory: less memory is filled"));
}

TEST(MemoryShare, OneBlockIsLeft) {
  World world;
  MemoryWorkload memory(world.environment, fill_of(8 << 20, 1));
  ASSERT_TRUE(memory.prepare().ok());
  ASSERT_TRUE(memory.start().ok());
  world.load.set_memory_share(0);
  ASSERT_TRUE(eventually([&] { return figure(memory, "blocks") == 1; }));
  const std::uint64_t sweep = figure(memory, "sweeps");
  ASSERT_TRUE(eventually([&] { return figure(memory, "sweeps") >= sweep + 2; }));
  ASSERT_TRUE(memory.finish(false).ok());
  EXPECT_TRUE(memory.report().success);
}

TEST(MemoryShare, AFaultOnPurposeInAFreedBlockGoesElsewhere) {
  World world(small_host_device(),
              injections_of({"memory:rank=3,step=5", "memory:rank=3,step=5", "memory:rank=3,step=5",
                             "memory:rank=3,step=5", "memory:rank=3,step=5", "memory:rank=3,step=5"}));
  MemoryWorkload memory(world.environment, fill_of(16 << 20, 1));
  ASSERT_TRUE(memory.prepare().ok());
  ASSERT_TRUE(memory.enqueue({.index = 5}).ok());
  world.load.set_memory_share(0.2);
  ASSERT_TRUE(memory.start().ok());
  ASSERT_TRUE(eventually([&] { return figure(memory, "sweeps") >= 3; }));
  ASSERT_TRUE(memory.finish(false).ok());
  EXPECT_GT(figure(memory, "freed_bytes"), 0u);
  EXPECT_EQ(bodies(world, RecordKind::injection).size(), 6u);
  EXPECT_EQ(figure(memory, "mismatches"), 6u);
}

/// The fraction of time in which the device verifies at this duty cycle. The blocks are too few to be
/// operands.
double patrol_share(double duty) {
  World world;
  MemoryWorkload memory(world.environment, fill_of(8 << 20));
  EXPECT_TRUE(memory.prepare().ok());
  EXPECT_TRUE(memory.start().ok());
  EXPECT_TRUE(eventually([&] { return figure(memory, "visits") >= 8; }));
  world.load.set_duty(duty);
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  const auto busy_s = [&] {
    const Json figures = memory.report().figures;
    return figures["bytes_verified"].get<double>() * 1e-9 / figures["verify_gb_per_s"].get<double>();
  };
  const double before = busy_s();
  const Clock::time_point start = Clock::now();
  std::this_thread::sleep_for(std::chrono::milliseconds(900));
  const double share = (busy_s() - before) / seconds_since(start);
  EXPECT_TRUE(memory.finish(true).ok());
  return share;
}

TEST(MemoryDuty, TheDeviceWorksForThatShareOfTheTime) {
  EXPECT_GT(patrol_share(0.1), 0);
  EXPECT_LT(patrol_share(0.1), 0.25);
  EXPECT_LT(patrol_share(0.3), 0.5) << "1 without rests";
}

TEST(MemoryDuty, AStopDoesNotWaitForTheRest) {
  World world;
  MemoryWorkload memory(world.environment, fill_of(16 << 20, 300));
  ASSERT_TRUE(memory.prepare().ok());
  world.load.set_duty(LoadControl::min_duty);
  ASSERT_TRUE(memory.start().ok());
  ASSERT_TRUE(eventually([&] { return memory.report().figures["bytes_verified"] > 0; }));
  ASSERT_TRUE(memory.finish(true).ok());
}

/// A pass may be queued at the stop; at this duty cycle nearly every stop occurs in such a moment.
TEST(MemoryDuty, AStopAtAnyMomentLeavesNoWrongWord) {
  for (int milliseconds = 1; milliseconds <= 20; ++milliseconds) {
    World world;
    MemoryWorkload memory(world.environment, fill_of(16 << 20, 3));
    ASSERT_TRUE(memory.prepare().ok());
    world.load.set_duty(0.99);
    ASSERT_TRUE(memory.start().ok());
    ASSERT_TRUE(eventually([&] { return memory.report().figures["bytes_written"] > 0; }));
    std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
    ASSERT_TRUE(memory.finish(false).ok());
    ASSERT_EQ(figure(memory, "mismatches"), 0u) << "stopped after " << milliseconds << " ms";
  }
}

TEST(MemoryWorkload, FillsNothingWhereNothingIsAskedFor) {
  World world;
  MemoryWorkload memory(world.environment, fill_of(0));
  ASSERT_TRUE(memory.prepare().ok());
  ASSERT_TRUE(memory.start().ok());
  ASSERT_TRUE(memory.enqueue({}).ok());
  ASSERT_TRUE(memory.finish(false).ok());
  EXPECT_TRUE(memory.report().success);
  EXPECT_EQ(memory.report().figures["planned"], false);
  EXPECT_TRUE(memory.blocks().empty());
}

TEST(MemoryWorkload, RefusesAFillThatLeavesNothingToTest) {
  World world;
  const auto buffer = world.device->allocate(8 << 20);
  ASSERT_TRUE(buffer.ok());
  for (const MemoryOptions& options :
       {fill_of(4 << 20), fill_of(1),
        MemoryOptions{.fill = {.share = 1e-15, .bytes = 0, .is_share = true}}}) {
    const Status refused = MemoryWorkload(world.environment, options).prepare();
    EXPECT_EQ(refused.code(), StatusCode::out_of_memory);
    EXPECT_THAT(refused.what(),
                HasSubstr("8.50 MB are used already, so none would be tested; ask for more with --memory"));
  }
}

TEST(MemoryWorkload, RefusesMoreThanTheDeviceHas) {
  World world;
  MemoryWorkload memory(world.environment, fill_of(2 * test_memory_bytes));
  EXPECT_EQ(memory.prepare().code(), StatusCode::out_of_memory);
}

TEST(MemoryWorkload, StopsQuickly) {
  World world;
  MemoryWorkload memory(world.environment, fill_of(64 << 20, 300));
  ASSERT_TRUE(memory.prepare().ok());
  ASSERT_TRUE(memory.start().ok());
  ASSERT_TRUE(eventually([&] { return figure(memory, "visits") >= 4; }));
  ASSERT_TRUE(memory.finish(true).ok());
}

TEST(MemoryWorkload, RelaysWhatItsThreadFailedWith) {
  std::atomic<bool> is_lost = false;
  World world(
      test::changed<Verify>(small_host_device(), [&](const Verify& call, const test::Enqueue& enqueue) {
        return is_lost ? Status(StatusCode::aborted, "the device is lost") : enqueue(call);
      }));
  MemoryWorkload memory(world.environment, fill_of(2 << 20));
  ASSERT_TRUE(memory.prepare().ok());
  is_lost = true;
  ASSERT_TRUE(memory.start().ok());
  StepOutcome outcome;
  ASSERT_TRUE(eventually([&] { return !memory.retire(0, outcome).ok(); }));
  EXPECT_EQ(memory.retire(0, outcome).code(), StatusCode::aborted);
  EXPECT_EQ(memory.finish(false).code(), StatusCode::aborted);
  EXPECT_FALSE(memory.report().success);
}

}  // namespace
}  // namespace egt
