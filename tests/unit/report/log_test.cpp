#include "report/log.hpp"

#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "tests/support/record_fixtures.hpp"

namespace egt {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

class LogFileTest : public testing::Test {
 protected:
  LogFileTest() {
    std::string name = fs::temp_directory_path() / "egt_log_XXXXXX";
    folder_ = mkdtemp(name.data());
  }
  ~LogFileTest() override { fs::remove_all(folder_); }

  std::string path(const char* name = "burn.log") const { return folder_ / name; }
  std::unique_ptr<LogFile> open(LogLevel level) const {
    auto log = LogFile::open(path(), level);
    EXPECT_TRUE(log.ok()) << log.status().what();
    return std::move(log.value());
  }
  std::vector<std::string> lines() const {
    std::ifstream file(path());
    std::vector<std::string> all;
    for (std::string line; std::getline(file, line);) all.push_back(line);
    return all;
  }
  /// Contents of a log of that level after one record of each level, as "level: rank".
  std::vector<std::string> levels_of(LogLevel level) const {
    {
      const auto log = open(level);
      for (const Record& record :
           {fixtures::progress(0), epoch(), notice("warning", "by the way"), fixtures::fault(1)})
        EXPECT_TRUE(log->write(record).ok());
    }
    std::vector<std::string> levels;
    for (const std::string& line : lines()) {
      const std::size_t begin = line.find(' ') + 1;
      levels.push_back(line.substr(begin, line.find(' ', begin) - begin));
    }
    fs::remove(path());
    return levels;
  }

  static Record epoch() {
    return {.kind = RecordKind::epoch,
            .time = 1015,
            .rank = 0,
            .step = 99,
            .body = {{"epoch", 7}, {"ms", 4247.3}, {"loss", 0.125}, {"precision", "bf16"}}};
  }
  static Record notice(const char* level, const char* text) {
    return {.kind = RecordKind::notice,
            .time = 1769903999.123,
            .rank = 3,
            .body = {{"level", level}, {"text", text}}};
  }

