#include <algorithm>
#include <atomic>
#include <filesystem>
#include <functional>
#include <memory>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "egt/workload/file.hpp"
#include "egt/workload/findings.hpp"
#include "workload_fixture.hpp"

namespace egt {
namespace {

using test::eventually;
using test::World;
using ::testing::Contains;
using ::testing::HasSubstr;

constexpr std::uint64_t mebibyte = 1 << 20;

/// What a test lets the file system do; empty functions do nothing beside the real work.
struct Trouble {
  std::function<Status(std::uint64_t offset, std::size_t bytes)> before_write;
  std::function<void(char* data, std::uint64_t offset, std::size_t bytes)> after_read;
  std::function<Status(FileAccess access, bool direct)> before_open;
  std::function<bool()> skip_read;
  std::uint64_t free_bytes = 1ull << 40;
};

class TroubledFile : public OpenFile {
 public:
  TroubledFile(std::unique_ptr<OpenFile> file, const Trouble& trouble)
      : file_(std::move(file)), trouble_(trouble) {}
  Status write(const void* data, std::size_t bytes, std::uint64_t offset) override {
    if (trouble_.before_write) EGT_TRY(trouble_.before_write(offset, bytes));
    return file_->write(data, bytes, offset);
  }
  Status read(void* data, std::size_t bytes, std::uint64_t offset) override {
    if (trouble_.skip_read && trouble_.skip_read()) return {};
    EGT_TRY(file_->read(data, bytes, offset));
    if (trouble_.after_read) trouble_.after_read(static_cast<char*>(data), offset, bytes);
    return {};
  }
  Result<std::uint64_t> size() override { return file_->size(); }
  Status sync() override { return file_->sync(); }
  Status drop_cache() override { return file_->drop_cache(); }

 private:
  const std::unique_ptr<OpenFile> file_;
  const Trouble& trouble_;
};

/// The real file system, with trouble. Direct I/O is never used: temporary folders often lack it.
class TroubledLayer : public FileLayer {
 public:
  explicit TroubledLayer(const Trouble& trouble) : trouble_(trouble) {}
  Result<std::uint64_t> free_bytes(const std::string& directory) override {
    EGT_TRY(real_->free_bytes(directory).status());
    return trouble_.free_bytes;
  }
  Result<std::unique_ptr<OpenFile>> open(const std::string& path, FileAccess access, bool direct) override {
    if (trouble_.before_open) EGT_TRY(trouble_.before_open(access, direct));
    EGT_TRY_ASSIGN(std::unique_ptr<OpenFile> file, real_->open(path, access, false));
    return std::unique_ptr<OpenFile>(new TroubledFile(std::move(file), trouble_));
  }
  Status remove(const std::string& path) override { return real_->remove(path); }

 private:
  const Trouble& trouble_;
  const std::unique_ptr<FileLayer> real_ = make_posix_file_layer();
};

class FileTest : public ::testing::Test {
 protected:
  FileTest() {
    char name[] = "/tmp/egt_file_test.XXXXXX";
    directory_ = ::mkdtemp(name);
  }
  ~FileTest() override { std::filesystem::remove_all(directory_); }

  FileOptions options(std::uint64_t size, int repeats = 2) const {
    return {.enabled = true,
            .directory = directory_,
            .size = size,
            .repeats = repeats,
            .every = 10,
            .budget = {}};
  }
  std::unique_ptr<FileWorkload> make(const FileOptions& options) {
    return std::make_unique<FileWorkload>(world_.environment, options,
                                          std::make_unique<TroubledLayer>(trouble_));
  }
  /// Prepared and started, with the first cycle asked for.
  std::unique_ptr<FileWorkload> run(const FileOptions& options) {
    auto file = make(options);
    EXPECT_TRUE(file->prepare().ok());
    EXPECT_TRUE(file->start().ok());
    EXPECT_TRUE(file->enqueue({.index = 0}).ok());
    return file;
  }
  bool left_behind() const { return !std::filesystem::is_empty(directory_); }
  static std::uint64_t figure(const FileWorkload& file, const char* name) {
    return file.report().figures.at(name).get<std::uint64_t>();
  }
  static bool runs_through(const FileWorkload& file, std::uint64_t cycles) {
    return eventually([&] { return figure(file, "cycles") >= cycles; });
  }

