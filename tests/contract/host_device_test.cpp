#include <gtest/gtest.h>

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "device/host/host_device.hpp"
#include "device/host/host_stream.hpp"
#include "device/host/host_topology.hpp"
#include "device/host/worker_pool.hpp"
#include "device/shared/shared_pages.hpp"
#include "egt/core/clock.hpp"
#include "egt/core/system_files.hpp"
#include "tests/support/fake_root.hpp"

/// Guarantees of the host adapter beyond the port.
namespace egt {
namespace {

constexpr double patience_seconds = 60;

/// The value of a Result that must hold one. A Result without a value ends the test.
template <typename T>
T take(Result<T> result) {
  EXPECT_TRUE(result.ok()) << result.status().what();
  return std::move(result.value());
}

std::unique_ptr<Device> open(const HostDeviceConfig& config) {
  return take(open_host_device(config));
}

HostDeviceConfig with_cores(int cores) {
  HostDeviceConfig config;
  config.cores = cores;
  return config;
}

struct HostStreams : testing::Test {
  std::unique_ptr<Device> device = open(with_cores(2));
  std::unique_ptr<Stream> first = take(device->create_stream(StreamPriority::normal));
  std::unique_ptr<Stream> second = take(device->create_stream(StreamPriority::normal));
  std::unique_ptr<Event> event = take(device->create_event(EventUse::timing));
};

Status failure() {
  return Status(StatusCode::io_error, "made to fail");
}

TEST_F(HostStreams, TheFirstErrorIsKeptAndLaterTasksAreSkipped) {
  std::atomic<int> ran = 0;
  HostStream& stream = as_host_stream(*first);
  stream.enqueue([&] { return ++ran, Status(); });
  stream.enqueue([] { return failure(); });
  stream.enqueue([&] { return ++ran, Status(StatusCode::internal, "another"); });
  EXPECT_EQ(device->synchronize(*first, patience_seconds).code(), StatusCode::io_error);
  EXPECT_EQ(device->synchronize(*first, patience_seconds).code(), StatusCode::io_error);
  EXPECT_EQ(ran, 1);
}

TEST_F(HostStreams, AFailureThatIsForgottenLetsWorkInAgain) {
  std::atomic<int> ran = 0;
  HostStream& stream = as_host_stream(*first);
  stream.enqueue([] { return failure(); });
  stream.enqueue([&] { return ++ran, Status(); });
  EXPECT_TRUE(device->forget_failure(*first, patience_seconds).ok());
  stream.enqueue([&] { return ++ran, Status(); });
  EXPECT_TRUE(device->synchronize(*first, patience_seconds).ok());
  EXPECT_EQ(ran, 1);
}

TEST_F(HostStreams, AStreamThatDoesNotComeToRestKeepsItsFailure) {
  std::atomic<bool> released = false;
  as_host_stream(*first).enqueue([] { return failure(); });
  as_host_stream(*first).enqueue_always([&](const Status& so_far) {
    while (!released) std::this_thread::yield();
    return so_far;
  });
  EXPECT_EQ(device->forget_failure(*first, 0.05).code(), StatusCode::timeout);
  released = true;
  EXPECT_EQ(device->synchronize(*first, patience_seconds).code(), StatusCode::io_error);
}

TEST_F(HostStreams, EventsAreReachedAfterAnErrorAndRelayIt) {
  as_host_stream(*first).enqueue([] { return failure(); });
  ASSERT_TRUE(device->record(*event, *first).ok());
  ASSERT_TRUE(device->wait(*second, *event).ok());
  EXPECT_EQ(device->synchronize(*second, patience_seconds).code(), StatusCode::io_error);
  EXPECT_EQ(device->done(*event).status().code(), StatusCode::io_error);
}

TEST_F(HostStreams, AnErrorAfterAnEventIsNotTheEvents) {
  ASSERT_TRUE(device->record(*event, *first).ok());
  as_host_stream(*first).enqueue([] { return failure(); });
  EXPECT_FALSE(device->synchronize(*first, patience_seconds).ok());
  EXPECT_TRUE(device->done(*event).ok());
  ASSERT_TRUE(device->wait(*second, *event).ok());
  EXPECT_TRUE(device->synchronize(*second, patience_seconds).ok());
}

TEST_F(HostStreams, WaitingIsNoBusyTimeAndTwoStreamsHaveNoneInCommon) {
  const auto begin = take(device->create_event(EventUse::timing)),
             elsewhere = take(device->create_event(EventUse::timing));
  ASSERT_TRUE(device->record(*begin, *first).ok());
  as_host_stream(*first).enqueue([] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    return Status();
  });
  ASSERT_TRUE(device->record(*event, *first).ok());
  ASSERT_TRUE(device->record(*elsewhere, *second).ok());
  ASSERT_TRUE(device->synchronize(*first, patience_seconds).ok());
  ASSERT_TRUE(device->synchronize(*second, patience_seconds).ok());
  EXPECT_GE(take(device->elapsed_ms(*begin, *event)), 50);
  EXPECT_LT(take(device->busy_ms(*begin, *event)), 10);
  EXPECT_EQ(device->busy_ms(*begin, *elsewhere).status().code(), StatusCode::invalid_argument);
}

TEST_F(HostStreams, TheDestructorWaitsForTheWork) {
  std::atomic<int> ran = 0;
  for (int i = 0; i < 100; ++i) as_host_stream(*first).enqueue([&] { return ++ran, Status(); });
  first.reset();
  EXPECT_EQ(ran, 100);
}

TEST_F(HostStreams, TheDestructorEndsTheWaitForASignal) {
  std::uint32_t never = 0;
  std::atomic<int> ran = 0;
  ASSERT_TRUE(device->await_signal(&never, 1, *first).ok());
  as_host_stream(*first).enqueue([&] { return ++ran, Status(); });
  first.reset();
  EXPECT_EQ(ran, 0);
}

TEST_F(HostStreams, ALowPriorityStreamAndItsWorkersAreNice) {
  const int own = getpriority(PRIO_PROCESS, 0);
  const std::unique_ptr<Stream> low = take(device->create_stream(StreamPriority::background));
  std::atomic<int> lowest = 100;
  as_host_stream(*low).enqueue([&] {
    std::atomic<int> inside = 0;
    as_host_stream(*low).share(2, [&](std::int64_t) {
      // Both threads process one of the two chunks: each waits until the other has arrived.
      for (++inside; inside < 2;) std::this_thread::yield();
      for (int nice = getpriority(PRIO_PROCESS, 0), seen = lowest;
           nice < seen && !lowest.compare_exchange_weak(seen, nice);) {
      }
    });
    return Status();
  });
  ASSERT_TRUE(device->synchronize(*low, patience_seconds).ok());
  EXPECT_EQ(lowest, 19);
  EXPECT_EQ(getpriority(PRIO_PROCESS, 0), own);
}

TEST_F(HostStreams, ScratchGrowsAndRefusesTheImpossible) {
  HostStream& stream = as_host_stream(*first);
  bool refused = false;
  stream.enqueue([&] {
    for (const std::size_t bytes : {std::size_t{100}, std::size_t{5000}, std::size_t{64}}) {
      EGT_TRY_ASSIGN(std::byte* const data, stream.scratch(bytes));
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(data) % 64, 0u);
      data[bytes - 1] = std::byte{1};
    }
    refused = stream.scratch(std::size_t{1} << 60).status().code() == StatusCode::out_of_memory;
    return stream.scratch(100).status();
  });
  EXPECT_TRUE(device->synchronize(*first, patience_seconds).ok());
  EXPECT_TRUE(refused);
}