  fs::path folder_;
};

TEST_F(LogFileTest, ARecordIsOneLineWithTimeLevelAndRank) {
  const auto log = open(LogLevel::info);
  ASSERT_TRUE(log->write(notice("warning", "no\ttelemetry:\nnot there\x1b[2J")).ok());
  EXPECT_THAT(lines(), ElementsAre("2026-01-31T23:59:59.123Z warning rank 3: no telemetry: not there [2J"));
}

TEST_F(LogFileTest, ARunIsToldFromStartToEnd) {
  {
    const auto log = open(LogLevel::debug);
    Record typed = fixtures::start(0, 2);
    typed.body["arguments"] = {"burn", "--duration", "60s"};
    for (const Record& record :
         {typed, fixtures::start(1, 2), epoch(), fixtures::injection("memory:rank=1,step=19"),
          fixtures::fault(1), fixtures::progress(1), fixtures::end(0, "signal")})
      ASSERT_TRUE(log->write(record).ok());
  }
  EXPECT_THAT(
      lines(),
      ElementsAre(
          "1970-01-01T00:16:40.000Z info rank 0: started: burn --duration 60s; GPU 0 (NVIDIA H200): "
          "143771 MB total, 143204 MB free on node1",
          "1970-01-01T00:16:40.000Z info rank 1: started: burn --duration 60s; GPU 1 (NVIDIA H200): "
          "143771 MB total, 143204 MB free on node1",
          "1970-01-01T00:16:55.000Z info rank 0: EXTREME EPOCH 7 completed in 4247 ms: loss 0.125, bf16",
          "1970-01-01T00:16:49.000Z error rank 1: Injected on rank 1, step 20: memory, bits 0x00000080 "
          "(weights of layer 3)",
          "1970-01-01T00:16:50.000Z error rank 0: FAULT GPU 1 on node1, UUID GPU-1: memory in block 3; "
          "rank 1, step 40, byte 4096, expected 0x0, actual 0x1 (bit 0), detected by patrol, blame certain",
          "1970-01-01T00:17:10.500Z debug rank 1: step 100, 30 s elapsed, 5.00 GB verified, 402 TFLOP/s, "
          "600 W",
          "1970-01-01T00:17:40.000Z info rank 0: ended (signal): step 100, 30 s elapsed, 5.00 GB "
          "verified, 402 TFLOP/s, 600 W; SIGTERM"));
}

TEST_F(LogFileTest, TheLevelFilters) {
  EXPECT_THAT(levels_of(LogLevel::trace), ElementsAre("debug", "info", "warning", "error"));
  EXPECT_THAT(levels_of(LogLevel::debug), ElementsAre("debug", "info", "warning", "error"));
  EXPECT_THAT(levels_of(LogLevel::info), ElementsAre("info", "warning", "error"));
  EXPECT_THAT(levels_of(LogLevel::warning), ElementsAre("warning", "error"));
  EXPECT_THAT(levels_of(LogLevel::error), ElementsAre("error"));
  EXPECT_THAT(levels_of(LogLevel::off), IsEmpty());
}

TEST_F(LogFileTest, AnEndInErrorIsAnErrorAndSaysWhy) {
  const auto log = open(LogLevel::error);
  ASSERT_TRUE(log->write(fixtures::end(0)).ok());
  ASSERT_TRUE(log->write(fixtures::failed_end(1, StatusCode::timeout, 10)).ok());
  ASSERT_THAT(lines(), SizeIs(1));
  EXPECT_THAT(lines()[0], HasSubstr("Z error rank 1: ended (error): step 10, "));
  EXPECT_THAT(lines()[0], EndsWith("; it did not work"));
}

TEST_F(LogFileTest, WarningsAreThereAtOnceOtherLinesWithinASecond) {
  const auto log = open(LogLevel::info);
  ASSERT_TRUE(log->write(epoch()).ok());
  ASSERT_TRUE(log->flush().ok());
  EXPECT_THAT(lines(), IsEmpty());
  ASSERT_TRUE(log->write(notice("warning", "hot")).ok());
  EXPECT_THAT(lines(), SizeIs(2));
  ASSERT_TRUE(log->write(epoch()).ok());
  std::this_thread::sleep_for(std::chrono::milliseconds(1050));
  ASSERT_TRUE(log->flush().ok());
  EXPECT_THAT(lines(), SizeIs(3));
}

TEST_F(LogFileTest, AnEndIsThereAtOnce) {
  const auto log = open(LogLevel::info);
  ASSERT_TRUE(log->write(fixtures::end(0)).ok());
  EXPECT_THAT(lines(), SizeIs(1));
}

TEST_F(LogFileTest, AnOlderLogIsContinuedAndNeverRemoved) {
  std::ofstream(path()) << "older\n";
  const auto log = open(LogLevel::info);
  ASSERT_TRUE(log->write(notice("warning", "newer")).ok());
  ASSERT_THAT(lines(), SizeIs(2));
  EXPECT_EQ(lines()[0], "older");
  log->discard();
  EXPECT_TRUE(fs::exists(path()));
}

TEST_F(LogFileTest, ANewLogIsRemovedWhereTheRunDidNotBegin) {
  const auto log = open(LogLevel::info);
  EXPECT_TRUE(fs::exists(path()));
  log->discard();
  EXPECT_FALSE(fs::exists(path()));
}

TEST_F(LogFileTest, AFileThatCannotBeOpenedIsToldInOneLineAndNothingIsLeft) {
  mkfifo(path("pipe").c_str(), 0600);
  for (const std::string& bad : {path("missing/burn.log"), folder_.string(), path("pipe")}) {
    const auto log = LogFile::open(bad, LogLevel::info);
    ASSERT_FALSE(log.ok()) << bad;
    EXPECT_EQ(log.status().code(), StatusCode::unavailable);
    EXPECT_THAT(log.status().what(), HasSubstr("--log-file " + bad + ": "));
    EXPECT_EQ(log.status().what().find('\n'), std::string::npos);
  }
  EXPECT_FALSE(fs::exists(path("missing")));
}

TEST_F(LogFileTest, AFullDiskIsAStatusThatNamesTheOption) {
  const auto log = LogFile::open("/dev/full", LogLevel::info);
  ASSERT_TRUE(log.ok()) << log.status().what();
  const Status status = log.value()->write(notice("warning", "hot"));
  EXPECT_EQ(status.code(), StatusCode::io_error);
  EXPECT_THAT(status.what(), HasSubstr("--log-file /dev/full: lines are lost: "));
  EXPECT_THAT(status.what(), HasSubstr("No space left on device"));
}

}  // namespace
}  // namespace egt