  std::string directory_;
  Trouble trouble_;
  World world_;
};

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

TEST_F(FileTest, AFullDiskEndsThePartAndNotTheRun) {
  trouble_.before_write = [](std::uint64_t offset, std::size_t) {
    return offset == 0 ? Status() : Status(StatusCode::no_space, "disk full, says the test");
  };
  const auto file = run(options(40 * mebibyte));
  ASSERT_TRUE(eventually([&] { return !file->report().success; }));
  ASSERT_TRUE(eventually([&] { return !left_behind(); })) << "its space is given back at once";
  StepOutcome outcome;
  EXPECT_TRUE(file->retire(0, outcome).ok());
  EXPECT_TRUE(file->finish(false).ok());
  EXPECT_THAT(file->report().failure, HasSubstr("disk full"));
  EXPECT_TRUE(world_.faults().empty());
  EXPECT_THAT(world_.notices, Contains(HasSubstr("disk full")));
}

TEST_F(FileTest, AVanishedFileEndsThePart) {
  std::string path;
  trouble_.before_open = [&](FileAccess access, bool) {
    if (access == FileAccess::read) std::filesystem::remove(path);
    return Status();
  };
  const auto file = make(options(mebibyte));
  path = file->paths()[0];
  ASSERT_TRUE(file->prepare().ok());
  EXPECT_TRUE(file->finish(false).ok());
  EXPECT_THAT(file->report().failure, HasSubstr("No such file"));
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

TEST_F(FileTest, TakesFivePercentOfTheFreeSpaceAtMost) {
  trouble_.free_bytes = 1'000'000;
  const auto file = make(options(mebibyte));
  ASSERT_TRUE(file->prepare().ok());
  EXPECT_EQ(figure(*file, "file_bytes"), 50'000 / 4096 * 4096);
  EXPECT_TRUE(file->finish(false).ok());
  EXPECT_EQ(figure(*file, "bytes_written"), 50'000 / 4096 * 4096) << "of all files together";
  world_.faults();
  EXPECT_THAT(world_.notices, Contains(HasSubstr("at most 5 %")));
}

TEST_F(FileTest, NoRoomForOneBlockIsAnError) {
  trouble_.free_bytes = 4096;
  EXPECT_EQ(make(options(mebibyte))->prepare().code(), StatusCode::no_space);
  EXPECT_FALSE(left_behind());
}

TEST_F(FileTest, NamesADirectoryThatIsNotThere) {
  FileOptions asked = options(mebibyte);
  asked.directory = "/nowhere";
  const Status status = make(asked)->prepare();
  EXPECT_EQ(status.code(), StatusCode::unavailable);
  EXPECT_EQ(status.what(), "--io-dir /nowhere: no such directory");
}

TEST_F(FileTest, StopsQuicklyInMidRun) {
  const auto file = run(options(512 * mebibyte, 50));
  ASSERT_TRUE(eventually([&] { return figure(*file, "bytes_written") > 0; }));
  const Clock::time_point start = Clock::now();
  EXPECT_TRUE(file->finish(true).ok());
  EXPECT_LT(seconds_since(start), 0.2);
  EXPECT_FALSE(left_behind());
  EXPECT_TRUE(file->report().success) << file->report().failure;
}

TEST_F(FileTest, ASignalEndsItWithoutWaitingAndTheFileGoes) {
  {
    const auto file = run(options(512 * mebibyte, 50));
    ASSERT_TRUE(eventually([&] { return figure(*file, "bytes_written") > 0; }));
    const Clock::time_point start = Clock::now();
    file->stop_background();
    file->stop_background();  // every step until the ranks agree calls it again
    EXPECT_LT(seconds_since(start), 0.05);
    EXPECT_TRUE(eventually([&] { return !left_behind(); }));
    EXPECT_TRUE(file->finish(true).ok());
  }
  EXPECT_FALSE(left_behind());
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