TEST(WorkerPoolTest, EveryChunkRunsOnceOnAnyNumberOfThreads) {
  for (const int threads : {1, 2, 5}) {
    WorkerPool pool(threads);
    for (const std::int64_t chunks : {0, 1, 2, 7, 1000}) {
      std::vector<std::atomic<int>> ran(static_cast<std::size_t>(chunks));
      pool.run(chunks, [&](std::int64_t i) { ++ran[static_cast<std::size_t>(i)]; });
      for (const std::atomic<int>& count : ran) EXPECT_EQ(count, 1);
    }
  }
}

TEST(WorkerPoolTest, RunReturnsOnlyWhenTheOtherThreadsAreThroughToo) {
  WorkerPool pool(2);
  const std::thread::id caller = std::this_thread::get_id();
  std::atomic<int> begun = 0, ended = 0;
  pool.run(2, [&](std::int64_t) {
    for (++begun; begun < 2;) std::this_thread::yield();  // ensures that each thread processes one of the two
    if (std::this_thread::get_id() != caller) std::this_thread::sleep_for(std::chrono::milliseconds(50));
    ++ended;
  });
  EXPECT_EQ(ended, 2);
}

TEST(HostDevice, SharesOfANodeAddUpToNoMoreThanTheNode) {
  const std::unique_ptr<Device> whole = open({});
  HostDeviceConfig config;
  config.local_size = 4;
  config.local_rank = 3;
  const std::unique_ptr<Device> quarter = open(config);
  EXPECT_EQ(quarter->info().memory_total_bytes, whole->info().memory_total_bytes / 4);
  EXPECT_GE(quarter->info().multiprocessors, 1);
  EXPECT_LE(quarter->info().multiprocessors, whole->info().multiprocessors);
  EXPECT_EQ(quarter->info().index, 3);
  EXPECT_EQ(quarter->info().backend, "host");
}

