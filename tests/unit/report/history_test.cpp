// The files of --history.
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "report/history/history_files.hpp"

namespace egt {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

Json result_of(const std::string& run, const std::string& serial = "132/02") {
  return {{"run_id", run},
          {"verdict", "pass"},
          {"injected", false},
          {"ranks", {{{"rank", 0}, {"hostname", "n"}, {"device", {{"serial", serial}}}}}},
          {"peers", {{"0", {{"compute_tflops", {{"value", 500.25}}}}}}}};
}

class HistoryFiles : public testing::Test {
 protected:
  HistoryFiles() {
    std::string name = fs::temp_directory_path() / "egt_history_XXXXXX";
    folder_ = mkdtemp(name.data());
    file_ = folder_ + "/132_02.jsonl";
  }
  ~HistoryFiles() override { fs::remove_all(folder_); }
  std::string text() const {
    std::ostringstream text;
    text << std::ifstream(file_).rdbuf();
    return text.str();
  }
  void add(const std::string& text) const { std::ofstream(file_, std::ios::app) << text; }
  Status append(const Json& result) const { return append_history(folder_, result, Durability::system); }
  History read() const {
    auto history = read_history(folder_, {"132/02", "without a file"});
    EXPECT_TRUE(history.ok()) << history.status().what();
    return history.ok() ? history.value() : History();
  }

  std::string folder_, file_;
};

TEST_F(HistoryFiles, ALinePerRunAndNoSecondOne) {
  ASSERT_TRUE(append(result_of("a")).ok());
  ASSERT_TRUE(append(result_of("a")).ok());
  ASSERT_TRUE(append(result_of("b")).ok());
  const History history = read();
  ASSERT_THAT(history.lines, SizeIs(2));
  EXPECT_EQ(history.lines[0]["id"], "132/02");
  EXPECT_EQ(history.lines[1]["run_id"], "b");
  EXPECT_EQ(history.lines[1]["values"]["compute_tflops"], 500.25);
  EXPECT_THAT(history.problems, IsEmpty());
  EXPECT_THAT(read_history(folder_).value().lines, SizeIs(2));
}

TEST_F(HistoryFiles, DamagedLinesAreIgnoredAndCounted) {
  ASSERT_TRUE(append(result_of("a")).ok());
  add("\xff\xfe\n\n{\"schema\": 9, \"id\": \"x\", \"run_id\": \"y\"}\n[1]\n{\"schema\": 1, \"id\": ");  // torn
  ASSERT_TRUE(append(result_of("b")).ok());
  const History history = read();
  EXPECT_THAT(history.lines, SizeIs(2)) << "the torn line swallows none\n" << text();
  ASSERT_THAT(history.problems, SizeIs(1));
  EXPECT_THAT(history.problems[0], HasSubstr("132_02.jsonl: 4 damaged lines ignored"));
}

TEST_F(HistoryFiles, NamesLeaveNoDirectory) {
  for (const char* serial : {"../../x", ".", "..", "a/b\n\xff"}) {
    ASSERT_TRUE(append(result_of("a", serial)).ok()) << serial;
    EXPECT_THAT(read_history(folder_, {serial}).value().lines, SizeIs(1)) << serial;
  }
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()), 4);
}

TEST_F(HistoryFiles, WhatCannotBeUsedIsNamed) {
  const auto why = [](const Status& status) {
    EXPECT_EQ(status.code(), StatusCode::unavailable);
    return status.what();
  };
  EXPECT_THAT(why(open_history("/proc/no/where")),
              HasSubstr("--history /proc/no/where: cannot be created: "));
  std::ofstream(folder_ + "/file") << "x";
  EXPECT_THAT(why(open_history(folder_ + "/file")), HasSubstr("/file: cannot be"));
  EXPECT_TRUE(open_history(folder_ + "/new/folder").ok());
  EXPECT_TRUE(fs::is_directory(folder_ + "/new/folder"));
  EXPECT_THAT(why(read_history(folder_ + "/none").status()), HasSubstr("/none: cannot be read: "));
  fs::create_directory(file_);
  EXPECT_THAT(why(read_history(folder_, {"132/02"}).status()), HasSubstr("132_02.jsonl: is no regular file"));
  EXPECT_THAT(append(result_of("a")).what(), HasSubstr("132_02.jsonl: is no regular file"));
}

TEST_F(HistoryFiles, AFullDiskIsAnErrorAndLosesOneLineOnly) {
  ASSERT_TRUE(append(result_of("a")).ok());
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit full{.rlim_cur = fs::file_size(file_) + 20, .rlim_max = before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &full);
  const Status written = append(result_of("b"));
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_THAT(written.what(), HasSubstr("132_02.jsonl: cannot be written: File too large"));
  ASSERT_TRUE(append(result_of("c")).ok());
  const History history = read();
  ASSERT_THAT(history.lines, SizeIs(2)) << text();
  EXPECT_EQ(history.lines[1]["run_id"], "c");
}

TEST_F(HistoryFiles, TheTableHasEveryGpu) {
  for (int run = 0; run < 5; ++run) ASSERT_TRUE(append(result_of(std::to_string(run))).ok());
  Json slow = result_of("5");
  slow["peers"]["0"]["compute_tflops"]["value"] = 400.2;
  ASSERT_TRUE(append(slow).ok());
  ASSERT_TRUE(append(result_of("x", "other")).ok());
  const auto gpus = review_history(read_history(folder_).value().lines);
  const std::string text = history_text(gpus);
  EXPECT_THAT(
      text, testing::ContainsRegex("132/02 +\\| compute rate \\(TFLOP/s\\) \\| +6 of 6 \\| +500.2 \\| +500.2 "
                                   "\\| +400.2 \\| +.* \\| +20.0 % \\| +slower"));
  EXPECT_THAT(text, HasSubstr("132/02: rank 0 on n: compute rate 20.0 % below its own past"));
  EXPECT_THAT(text, testing::ContainsRegex("other +\\| .* 1 of 1 .* too few runs"));
  const Json json = history_json(gpus);
  EXPECT_EQ(json["gpus"][0]["rates"]["compute_tflops"]["is_slower"], true);
  EXPECT_EQ(json["gpus"][0]["findings"].size(), 1u);
  EXPECT_EQ(json["gpus"][1]["rates"]["compute_tflops"]["below_past_percent"], nullptr);
}

}  // namespace
}  // namespace egt
