#include <functional>
#include <memory>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "device/injection/injecting_device.hpp"
#include "tests/support/changed_device.hpp"
#include "tests/support/workload_fixture.hpp"
#include "workload/verify/verify_workload.hpp"

namespace egt::test {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

constexpr std::int64_t steps = 12;

const ReadinessOptions small{.every = 4,
                             .samples = 24,
                             .inputs = 40,
                             .hidden = 48,
                             .outputs = 16,
                             .updated = 256,
                             .cleanup_share = 0.02};

/// A run of the workload on one rank. Rounds: at the start, after steps 3, 7 and 11, and at the end.
struct Job {
  explicit Job(std::unique_ptr<Device> device = small_host_device()) : world(std::move(device)) {
    world.place.rank = 0;
    world.place.size = 1;
    stream = std::move(world.device->create_stream(StreamPriority::normal).value());
    readiness =
        std::make_unique<VerifyWorkload>(world.environment, small, [this]() -> Stream& { return *stream; });
  }
  void run(const std::function<void(std::int64_t)>& before_step = [](std::int64_t) {}) {
    ASSERT_TRUE(readiness->prepare().ok());
    ASSERT_TRUE(readiness->start().ok());
    StepOutcome outcome;
    for (std::int64_t step = 0; step < steps; ++step) {
      before_step(step);
      ASSERT_TRUE(readiness->enqueue({.index = step}).ok());
      ASSERT_TRUE(readiness->retire(step - 1, outcome).ok());  // of the first step: none
    }
    ASSERT_TRUE(readiness->retire(steps - 1, outcome).ok());
    ASSERT_TRUE(readiness->finish(false).ok());
  }
  std::int64_t figure(const char* name) const { return readiness->report().figures.at(name); }
  std::string failure() const { return readiness->report().failure; }
  std::vector<std::string> kinds() {
    std::vector<std::string> kinds;
    for (const Json& fault : faults = world.faults()) kinds.push_back(fault.at("kind"));
    return kinds;
  }