TEST(HostDevice, RefusesARankThatIsNotThereAndNoCores) {
  for (const auto& [rank, size, cores] : {std::tuple{2, 2, 1}, {-1, 1, 1}, {0, 0, 1}, {0, 1, 0}}) {
    HostDeviceConfig config;
    config.local_rank = rank;
    config.local_size = size;
    config.cores = cores;
    EXPECT_EQ(open_host_device(config).status().code(), StatusCode::invalid_argument);
  }
}

TEST(HostDevice, GivesItsShareToTheLastByteAndTakesItBack) {
  constexpr std::size_t share = 1 << 20;
  HostDeviceConfig config;
  config.memory_total_bytes = share;
  const std::unique_ptr<Device> device = open(config);
  for (int round = 0; round < 2; ++round) {
    const Result<Buffer> most = device->allocate(share - 100);
    ASSERT_TRUE(most.ok()) << most.status().what();
    EXPECT_EQ(device->memory().value().free_bytes, 100u);
    EXPECT_EQ(device->allocate_pinned(101).status().code(), StatusCode::out_of_memory);
    EXPECT_TRUE(device->allocate_pinned(100).ok());
  }
  EXPECT_EQ(device->memory().value().free_bytes, share);
}

/// A node with 64 GiB of memory, 40 GiB of it available.
class HostMemory : public testing::Test {
 protected:
  HostMemory() {
    root.write("proc/meminfo", "MemTotal: 67108864 kB\nMemFree: 1 kB\nMemAvailable: 41943040 kB\n");
  }
  static constexpr std::uint64_t gib = std::uint64_t{1} << 30;
  std::uint64_t total(int ranks) const { return take(find_host_share(ranks, root.path())).memory_bytes; }
  std::uint64_t available() const { return take(node_memory(root.path())).available_bytes; }
  /// Memory that a rank's process needs within the limit of its control group.
  static constexpr std::uint64_t process_bytes = std::uint64_t{128} << 20;

  const test::FakeRoot root;
};

TEST_F(HostMemory, IsTheNodesWhereNothingLimitsIt) {
  EXPECT_EQ(total(1), 64 * gib);
  EXPECT_EQ(total(2), 32 * gib);
  EXPECT_EQ(available(), 40 * gib);
}

