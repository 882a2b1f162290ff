#include "report/run_watch.hpp"

#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "egt/core/file_io.hpp"
#include "judge/result.hpp"
#include "report/journal/journal.hpp"
#include "tests/support/record_fixtures.hpp"

namespace egt {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

/// A run directory whose journals grow while it is watched.
class RunWatchTest : public testing::Test {
 protected:
  static fs::path new_directory() {
    std::string name = fs::temp_directory_path() / "egt_watch_XXXXXX";
    return mkdtemp(name.data());
  }
  ~RunWatchTest() override { fs::remove_all(directory_); }

  /// A start record of a run on this node, by this process or another one.
  static Record started(int rank, int process) {
    Record record = fixtures::start(rank, 2);
    std::array<char, 256> hostname{};
    EXPECT_EQ(::gethostname(hostname.data(), hostname.size() - 1), 0);
    record.body["identity"]["hostname"] = hostname.data();
    record.body["process"] = process;
    return record;
  }
  /// The id of a process that has exited.
  static int gone() {
    const pid_t child = ::fork();
    if (child == 0) ::_exit(0);
    ::waitpid(child, nullptr, 0);
    return child;
  }
  void add(const Record& record, const char* end = "\n") {
    std::ofstream(directory_ / journal_name(record.rank), std::ios::app) << one_line(to_json(record)) << end;
  }
  void write_result(int part = 0) {
    auto records = fixtures::good_run(2);
    Json result = build_result(records, judge(records));
    result["exit_code"] = 5;
    result["verdict"] = "degraded";
    result["parts_of_run"] = Json::array();
    for (int i = 0; i <= part; ++i) result["parts_of_run"].push_back({{"steps", 1}});
    std::ofstream(directory_ / "result.json") << result_text(result);
  }
  /// 0: the run continues; -1: an error, which is kept.
  int update() {
    const auto code = watch_.update();
    error_ = code.status().what();
    return code.ok() ? code.value().value_or(0) : -1;
  }
  std::string printed() {
    const std::string text = out_.str();
    out_.str("");
    return text;
  }

  const fs::path directory_ = new_directory();
  double now_ = 0;
  std::string error_;
  std::ostringstream out_;
  Console console_{{}, out_, out_, [this] { return now_; }};
  RunWatch watch_{directory_, console_};
};

TEST_F(RunWatchTest, ShowsAJournalAsItGrowsUntilTheRunEnds) {
  std::ofstream(directory_ / journal_name(0)).flush();
  for (int i = 0; i < 10; ++i) EXPECT_EQ(update(), 0);
  EXPECT_EQ(printed(), "") << "it waits for a start record";
  add(started(0, ::getpid()));
  EXPECT_EQ(update(), 0);
  EXPECT_EQ(printed(), "") << "it waits for the other rank";
  add(started(1, ::getpid()));
  add(fixtures::progress(0));
  EXPECT_EQ(update(), 0);
  EXPECT_THAT(printed(), HasSubstr("GPU 1 (NVIDIA H200): 143771 MB total"));
  const std::string line = one_line(to_json(fixtures::fault(1)));
  std::ofstream(directory_ / journal_name(0), std::ios::app)
      << one_line(to_json(fixtures::progress(0))) << "\n"
      << line.substr(0, 40);
  EXPECT_EQ(update(), 0);
  EXPECT_EQ(printed(), "") << "the line is not complete";
  std::ofstream(directory_ / journal_name(0), std::ios::app) << line.substr(40) << "\n";
  EXPECT_EQ(update(), 0);
  EXPECT_THAT(printed(), testing::StartsWith("FAULT GPU 1, UUID GPU-1: memory in block 3\n"));
  now_ = 10;
  add(fixtures::progress(1));
  EXPECT_EQ(update(), 0);
  EXPECT_THAT(printed(), HasSubstr("Z  51 %  30 s elapsed, 30 s left, step 100, 1 fault\n"));
  add(fixtures::end(0));
  add(fixtures::end(1));
  EXPECT_EQ(update(), 0) << "its result is not written yet";
  write_result();
  EXPECT_EQ(update(), 5);
  EXPECT_THAT(printed(), HasSubstr("DEGRADED  node1  2x NVIDIA H200  31 s  0 errors\n"));
}

TEST_F(RunWatchTest, ARunWhoseProcessesAreGoneWithoutAResultIsIncomplete) {
  const int process = gone();
  add(started(0, process));
  add(started(1, process));
  add(fixtures::fault(1));
  EXPECT_EQ(update(), 4);
  const std::string text = printed();
  EXPECT_THAT(text, HasSubstr("FAULT GPU 1"));
  EXPECT_THAT(text, HasSubstr("Warning: " + directory_.string() +
                              ": the run's processes are gone and left no result"));
}

TEST_F(RunWatchTest, AKilledRunWithAResultHasItsExitCode) {
  add(started(0, gone()));
  write_result();
  EXPECT_EQ(update(), 5);
}

TEST_F(RunWatchTest, TheResultOfAnEarlierPartIsNotTheEnd) {
  for (const int rank : {0, 1}) {
    Record resumed = started(rank, ::getpid());
    resumed.body["part"] = 1;
    add(started(rank, gone()));
    add(fixtures::end(rank));
    add(resumed);
  }
  write_result(0);
  EXPECT_EQ(update(), 0) << "it runs";
  for (const int rank : {0, 1}) add(fixtures::end(rank));
  EXPECT_EQ(update(), 0) << "its result is not written yet";
  write_result(1);
  EXPECT_EQ(update(), 5);
}

TEST_F(RunWatchTest, ADirectoryWithoutAJournalIsAnError) {
  EXPECT_EQ(update(), -1);
  EXPECT_THAT(error_, HasSubstr("holds no journal of a run"));
  fs::remove_all(directory_);
  EXPECT_EQ(update(), -1);
}

}  // namespace
}  // namespace egt
