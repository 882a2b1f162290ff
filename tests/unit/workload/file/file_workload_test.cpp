#include <algorithm>
#include <atomic>
#include <filesystem>
#include <functional>
#include <memory>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/troubled_files.hpp"
#include "workload/common/findings.hpp"
#include "workload/file/file_workload.hpp"

namespace egt {
namespace {

using test::eventually;
using test::FileTest;
using test::mebibyte;
using ::testing::Contains;
using ::testing::HasSubstr;

TEST_F(FileTest, WritesAndVerifiesEveryPassAndRemovesTheFile) {
  const auto file = run(options(40 * mebibyte, 3));
  EXPECT_TRUE(left_behind());
  EXPECT_EQ(
      std::filesystem::path(file->paths()[0]).filename().string().rfind("extreme_gpu_trainer.rank3.", 0), 0u);
  ASSERT_TRUE(runs_through(*file, 1));
  ASSERT_TRUE(file->finish(false).ok());
  EXPECT_FALSE(left_behind());
  const PartReport report = file->report();
  EXPECT_TRUE(report.success) << report.failure;
  EXPECT_EQ(report.figures["passes"], 3);
  EXPECT_EQ(report.figures["bytes_written"], 120 * mebibyte);
  EXPECT_EQ(report.figures["bytes_read"], 120 * mebibyte);
  const auto reread = report.figures["bytes_reread"].get<std::uint64_t>();
  EXPECT_GE(reread, 4 * 4 * mebibyte) << "a chunk, of 16 or the last 4 MiB, of each file between passes";
  EXPECT_LE(reread, 4 * 16 * mebibyte);
  EXPECT_EQ(report.work.bytes_file_verified, 120 * mebibyte);
  EXPECT_GT(report.figures["write_gb_per_s"].get<double>(), 0);
  EXPECT_GT(report.figures["read_gb_per_s"].get<double>(), 0);
  EXPECT_TRUE(world_.faults().empty());
}

TEST_F(FileTest, WorksOnTheRealFileSystem) {
  FileWorkload file(world_.environment, options(mebibyte));
  ASSERT_TRUE(file.prepare().ok());
  ASSERT_TRUE(file.finish(false).ok());
  EXPECT_TRUE(file.report().success) << file.report().failure;
  EXPECT_EQ(file.report().work.bytes_file_verified, mebibyte);
  EXPECT_FALSE(left_behind());
}

TEST_F(FileTest, OddSizesBecomeWholeBlocks) {
  for (const std::uint64_t size :
       {std::uint64_t{1}, std::uint64_t{4096}, std::uint64_t{10'000}, 16 * mebibyte + 4097}) {
    const auto file = make(options(size));
    ASSERT_TRUE(file->prepare().ok());
    ASSERT_TRUE(file->finish(false).ok());
    EXPECT_EQ(figure(*file, "file_bytes"), std::max<std::uint64_t>(size / 4096, 1) * 4096);
    EXPECT_EQ(file->report().work.bytes_file_verified, figure(*file, "file_bytes"));
  }
}

TEST_F(FileTest, StepsInBetweenAskForNoCycle) {
  const auto file = run(options(4096, 1));
  ASSERT_TRUE(runs_through(*file, 1));
  for (std::int64_t step = 1; step < 10; ++step) ASSERT_TRUE(file->enqueue({.index = step}).ok());
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(figure(*file, "cycles"), 1u);
  ASSERT_TRUE(file->enqueue({.index = 10}).ok());
  EXPECT_TRUE(runs_through(*file, 2));
}

TEST_F(FileTest, NamesAFlippedBit) {
  trouble_.after_read = [](char* data, std::uint64_t offset, std::size_t) {
    if (offset == 16 * mebibyte) data[12'345 * 4 + 2] ^= 0x10;
  };
  const auto file = run(options(36 * mebibyte, 1));
  ASSERT_TRUE(runs_through(*file, 1));
  ASSERT_TRUE(file->finish(true).ok());
  const std::vector<Json> faults = world_.faults();
  ASSERT_EQ(faults.size(), 2u) << "one a file";
  EXPECT_EQ(faults[0]["kind"], "file-bit");
  EXPECT_EQ(faults[0]["detector"], "file read-back");
  EXPECT_EQ(faults[0]["where"], file->paths()[0] + ", pass 1: block 4108: 1 of its 1024 words wrong");
  EXPECT_EQ(faults[1]["where"], file->paths()[1] + ", pass 1: block 4108: 1 of its 1024 words wrong");
  EXPECT_EQ(faults[0]["offset"], 16 * mebibyte + 12'345 * 4);
  EXPECT_EQ(faults[0]["xor"], "0x00100000");
  EXPECT_EQ(faults[0]["count"], 1);
  EXPECT_EQ(faults[0]["step"], 0);
  EXPECT_FALSE(file->report().success);
  EXPECT_EQ(file->report().work.bytes_file_verified, 36 * mebibyte - 8);
}

TEST_F(FileTest, AReadThatBringsNothingIsAFault) {
  trouble_.skip_read = [] { return true; };
  const auto file = run(options(mebibyte, 1));
  ASSERT_TRUE(runs_through(*file, 1));
  ASSERT_TRUE(file->finish(true).ok());
  const std::vector<Json> faults = world_.faults();
  ASSERT_EQ(faults.size(), 2u) << "one a file";
  EXPECT_EQ(faults[0]["kind"], "file-lost");
  EXPECT_EQ(faults[0]["count"], 128);
  EXPECT_EQ(file->report().work.bytes_file_verified, 0u);
  EXPECT_EQ(faults[0]["actual"], "0x00000000");
  EXPECT_EQ(faults[0]["offset"], 0);
}

TEST_F(FileTest, GoesThroughTheCacheWhereDirectWritesAreRefused) {
  std::atomic<int> refused = 0;
  trouble_.before_write = [&](std::uint64_t, std::size_t) {
    return refused++ == 0 ? Status(StatusCode::unsupported, "not direct") : Status();
  };
  const auto file = run(options(mebibyte, 1));
  ASSERT_TRUE(runs_through(*file, 1));
  EXPECT_TRUE(file->finish(false).ok());
  EXPECT_TRUE(file->report().success) << file->report().failure;
  EXPECT_EQ(file->report().figures["direct_io"], false);
  world_.faults();
  EXPECT_THAT(world_.notices, Contains(HasSubstr("direct I/O is not available")));
}

TEST_F(FileTest, KeepsTheBudget) {
  FileOptions asked = options(mebibyte, 50);
  asked.budget = 3 * mebibyte + 5000;
  const auto file = run(asked);
  ASSERT_TRUE(eventually([&] { return figure(*file, "passes") == 3; }));
  ASSERT_TRUE(file->enqueue({.index = 10}).ok());
  EXPECT_TRUE(file->finish(false).ok());
  EXPECT_EQ(figure(*file, "bytes_written"), 3 * mebibyte);
  EXPECT_EQ(figure(*file, "budget_bytes"), 3 * mebibyte + 5000);
  EXPECT_TRUE(file->report().success) << file->report().failure;
  world_.faults();
  EXPECT_THAT(world_.notices, Contains(HasSubstr("--io-budget")));
}

TEST_F(FileTest, WhatIsWrittenForTheRateIsVerifiedAndOfTheBudget) {
  FileOptions asked = options(mebibyte, 50);
  asked.rate_seconds = 0.05;
  asked.budget = 3 * mebibyte;
  std::atomic<std::uint64_t> written = 0;
  trouble_.before_write = [&](std::uint64_t, std::size_t bytes) {
    written += bytes;
    return Status();
  };
  const auto file = run(asked);
  ASSERT_TRUE(eventually([&] { return figure(*file, "passes") == 2; }));
  EXPECT_TRUE(file->finish(false).ok());
  EXPECT_EQ(written, 3 * mebibyte) << "half of the files for the rate, twice: to make them, and to measure";
  EXPECT_EQ(figure(*file, "bytes_written"), 2 * mebibyte);
  EXPECT_GT(file->report().load.files.value_or(0), 0);
  EXPECT_GT(file->report().load.alone["file_gb_per_s"], 0.0);
  // A budget for one pass is too small for a rate.
  asked.budget = mebibyte;
  written = 0;
  const auto once = run(asked);
  ASSERT_TRUE(eventually([&] { return figure(*once, "passes") == 1; }));
  EXPECT_TRUE(once->finish(false).ok());
  EXPECT_EQ(written, mebibyte);
  EXPECT_FALSE(once->report().load.files);
}

TEST_F(FileTest, ADiskThatIsSlowWhereNothingWasWrittenIsNotTakenForSlow) {
  FileOptions asked = options(64 * mebibyte, 50);
  asked.rate_seconds = 0.01;
  std::atomic<std::uint64_t> most = 0;
  trouble_.before_write = [&](std::uint64_t offset, std::size_t bytes) {
    if (offset + bytes > most) std::this_thread::sleep_for(std::chrono::milliseconds(300));
    most = std::max<std::uint64_t>(most, offset + bytes);
    return Status();
  };
  const auto file = make(asked);
  ASSERT_TRUE(file->prepare().ok());
  ASSERT_TRUE(file->start().ok());
  const Clock::time_point loaded = Clock::now();
  ASSERT_TRUE(file->enqueue({.index = 0}).ok());
  ASSERT_TRUE(eventually([&] { return figure(*file, "passes") >= 3; }));
  EXPECT_TRUE(file->finish(false).ok());
  const double seconds = seconds_since(loaded);
  EXPECT_LE(file->report().load.files.value_or(1e9), seconds) << "a share of at most 1";
}

TEST_F(FileTest, FilesInMemoryAreWrittenAndDoNotCount) {
  trouble_.file_system = {.type = "tmpfs", .memory = "tmpfs"};
  const Status refused = make(options(mebibyte))->prepare();
  EXPECT_EQ(refused.code(), StatusCode::unavailable);
  EXPECT_THAT(refused.what(), HasSubstr("--io-dir " + directory_ + ": its files are in memory (tmpfs)"));
  FileOptions asked = options(mebibyte);
  asked.directory = ".";
  const auto file = make(asked);
  ASSERT_TRUE(file->prepare().ok()) << "the default directory";
  ASSERT_TRUE(file->finish(false).ok());
  const PartReport report = file->report();
  EXPECT_TRUE(report.success) << report.failure;
  EXPECT_EQ(report.figures["bytes_read"], mebibyte);
  EXPECT_EQ(report.work.bytes_file_verified, 0u);
  EXPECT_EQ(report.figures["file_system"], "tmpfs");
  EXPECT_EQ(report.figures["mistrusted"], "not a disk test (in memory: tmpfs)");
}

TEST_F(FileTest, AFaultIsFoundInWhatIsWrittenForTheRate) {
  std::atomic<int> reads = 0;
  trouble_.after_read = [&](char* data, std::uint64_t, std::size_t) {
    if (reads++ == 0) data[4096 * 3 + 2000] ^= 0x10;
  };
  FileOptions asked = options(mebibyte, 1);
  asked.rate_seconds = 0.05;
  const auto file = make(asked);
  ASSERT_TRUE(file->prepare().ok());
  ASSERT_TRUE(file->start().ok());
  const std::vector<Json> faults = world_.faults();
  ASSERT_EQ(faults.size(), 1u);
  EXPECT_EQ(faults[0]["kind"], "file-bit");
  EXPECT_TRUE(file->finish(false).ok());
  EXPECT_FALSE(file->report().success);
}

TEST_F(FileTest, NamesADirectoryThatIsNotThere) {
  FileOptions asked = options(mebibyte);
  asked.directory = "/nowhere";
  const Status status = make(asked)->prepare();
  EXPECT_EQ(status.code(), StatusCode::unavailable);
  EXPECT_EQ(status.what(), "--io-dir /nowhere: no such directory");
}

TEST_F(FileTest, StopsInMidRun) {
  const auto file = run(options(512 * mebibyte, 50));
  ASSERT_TRUE(eventually([&] { return figure(*file, "bytes_written") > 0; }));
  EXPECT_TRUE(file->finish(false).ok());
  EXPECT_LT(figure(*file, "passes"), 25u) << "of 50";
  EXPECT_FALSE(left_behind());
  EXPECT_TRUE(file->report().success) << file->report().failure;
}

TEST_F(FileTest, ASignalEndsItWithoutWaitingAndTheFileGoes) {
  {
    const auto file = run(options(512 * mebibyte, 50));
    ASSERT_TRUE(eventually([&] { return figure(*file, "bytes_written") > 0; }));
    file->stop_background();
    file->stop_background();  // every step until the ranks agree calls it again
    EXPECT_TRUE(eventually([&] { return !left_behind(); }));
    EXPECT_TRUE(file->finish(true).ok());
  }
  EXPECT_FALSE(left_behind());
}

TEST_F(FileTest, AWrongReadIsReportedAlsoIfAStopFollows) {
  std::atomic<bool> has_struck{false}, is_stopped{false};
  trouble_.after_read = [&](char* data, std::uint64_t, std::size_t) {
    if (has_struck.exchange(true)) return;
    data[500] ^= 0x20;
    while (!is_stopped) std::this_thread::yield();
  };
  const auto file = run(options(64 * mebibyte));
  EXPECT_TRUE(eventually([&] { return has_struck.load(); }));
  file->stop_background();
  is_stopped = true;
  EXPECT_TRUE(file->finish(true).ok());
  EXPECT_TRUE(eventually([&] { return !world_.faults().empty(); }));
}

TEST_F(FileTest, RemovesTheFileWhenDestroyedWithoutFinish) {
  {
    const auto file = run(options(64 * mebibyte));
    ASSERT_TRUE(left_behind());
  }
  EXPECT_FALSE(left_behind());
}

TEST_F(FileTest, DoesNothingWhenSwitchedOff) {
  FileOptions asked = options(mebibyte);
  asked.enabled = false;
  const auto file = run(asked);
  EXPECT_FALSE(left_behind());
  EXPECT_TRUE(file->finish(false).ok());
  EXPECT_TRUE(file->report().success);
  EXPECT_EQ(file->report().figures["planned"], false);
}

}  // namespace
}  // namespace egt