TEST_F(HostMemory, OfVersion2IsTheLeastOfAllControlGroupsOfTheProcess) {
  root.write("proc/self/cgroup", "0::/job/step\n");
  root.write("sys/fs/cgroup/job/memory.max", std::to_string(8 * gib) + "\n");
  root.write("sys/fs/cgroup/job/memory.current", std::to_string(7 * gib) + "\n");
  root.write("sys/fs/cgroup/job/memory.stat",
             "anon 1\ninactive_file " + std::to_string(2 * gib) + "\nslab 5\n");
  root.write("sys/fs/cgroup/job/step/memory.max", "max\n");
  root.write("sys/fs/cgroup/other/memory.max", "4096\n");
  EXPECT_EQ(total(1), 8 * gib - process_bytes);
  EXPECT_EQ(available(), 3 * gib) << "file cache is given back";
  root.write("sys/fs/cgroup/job/step/memory.max", std::to_string(6 * gib) + "\n");
  root.write("sys/fs/cgroup/job/step/memory.current", std::to_string(4 * gib) + "\n");
  EXPECT_EQ(total(1), 6 * gib - process_bytes);
  EXPECT_EQ(available(), 2 * gib);
  EXPECT_EQ(take(node_memory(root.path())).limited_by, "the control group /job/step (memory.max)");
  root.write("sys/fs/cgroup/job/memory.high", std::to_string(5 * gib) + "\n");
  EXPECT_EQ(total(1), 5 * gib - process_bytes) << "the kernel throttles what is above memory.high";
  EXPECT_EQ(available(), 0u);
}

TEST_F(HostMemory, OfVersion1IsTheLeastOfAllControlGroupsOfTheProcess) {
  const std::string top = "sys/fs/cgroup/memory/", limit = "/memory.limit_in_bytes";
  root.write("proc/self/cgroup", "12:cpu,cpuacct:/other\n4:memory:/slurm/job_7\n1:name=systemd:/x\n0::/x\n");
  root.write(top + limit, "9223372036854771712\n");
  root.write(top + "slurm" + limit, std::to_string(10 * gib) + "\n");
  root.write(top + "other" + limit, "4096\n");
  EXPECT_EQ(total(1), 10 * gib - process_bytes);
  root.write(top + "slurm/job_7" + limit, std::to_string(2 * gib) + "\n");
  root.write(top + "slurm/job_7/memory.usage_in_bytes", std::to_string(gib) + "\n");
  root.write(top + "slurm/job_7/memory.stat",
             "inactive_file 1\ntotal_inactive_file " + std::to_string(gib / 2) + "\n");
  EXPECT_EQ(total(2), gib - process_bytes);
  EXPECT_EQ(available(), gib + gib / 2);
}

/// A container sees its own control group as the root; the path it reads is the host's.
TEST_F(HostMemory, OfAContainerIsThatOfTheTop) {
  root.write("proc/self/cgroup", "4:memory:/docker/0123\n0::/../..\n");
  root.write("sys/fs/cgroup/memory/memory.limit_in_bytes", std::to_string(3 * gib) + "\n");
  EXPECT_EQ(total(1), 3 * gib - process_bytes);
  root.write("sys/fs/cgroup/memory.max", std::to_string(2 * gib) + "\n");
  EXPECT_EQ(total(1), 2 * gib - process_bytes);
}

