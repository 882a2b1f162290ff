#include <fcntl.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/troubled_files.hpp"
#include "workload/file/disk_reserve.hpp"
#include "workload/file/file_claim.hpp"
#include "workload/file/file_workload.hpp"

namespace egt {
namespace {

namespace fs = std::filesystem;
using test::eventually;
using test::FileTest;
using test::mebibyte;
using test::World;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;

constexpr std::uint64_t gigabyte = 1'000'000'000;

TEST(DiskReserve, IsTheLargerOfFivePercentAndAGigabyte) {
  EXPECT_EQ(reserve_of({.free_bytes = 0, .total_bytes = 4 * gigabyte}), gigabyte);
  EXPECT_EQ(reserve_of({.free_bytes = 0, .total_bytes = 100 * gigabyte}), 5 * gigabyte);
  EXPECT_EQ(room_in({.free_bytes = 3 * gigabyte, .total_bytes = 4 * gigabyte}), 2 * gigabyte);
  EXPECT_EQ(room_in({.free_bytes = gigabyte / 2, .total_bytes = 4 * gigabyte}), 0u);
}

/// A failing disk from the file part's view.
class DiskTest : public FileTest {
 protected:
  /// The run's remaining report after a cycle's work.
  PartReport ended(const std::unique_ptr<FileWorkload>& file) {
    EXPECT_TRUE(eventually([&] { return !file->report().success; }));
    EXPECT_TRUE(eventually([&] { return !left_behind(); })) << "its space is given back at once";
    StepOutcome outcome;
    EXPECT_TRUE(file->retire(0, outcome).ok()) << "no reason to end the run";
    EXPECT_TRUE(file->finish(false).ok());
    faults_ = world_.faults();
    return file->report();
  }
  int warnings() const {
    return static_cast<int>(std::count_if(world_.notices.begin(), world_.notices.end(), [](const auto& text) {
      return text.find("the file part ends") != std::string::npos;
    }));
  }
  std::vector<Json> faults_;
};

TEST_F(DiskTest, TakesFivePercentOfTheFreeSpaceAtMost) {
  trouble_.space = {.free_bytes = 2 * gigabyte, .total_bytes = 4 * gigabyte};
  const auto file = make(options(gigabyte));
  ASSERT_TRUE(file->prepare().ok());
  EXPECT_EQ(figure(*file, "file_bytes"), 100'000'000u / 4096 * 4096);
  world_.faults();
  EXPECT_THAT(world_.notices, Contains(HasSubstr("at most 5 %")));
}

TEST_F(DiskTest, LeavesTheReserveThoughEveryRankOfTheHostWrites) {
  world_.place.local_size = 4;
  trouble_.space = {.free_bytes = gigabyte + 4 * (20 * mebibyte), .total_bytes = 4 * gigabyte};
  const auto file = make(options(gigabyte));
  ASSERT_TRUE(file->prepare().ok());
  EXPECT_EQ(figure(*file, "file_bytes"), 4 * mebibyte) << "beside the 16 MiB that are on their way";
}

TEST_F(DiskTest, NoRoomBesideTheReserveIsAnErrorBeforeTheRun) {
  for (const std::uint64_t free : {std::uint64_t{4096}, 16 * mebibyte, gigabyte}) {
    trouble_.space = {.free_bytes = free, .total_bytes = 4 * gigabyte};
    const Status status = make(options(mebibyte))->prepare();
    EXPECT_EQ(status.code(), StatusCode::no_space);
    EXPECT_THAT(status.what(),
                AllOf(HasSubstr("--io-dir " + directory_), HasSubstr("1.00 GB must stay free")));
    EXPECT_FALSE(left_behind());
  }
}

TEST_F(DiskTest, AFullDiskEndsThePartWithAReasonAndLosesNothing) {
  trouble_.before_write = [](std::uint64_t offset, std::size_t) {
    return offset < 16 * mebibyte ? Status()
                                  : Status(StatusCode::no_space, "disk full, says the test", ENOSPC);
  };
  const PartReport report = ended(run(options(40 * mebibyte)));
  EXPECT_THAT(report.failure, AllOf(HasSubstr("disk full"), HasSubstr("1.10 TB of 1.10 TB are free there")));
  EXPECT_EQ(warnings(), 1);
  EXPECT_TRUE(faults_.empty());
  EXPECT_EQ(report.work.bytes_file_verified, 16 * mebibyte) << "what was written is verified";
}

TEST_F(DiskTest, WhatWasWrittenBeforeTheDiskWasFullIsJudged) {
  trouble_.before_write = [](std::uint64_t offset, std::size_t) {
    return offset < 16 * mebibyte ? Status() : Status(StatusCode::no_space, "disk full", ENOSPC);
  };
  trouble_.after_read = [](char* data, std::uint64_t, std::size_t) { data[5000] ^= 1; };
  ended(run(options(40 * mebibyte)));
  ASSERT_EQ(faults_.size(), 1u);
  EXPECT_EQ(faults_[0]["kind"], "file-bit");
}

TEST_F(DiskTest, ADiskThatOthersFillEndsThePartAtItsReserve) {
  trouble_.space = {.free_bytes = 4 * gigabyte, .total_bytes = 40 * gigabyte};
  trouble_.after_write = [&](std::uint64_t) { trouble_.space.free_bytes = 2 * gigabyte - 1; };
  const PartReport report = ended(run(options(40 * mebibyte)));
  EXPECT_THAT(report.failure,
              HasSubstr("full up to its reserve: 2.00 GB are free, of which 2.00 GB must stay"));
  EXPECT_EQ(warnings(), 1);
  EXPECT_EQ(report.work.bytes_file_verified, 16 * mebibyte);
}

TEST_F(DiskTest, WritingOverNeedsNoMoreRoom) {
  trouble_.space = {.free_bytes = 4 * gigabyte, .total_bytes = 40 * gigabyte};
  std::atomic<bool> grown = false;
  trouble_.after_write = [&](std::uint64_t) {
    if (grown) trouble_.space.free_bytes = 2 * gigabyte;  // exactly the reserve
  };
  const auto file = run(options(mebibyte, 4));
  grown = eventually([&] { return figure(*file, "passes") >= 1; });
  EXPECT_TRUE(runs_through(*file, 1));
  EXPECT_TRUE(file->report().success) << file->report().failure;
}

TEST_F(DiskTest, AnErrorOfTheDiskIsOneFaultAndEndsThePart) {
  trouble_.before_read = [](std::uint64_t) { return Status(StatusCode::io_error, "cannot read: EIO", EIO); };
  const PartReport report = ended(run(options(mebibyte)));
  ASSERT_EQ(faults_.size(), 1u);
  EXPECT_EQ(faults_[0]["kind"], "file-error");
  EXPECT_EQ(faults_[0]["where"], "cannot read: EIO");
  EXPECT_EQ(faults_[0]["rank"], 3);
  EXPECT_EQ(report.failure, "cannot read: EIO");
  EXPECT_EQ(warnings(), 1);
}

TEST_F(DiskTest, AReadOnlyFileSystemIsNoFaultOfTheHardware) {
  trouble_.before_write = [](std::uint64_t, std::size_t) {
    return Status(StatusCode::io_error, "Read-only file system", EROFS);
  };
  EXPECT_EQ(ended(run(options(mebibyte))).failure, "Read-only file system");
  EXPECT_TRUE(faults_.empty());
}

TEST_F(DiskTest, ADeletedFileEndsThePart) {
  const auto file = make(options(mebibyte));
  trouble_.after_write = [&](std::uint64_t) { fs::remove(file->paths()[0]); };
  ASSERT_TRUE(file->prepare().ok());
  ASSERT_TRUE(file->start().ok());
  ASSERT_TRUE(file->enqueue({.index = 0}).ok());
  EXPECT_EQ(ended(file).failure, file->paths()[0] + ": the file was deleted or moved while it was in use");
  EXPECT_EQ(warnings(), 1);
  EXPECT_TRUE(faults_.empty()) << "no fault of the hardware";
}

TEST_F(DiskTest, ARemovedDirectoryEndsThePart) {
  const auto file = make(options(mebibyte));
  trouble_.after_write = [&](std::uint64_t) { fs::remove_all(directory_); };
  ASSERT_TRUE(file->prepare().ok());
  EXPECT_TRUE(file->finish(false).ok());
  EXPECT_THAT(file->report().failure, HasSubstr("the file was deleted or moved"));
  fs::create_directory(directory_);
}

TEST_F(DiskTest, AFileInTheOthersPlaceEndsThePart) {
  const auto file = make(options(mebibyte));
  trouble_.after_write = [&](std::uint64_t) {
    std::ofstream(directory_ + "/other") << "x";
    fs::rename(directory_ + "/other", file->paths()[0]);
  };
  ASSERT_TRUE(file->prepare().ok());
  EXPECT_TRUE(file->finish(false).ok());
  EXPECT_THAT(file->report().failure, HasSubstr("the file was replaced"));
}

TEST_F(DiskTest, ATruncatedFileIsOneFaultAndThePartGoesOn) {
  for (const bool in_the_read : {false, true}) {
    World world;
    const FileOptions asked = options(4 * mebibyte, 3);
    test::Trouble trouble;
    FileWorkload file(world.environment, asked, std::make_unique<test::TroubledLayer>(trouble));
    bool done = false;
    const auto cut = [&] {
      if (!std::exchange(done, true)) fs::resize_file(file.paths()[0], mebibyte);
    };
    trouble.after_write = [&](std::uint64_t) { in_the_read ? void() : cut(); };
    trouble.before_read = [&](std::uint64_t) { return in_the_read ? cut() : void(), Status(); };
    ASSERT_TRUE(file.prepare().ok());
    ASSERT_TRUE(file.start().ok());
    ASSERT_TRUE(file.enqueue({.index = 0}).ok());
    ASSERT_TRUE(runs_through(file, 1));
    ASSERT_TRUE(file.finish(false).ok());
    const std::vector<Json> faults = world.faults();
    ASSERT_EQ(faults.size(), 1u) << in_the_read;
    EXPECT_EQ(faults[0]["kind"], "file-truncated");
    EXPECT_EQ(faults[0]["offset"], mebibyte);
    EXPECT_EQ(faults[0]["count"], 256);
    EXPECT_EQ(figure(file, "passes"), 3u);
  }
}

TEST_F(DiskTest, TheBoardNamesASystemCallThatHangs) {
  std::atomic<bool> hangs = true;
  trouble_.before_write = [&](std::uint64_t, std::size_t) {
    while (hangs) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return Status();
  };
  const auto file = run(options(mebibyte, 1));
  const auto activity = [&] { return world_.board.line("file").read(); };
  ASSERT_TRUE(eventually([&] { return activity().phase == "write"; }));
  EXPECT_EQ(activity().step, 0);
  EXPECT_GT(activity().patience_seconds, 60) << "longer than any disk takes for a chunk";
  EXPECT_THAT(activity().file, HasSubstr("extreme_gpu_trainer.rank"));
  hangs = false;
  ASSERT_TRUE(runs_through(*file, 1));
  EXPECT_TRUE(eventually([&] { return activity().phase.empty(); })) << "it rests between cycles";
}

TEST_F(DiskTest, DiskFullOnPurpose) {
  Injection full;
  full.kind = InjectionKind::diskfull;
  full.rank = 3;
  full.step = 0;
  World world(test::small_host_device(), {full});
  FileWorkload file(world.environment, options(mebibyte, 4), std::make_unique<test::TroubledLayer>(trouble_));
  ASSERT_TRUE(file.prepare().ok());
  EXPECT_TRUE(file.finish(false).ok()) << "it strikes at the end where no cycle was asked for";
  EXPECT_TRUE(file.report().success) << "not due yet: no step was made";
  FileWorkload struck(world.environment, options(mebibyte, 4),
                      std::make_unique<test::TroubledLayer>(trouble_));
  ASSERT_TRUE(struck.prepare().ok());
  ASSERT_TRUE(struck.start().ok());
  ASSERT_TRUE(struck.enqueue({.index = 0}).ok());
  ASSERT_TRUE(eventually([&] { return !struck.report().success; }));
  EXPECT_TRUE(struck.finish(false).ok());
  EXPECT_THAT(struck.report().failure, HasSubstr("No space left on device; "));
  int reported = 0;
  for (const Record& record : world.records.drain()) reported += record.kind == RecordKind::injection;
  EXPECT_EQ(reported, 1);
  EXPECT_FALSE(left_behind());
}

TEST_F(DiskTest, ALimitOnTheSizeOfFilesIsAFullDisk) {
  trouble_.real_space = true;
  if (room_in(make_posix_file_layer()->space(directory_).value()) < gigabyte)
    GTEST_SKIP() << directory_ << " has no room";
  const auto before = std::signal(SIGXFSZ, SIG_IGN);
  rlimit limit{};
  ::getrlimit(RLIMIT_FSIZE, &limit);
  const rlimit smaller{.rlim_cur = 100'000, .rlim_max = limit.rlim_max};
  ::setrlimit(RLIMIT_FSIZE, &smaller);
  const PartReport report = ended(run(options(mebibyte)));
  ::setrlimit(RLIMIT_FSIZE, &limit);
  std::signal(SIGXFSZ, before);
  EXPECT_THAT(report.failure, HasSubstr("File too large; "));
}

/// A file system of 16 MB; none if mounting is not permitted.
class SmallDisk {
 public:
  explicit SmallDisk(std::string path) : path_(std::move(path)) {
    fs::create_directory(path_);
    is_mounted_ = ::mount("tmpfs", path_.c_str(), "tmpfs", 0, "size=16m") == 0;
  }
  ~SmallDisk() {
    if (is_mounted_) ::umount2(path_.c_str(), MNT_DETACH);
  }
  bool is_mounted() const { return is_mounted_; }

 private:
  const std::string path_;
  bool is_mounted_ = false;
};

TEST_F(DiskTest, ARealSmallFileSystem) {
  const SmallDisk disk(directory_ + "/small");
  if (!disk.is_mounted()) GTEST_SKIP() << "mounting a tmpfs is not permitted here";
  FileOptions asked = options(10 * gigabyte);
  asked.directory = directory_ + "/small";
  const Status refused = FileWorkload(world_.environment, asked).prepare();
  EXPECT_EQ(refused.code(), StatusCode::no_space);
  EXPECT_THAT(refused.what(), HasSubstr("16.8 MB are free there, of which 1.00 GB must stay free"));
  asked.size = 64 * mebibyte;  // the wrong free space makes the disk full during the run
  const auto file = run(asked);
  ASSERT_TRUE(eventually([&] { return !file->report().success; }));
  ASSERT_TRUE(eventually([&] { return fs::is_empty(asked.directory); }));
  ASSERT_TRUE(file->finish(false).ok());
  const PartReport report = file->report();
  EXPECT_THAT(report.failure, HasSubstr("No space left on device; "));
  EXPECT_EQ(report.figures["bytes_read"], 16 * mebibyte) << "the first chunk just fits";
  EXPECT_THAT(report.figures["mistrusted"].get<std::string>(), HasSubstr("read from the page cache"));
  EXPECT_EQ(report.work.bytes_file_verified, 0u);
}

// Leftover files

TEST(TestFileNames, AreReadAsTheyAreWritten) {
  const TestFileName name{
      .rank = 3, .process = 4711, .run = 0xfedcba9876543210, .index = 1, .hostname = "node-7.a"};
  EXPECT_EQ(to_text(name), "extreme_gpu_trainer.rank3.4711.fedcba9876543210.1@node-7.a.tmp");
  EXPECT_EQ(parse_test_file_name(to_text(name)), name);
  for (const char* other : {"extreme_gpu_trainer.rank3.tmp", "extreme_gpu_trainer.rank3.4711.ab.0node7.tmp",
                            "extreme_gpu_trainer.rank3.0.ab.0@node7.tmp", "x.tmp", "",
                            "extreme_gpu_trainer.rank3.4711.ab.0@node7.tmp.bak"})
    EXPECT_FALSE(parse_test_file_name(other)) << other;
}

class Leftover : public FileTest {
 protected:
  std::string path(std::int64_t process, const char* host = "node7") const {
    return directory_ + "/" +
           to_text({.rank = 1, .process = process, .run = 7, .index = 0, .hostname = host});
  }
  static std::string made(const std::string& path) {
    std::ofstream(path) << std::string(10'000, 'x');
    return path;
  }
  static void age(const std::string& path, std::chrono::hours hours) {
    fs::last_write_time(path, fs::file_time_type::clock::now() - hours);
  }
};

TEST_F(Leftover, OfAKilledRunGoesWithTheNextOne) {
  made(path(::getpid()));  // the system reused the number
  const auto file = make(options(mebibyte));
  ASSERT_TRUE(file->prepare().ok());
  EXPECT_FALSE(fs::exists(path(::getpid())));
  world_.faults();
  EXPECT_THAT(world_.notices, Contains(HasSubstr("io: 1 test file of 10.0 KB that an earlier run left in")));
}

TEST_F(Leftover, ThatAppearsLateGoesAtTheEnd) {
  const auto file = make(options(mebibyte));
  ASSERT_TRUE(file->prepare().ok());
  made(path(1));
  ASSERT_TRUE(file->finish(false).ok());
  EXPECT_FALSE(left_behind());
}

TEST_F(Leftover, AFileInUseStays) {
  const auto claim = claim_file(path(4711));
  ASSERT_TRUE(claim.ok()) << claim.status().what();
  EXPECT_EQ(remove_leftover_files(directory_, "node7").files, 0u);
  age(path(4711), std::chrono::hours(1000));
  EXPECT_EQ(remove_leftover_files(directory_, "node8").files, 0u);
  EXPECT_TRUE(claim.value()->check().ok());
}

TEST_F(Leftover, ALiveRunKeepsItsFiles) {
  const auto file = run(options(64 * mebibyte, 2));
  for (int i = 0; i < 50; ++i) EXPECT_EQ(remove_leftover_files(directory_, "node7").files, 0u);
  EXPECT_TRUE(runs_through(*file, 1));
  EXPECT_TRUE(file->report().success) << file->report().failure;
}

TEST_F(Leftover, AnEmptyFileOfALiveProcessIsBeingMadeByAnotherRank) {
  const std::string made = path(::getpid());
  std::ofstream(made).close();
  EXPECT_EQ(remove_leftover_files(directory_, "node7").files, 0u);
  EXPECT_TRUE(fs::exists(made));
  std::ofstream(made) << "data, and nobody holds the lock";
  EXPECT_EQ(remove_leftover_files(directory_, "node7").files, 1u);
  EXPECT_FALSE(fs::exists(made));
  std::ofstream(made).close();
  fs::last_write_time(made, fs::file_time_type::clock::now() - std::chrono::seconds(5));
  EXPECT_EQ(remove_leftover_files(directory_, "node7").files, 1u) << "nobody makes it any more";
}

TEST_F(Leftover, OfAnotherHostGoesWhenNobodyTouchedItForADay) {
  made(path(1, "node8"));
  EXPECT_EQ(remove_leftover_files(directory_, "node7").files, 0u);
  age(path(1, "node8"), std::chrono::hours(25));
  EXPECT_EQ(remove_leftover_files(directory_, "node7").files, 1u);
}

TEST_F(Leftover, OtherFilesLinksAndFoldersStay) {
  made(directory_ + "/extreme_gpu_trainer.rank0.log");
  made(directory_ + "/other");
  fs::create_symlink(directory_ + "/other", path(1));
  fs::create_directory(path(2));
  EXPECT_EQ(remove_leftover_files(directory_, "node7").files, 0u);
  EXPECT_TRUE(fs::exists(directory_ + "/other"));
}

TEST_F(Leftover, ManyThatClearUpAtOnceTakeNoFileThatIsBeingMade) {
  std::vector<pid_t> children;
  for (int child = 0; child < 3; ++child) {
    children.push_back(::fork());
    if (children.back() != 0) continue;
    std::jthread clears_up([&](const std::stop_token& stop) {
      while (!stop.stop_requested()) remove_leftover_files(directory_, "node7");
    });
    for (int i = 0; i < 600; ++i) {
      // One file of a living process, which all lock briefly but keep, and one of a dead process.
      const std::string own = path(i % 2 == 0 ? ::getpid() : 1'000'000 + child * 1000 + i);
      const auto claim = claim_file(own);
      if (!claim.ok() || !claim.value()->check().ok()) ::_exit(1);
      ::unlink(own.c_str());
    }
    ::_exit(0);
  }
  for (const pid_t child : children) {
    int status = 0;
    ::waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  remove_leftover_files(directory_, "node7");
  EXPECT_FALSE(left_behind());
}

}  // namespace
}  // namespace egt