  World world;
  std::vector<Json> faults;
  std::unique_ptr<Stream> stream;
  std::unique_ptr<VerifyWorkload> readiness;
};

TEST(Readiness, CountsWhatWasRightInEveryRound) {
  Job job;
  job.run();
  EXPECT_THAT(job.kinds(), IsEmpty());
  const PartReport part = job.readiness->report();
  EXPECT_TRUE(part.success) << part.failure;
  EXPECT_EQ(job.figure("rounds"), 5);
  for (const char* name : {"evaluations", "similarities"}) EXPECT_EQ(job.figure(name), 5) << name;
  EXPECT_EQ(job.figure("cleanups"), 2) << "at the start and at the end";
  EXPECT_EQ(job.figure("optimizer_steps"), 10);
  EXPECT_EQ(job.figure("cleanup_missing_bytes"), 0);
  const std::uint64_t taken = job.figure("cleanup_bytes");
  EXPECT_GT(taken, 1u << 20);
  EXPECT_EQ(part.work.bytes_patrolled, 2 * taken);
  EXPECT_EQ(part.work.outputs_verified, 5u * (24 * (16 + 24) + 2 * 256));
  EXPECT_DOUBLE_EQ(part.work.gemm_flops, 5 * 2.0 * 24 * (40 * 48 + 48 * 16 + 16 * 24));
}

TEST(Readiness, ADeviceThatBecomesIdleIsWrongInAllThatIsComputed) {
  auto idle = std::make_unique<InjectingDevice>(small_host_device());
  InjectingDevice& device = *idle;
  Job job(std::move(idle));
  job.run([&](std::int64_t step) {
    if (step == 5) device.make_idle();
  });
  ASSERT_THAT(job.kinds(), UnorderedElementsAre("evaluation", "similarity", "optimizer"));
  for (const Json& fault : job.faults) {
    EXPECT_EQ(fault.at("rank"), 0);
    EXPECT_EQ(fault.at("blame"), "certain");
    EXPECT_EQ(fault.at("step"), 7);
  }
  EXPECT_THAT(job.failure(), HasSubstr("3 rounds found wrong results"));
  EXPECT_EQ(job.figure("evaluations"), 2);
  EXPECT_EQ(job.figure("cleanups"), 2) << "its memory is as it was";
}

/// Wrong in the same way each time; only the host's own computation reveals it.
std::unique_ptr<Device> scaling_device(std::int64_t columns) {
  return changed<Gemm>(small_host_device(), [=](Gemm call, const Enqueue& enqueue) {
    if (call.d.columns == columns) call.alpha = 1.001;
    return enqueue(call);
  });
}

TEST(Readiness, EncodingsThatAreAlwaysWrongAreSeenByTheHost) {
  Job job(scaling_device(small.outputs));
  job.run();
  ASSERT_THAT(job.kinds(), UnorderedElementsAre("evaluation"));
  EXPECT_EQ(job.faults[0].at("detector"), "host reference");
  EXPECT_THAT(job.faults[0].at("where").get<std::string>(), HasSubstr("the encoding of the first sample"));
  EXPECT_EQ(job.figure("evaluations"), 0);
  EXPECT_EQ(job.figure("similarities"), 5);
}

TEST(Readiness, ProductsThatAreAlwaysWrongAreSeenByTheHost) {
  Job job(scaling_device(small.samples));
  job.run();
  ASSERT_THAT(job.kinds(), UnorderedElementsAre("similarity"));
  EXPECT_THAT(job.faults[0].at("where").get<std::string>(), HasSubstr("the dot product of encodings"));
}

TEST(Readiness, AnotherBestMatchThanItselfIsWrong) {
  // The last sample appears equal to the first.
  Job job(changed<Gemm>(small_host_device(), [](const Gemm& call, const Enqueue& enqueue) -> Status {
    EGT_TRY(enqueue(call));
    if (call.d.columns != small.samples) return {};
    auto* const products = static_cast<float*>(call.d.data);
    return enqueue(Copy{products + small.samples - 1, products, sizeof(float)});
  }));
  job.run();
  ASSERT_THAT(job.kinds(), UnorderedElementsAre("similarity"));
  EXPECT_EQ(job.faults[0].at("where"), "the best match of sample 0");
  EXPECT_EQ(job.faults[0].at("actual"), "23");
}

TEST(Readiness, AStepOfAnOptimizerThatIsAlwaysWrongIsSeenByTheHost) {
  Job job(changed<OptimizerStep>(small_host_device(), [](OptimizerStep call, const Enqueue& enqueue) {
    if (auto* const adam = std::get_if<math::Adam>(&call.rule)) adam->rate *= 1.01f;
    return enqueue(call);
  }));
  job.run();
  ASSERT_THAT(job.kinds(), UnorderedElementsAre("optimizer"));
  EXPECT_THAT(job.faults[0].at("where").get<std::string>(), HasSubstr("after a step of Adam"));
  EXPECT_EQ(job.figure("optimizer_steps"), 5) << "those of SGD";
}

/// Keeps part of each large allocation that is freed, for the first `rounds` times.
class LeakingDevice : public ForwardingDevice {
 public:
  explicit LeakingDevice(int rounds) : ForwardingDevice(small_host_device()), rounds_(rounds) {}
  Result<Buffer> allocate(std::size_t bytes) override {
    if (bytes >= (1u << 20) && allocations_++ % 2 == 0 && rounds_-- > 0) lost_ += bytes / 2;
    return ForwardingDevice::allocate(bytes);
  }
  Result<MemoryInfo> memory() const override {
    EGT_TRY_ASSIGN(MemoryInfo info, ForwardingDevice::memory());
    info.free_bytes -= lost_;
    return info;
  }