TEST_F(HostMemory, CoresAreLimitedByEitherVersion) {
  root.write("proc/self/cgroup", "0::/job\n3:cpu,cpuacct:/job\n");
  root.write("sys/fs/cgroup/job/cpu.max", "100000 100000\n");
  EXPECT_EQ(take(find_host_share(1, root.path())).cores, 1);
  root.write("sys/fs/cgroup/job/cpu.max", "max 100000\n");
  const int all = take(find_host_share(1, root.path())).cores;
  root.write("sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "-1\n");
  root.write("sys/fs/cgroup/cpu/job/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(take(find_host_share(1, root.path())).cores, all);
  root.write("sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "50000\n");
  EXPECT_EQ(take(find_host_share(1, root.path())).cores, 1);
}

TEST_F(HostMemory, WhatOthersHoldIsNeitherFreeNorUsed) {
  HostDeviceConfig config;
  config.root = root.path();
  const std::unique_ptr<Device> device = open(config);
  const auto expect = [&](std::uint64_t free, std::uint64_t used) {
    const MemoryInfo memory = take(device->memory());
    EXPECT_EQ(memory.total_bytes, 64 * gib);
    EXPECT_EQ(memory.free_bytes, free);
    EXPECT_EQ(memory.used_bytes(), used);
  };
  expect(40 * gib, 0);
  const Buffer taken = take(device->allocate(1 << 20));
  expect(40 * gib, 1 << 20);
  root.write("proc/meminfo", "MemTotal: 67108864 kB\nMemAvailable: 67108864 kB\n");
  expect(64 * gib - (1 << 20), 1 << 20);
}

/// Pages that are allocated but not yet written still count as available for all ranks of the node.
TEST_F(HostMemory, RanksThatAllocateAtTheSameTimeDoNotExceedWhatIsAvailable) {
  root.write("proc/self/cgroup", "0::/job\n");
  root.write("sys/fs/cgroup/job/memory.max", std::to_string(8 * gib) + "\n");
  root.write("sys/fs/cgroup/job/memory.current", std::to_string(6 * gib) + "\n");
  HostDeviceConfig config;
  config.root = root.path();
  config.local_size = 2;
  const std::unique_ptr<Device> first = open(config);
  const Buffer half = take(first->allocate(gib / 2));
  EXPECT_EQ(take(first->memory()).free_bytes, gib) << "as much as is available in equal parts";
  const Status refused = first->allocate(gib + 1).status();
  EXPECT_EQ(refused.code(), StatusCode::out_of_memory);
  EXPECT_NE(refused.what().find("/job (memory.max)"), std::string::npos) << refused.what();
  root.write("sys/fs/cgroup/job/memory.current", std::to_string(7 * gib) + "\n");
  EXPECT_EQ(take(first->memory()).free_bytes, gib / 2) << "of its part at the start";
}

/// The bits of sums, which reveal the summation order, computed with this number of cores.
std::vector<float> sums_with(int cores) {
  constexpr std::int64_t rows = 1000, columns = 96;
  const std::unique_ptr<Device> device = open(with_cores(cores));
  const std::unique_ptr<Stream> stream = take(device->create_stream(StreamPriority::normal));
  const Buffer data = take(device->allocate(3 * rows * columns * 4)), out = take(device->allocate(4096));
  const MatrixView z(data.data(), ElementType::f32, rows, columns);
  const MatrixView x(data.as<float>() + rows * columns, ElementType::f32, rows, columns);
  float* const sums = out.as<float>();
  float* const loss = sums + columns;
  float* const bias = loss + 1;
  EXPECT_TRUE(device->randomize({data.data(), ElementType::f32, 2 * rows * columns}, {}, *stream).ok());
  EXPECT_TRUE(device->set_zero(bias, columns * 4, *stream).ok());
  EXPECT_TRUE(
      device->loss_gradient({z, x, bias, 1, 1.0f, {sums, ElementType::f32, columns}, loss}, *stream).ok());
  EXPECT_TRUE(device->synchronize(*stream, patience_seconds).ok());
  std::vector<float> result(sums, loss + 1);
  EXPECT_TRUE(device->activation_gradient(z, x, {sums, ElementType::f32, columns}, *stream).ok());
  EXPECT_TRUE(device->synchronize(*stream, patience_seconds).ok());
  result.insert(result.end(), sums, loss);
  return result;
}

TEST(HostDevice, SumsDoNotDependOnTheNumberOfCores) {
  const std::vector<float> with_one = sums_with(1);
  EXPECT_EQ(sums_with(2), with_one);
  EXPECT_EQ(sums_with(5), with_one);
}

/// A child process that creates shared pages filled with 7, sends their handle, and exits with its pipe.
class OwnerOfPages {
 public:
  OwnerOfPages() {
    int handles[2], life[2];
    if (pipe(handles) != 0 || pipe(life) != 0) std::abort();
    child_ = fork();
    if (child_ == 0) {
      close(life[1]);
      live(handles[1], life[0]);
    }
    close(handles[1]);
    close(life[0]);
    life_ = life[1];
    char text[512];
    for (ssize_t got; (got = read(handles[0], text, sizeof text)) > 0;)
      handle_.append(text, static_cast<std::size_t>(got));
    close(handles[0]);
  }
  ~OwnerOfPages() { end(); }

  const std::string& handle() const { return handle_; }
  void end() {
    if (child_ <= 0) return;
    close(life_);
    waitpid(child_, nullptr, 0);
    child_ = 0;
  }

 private:
  [[noreturn]] static void live(int handles, int life) {
    {
      const Result<SharedPages> pages = SharedPages::create(4096);
      if (pages.ok()) *static_cast<int*>(pages.value().data()) = 7;
      const std::string text = pages.ok() ? pages.value().handle() : std::string();
      const ssize_t written = write(handles, text.data(), text.size());
      close(handles);
      char none;
      const ssize_t ended = read(life, &none, 1);
      static_cast<void>(written + ended);
    }
    _exit(0);
  }

  pid_t child_ = 0;
  int life_ = -1;
  std::string handle_;
};

TEST(HostProgressReports, EachTaskAndChunkOfTheOpeningThreadIsOneAndNoneOfOthers) {
  std::atomic<int> reports = 0;
  HostDeviceConfig config = with_cores(2);
  config.on_progress = [&] { ++reports; };
  const std::unique_ptr<Device> device = open(config);
  const std::unique_ptr<Stream> stream = take(device->create_stream(StreamPriority::normal));
  const auto enqueue = [&] {
    as_host_stream(*stream).enqueue([&]() -> Status {
      as_host_stream(*stream).share(5, [](std::int64_t) {});
      return {};
    });
  };
  enqueue();
  ASSERT_TRUE(device->synchronize(*stream, patience_seconds).ok());
  EXPECT_EQ(reports, 6);
  std::jthread(enqueue).join();
  ASSERT_TRUE(device->synchronize(*stream, patience_seconds).ok());
  EXPECT_EQ(reports, 6) << "a thread of its own pace would hide that the opening thread hangs";
}

TEST(HostSharedMemory, AnotherProcesssIsOpenedAndOutlivesIt) {
  OwnerOfPages owner;
  const std::unique_ptr<Device> device = open({});
  Buffer opened = take(device->open_shared(owner.handle()));
  EXPECT_EQ(opened.bytes(), 4096u);
  EXPECT_EQ(*opened.as<int>(), 7);
  owner.end();
  EXPECT_EQ(*opened.as<int>(), 7);
  const Status gone = device->open_shared(owner.handle()).status();
  EXPECT_EQ(gone.code(), StatusCode::unavailable);
  EXPECT_NE(gone.what().find("no more"), std::string::npos) << gone.what();
}

TEST(HostSharedMemory, AnotherFileUnderItsNumberIsNotTakenForIt) {
  std::string handle;
  {
    const SharedPages pages = take(SharedPages::create(4096));
    handle = pages.handle();
  }
  const SharedPages later = take(SharedPages::create(4096));  // reuses the number of the former
  const SharedHandle before = take(SharedHandle::parse(handle)),
                     after = take(SharedHandle::parse(later.handle()));
  ASSERT_EQ(before.details, after.details);
  EXPECT_EQ(SharedPages::open(before).status().code(), StatusCode::unavailable);
  EXPECT_TRUE(SharedPages::open(after).ok());
}

}  // namespace
}  // namespace egt