 private:
  int rounds_, allocations_ = 0;
  std::uint64_t lost_ = 0;
};

TEST(Readiness, MemoryThatNeverComesBackIsNoCleanup) {
  Job job(std::make_unique<LeakingDevice>(100));
  job.run();
  EXPECT_THAT(job.kinds(), IsEmpty());
  EXPECT_EQ(job.figure("cleanups"), 0);
  EXPECT_GT(job.figure("cleanup_missing_bytes"), job.figure("cleanup_tolerance_bytes"));
  EXPECT_THAT(job.failure(), HasSubstr("memory cleanup:"));
  EXPECT_THAT(job.failure(), HasSubstr("less are free than before"));
}

TEST(Readiness, MemoryThatOthersTakeMeanwhileIsForgiven) {
  Job job(std::make_unique<LeakingDevice>(2));
  job.run();
  EXPECT_EQ(job.figure("cleanups"), 2);
  EXPECT_EQ(job.failure(), "");
}

/// Counts allocations.
class CountingDevice : public ForwardingDevice {
 public:
  using ForwardingDevice::ForwardingDevice;
  Result<Buffer> allocate(std::size_t bytes) override {
    ++taken;
    return ForwardingDevice::allocate(bytes);
  }
  int taken = 0;
};

TEST(Readiness, NoMemoryIsTakenWhileStepsAreMade) {
  auto counting = std::make_unique<CountingDevice>(small_host_device());
  CountingDevice& device = *counting;
  Job job(std::move(counting));
  int first = 0, last = 0;
  job.run([&](std::int64_t step) { (step == 0 ? first : last) = device.taken; });
  EXPECT_EQ(last, first);
  EXPECT_GT(device.taken, last) << "at the end it is";
}

/// Fails every second large allocation.
class ScarceDevice : public ForwardingDevice {
 public:
  using ForwardingDevice::ForwardingDevice;
  Result<Buffer> allocate(std::size_t bytes) override {
    if (bytes >= (1u << 20) && taken_++ % 2 == 1)
      return Status(StatusCode::out_of_memory, "there is no such piece");
    return ForwardingDevice::allocate(bytes);
  }

 private:
  int taken_ = 0;
};

TEST(Readiness, MemoryThatCannotBeTakenAgainIsNoCleanup) {
  Job job(std::make_unique<ScarceDevice>(small_host_device()));
  job.run();
  EXPECT_EQ(job.figure("cleanups"), 0);
  EXPECT_THAT(job.failure(), HasSubstr("could not be taken again: there is no such piece"));
}

TEST(Readiness, AVerificationThatDoesNotLookIsAFaultAlsoOnce) {
  for (const int times : {2, 1000}) {  // two verifications are one cleanup
    Job job(changed<Verify>(small_host_device(),
                            [left = times](const Verify& call, const Enqueue& enqueue) mutable {
                              return left-- > 0 ? Status() : enqueue(call);
                            }));
    job.run();
    ASSERT_THAT(job.kinds(), testing::Contains("memory")) << times;
    EXPECT_EQ(job.faults[0].at("expected"), "the one injected wrong word");
    EXPECT_NE(job.failure(), "") << times;
  }
}

TEST(Readiness, WordsThatChangeAreAFaultOfTheMemoryToldOnce) {
  // One word does not retain what is written.
  Job job(changed<Fill>(small_host_device(), [](const Fill& call, const Enqueue& enqueue) -> Status {
    EGT_TRY(enqueue(call));
    if (call.words.count <= 8) return {};  // a stamp
    return enqueue(FlipWords{call.words, {.first = 7, .mask = 0x10}});
  }));
  job.run();
  ASSERT_THAT(job.kinds(), UnorderedElementsAre("memory"));
  EXPECT_EQ(job.faults[0].at("detector"), "memory cleanup");
  EXPECT_EQ(job.faults[0].at("offset"), 28);
  EXPECT_EQ(job.faults[0].at("xor"), "0x00000010");
  EXPECT_EQ(job.figure("cleanups"), 0);
}

}  // namespace
}  // namespace egt::test
