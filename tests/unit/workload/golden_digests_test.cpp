#include "workload/train/golden_digests.hpp"

#include <gmock/gmock.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>

namespace egt {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

const std::string h200 = "NVIDIA H200, 132 multiprocessors, driver 580.95, cuBLAS 13.0";
const std::string host = "host, OpenBLAS 0.3.26 \"Haswell\"";
const std::string work = "layers 4, batch 64, seed 42";

Golden example() {
  Golden golden;
  golden.add(h200, work, "fp32", {{"layer 0 output", {1, 2}}, {"layer 0 weight gradient", {3, ~0ull}}});
  golden.add(h200, work, "bf16", {{"layer 0 output", {5, 6}}});
  golden.add(host, work, "fp32", {{"layer 0 output", {7, 8}}});
  return golden;
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

void expect_damaged(const std::string& text, const std::string& what) {
  const auto parsed = Golden::parse(text, "my.json");
  ASSERT_FALSE(parsed.ok()) << text;
  EXPECT_EQ(parsed.status().code(), StatusCode::invalid_argument);
  EXPECT_THAT(parsed.status().what(), StartsWith("my.json: "));
  EXPECT_THAT(parsed.status().what(), HasSubstr(what));
  EXPECT_THAT(parsed.status().what(), Not(HasSubstr("\n")));
}

TEST(Golden, KnowsStackWorkAndPrecisionEachOnItsOwn) {
  const Golden golden = example();
  EXPECT_FALSE(golden.empty());
  ASSERT_NE(golden.find(h200, work, "fp32"), nullptr);
  EXPECT_EQ(golden.find(h200, work, "fp32")->at("layer 0 weight gradient"), (Digest{3, ~0ull}));
  EXPECT_EQ(golden.find(h200, work, "bf16")->at("layer 0 output"), (Digest{5, 6}));
  EXPECT_EQ(golden.find(host, work, "fp32")->at("layer 0 output"), (Digest{7, 8}));
  EXPECT_EQ(golden.find(host, work, "bf16"), nullptr);
  EXPECT_EQ(golden.find(h200, "other work", "fp32"), nullptr);
  EXPECT_EQ(golden.find(h200 + " ", work, "fp32"), nullptr);
}

TEST(Golden, AddingMerges) {
  Golden golden = example();
  golden.add(h200, work, "bf16", {{"layer 1 output", {9, 9}}, {"layer 0 output", {4, 4}}});
  const Golden::Digests expected{{"layer 0 output", {4, 4}}, {"layer 1 output", {9, 9}}};
  EXPECT_EQ(*golden.find(h200, work, "bf16"), expected);
  golden.add(host, "nothing", "fp32", {});
  EXPECT_EQ(golden.find(host, "nothing", "fp32"), nullptr);
  EXPECT_TRUE(Golden().empty());
}

TEST(Golden, IsReadBackFromItsText) {
  const Golden golden = example();
  const auto parsed = Golden::parse(golden.text(), "my.json");
  ASSERT_TRUE(parsed.ok()) << parsed.status().what();
  EXPECT_EQ(parsed.value(), golden);
  EXPECT_EQ(parsed.value().text(), golden.text());
}

TEST(Golden, TheOrderOfAddingDoesNotShow) {
  Golden other;
  other.add(host, work, "fp32", {{"layer 0 output", {7, 8}}});
  other.add(h200, work, "bf16", {{"layer 0 output", {5, 6}}});
  other.add(h200, work, "fp32", {{"layer 0 weight gradient", {3, ~0ull}}});
  other.add(h200, work, "fp32", {{"layer 0 output", {1, 2}}});
  EXPECT_EQ(other.text(), example().text());
}

TEST(Golden, ItsTextIsForPeopleToo) {
  Golden golden;
  golden.add("device", "work", "fp32", {{"loss", {1, 2}}});
  EXPECT_EQ(golden.text(), R"({
  "checksum": "02c7434714f333bd65aae27722770da2",
  "golden": [
    {
      "device_model": "device",
      "digests": {
        "loss": "00000000000000010000000000000002"
      },
      "precision": "fp32",
      "work": "work"
    }
  ],
  "schema": 1
}
)");
}

TEST(Golden, ANameThatIsNotUtf8IsWrittenAllTheSame) {
  Golden golden;
  golden.add("device \xff", "work", "fp32", {{"loss", {1, 2}}});
  EXPECT_TRUE(Golden::parse(golden.text(), "my.json").ok());
}

TEST(Golden, ATextCutOffAnywhereIsDamaged) {
  const std::string text = example().text();
  for (std::size_t size = 0; size < text.size() - 2; ++size)  // without the last brace
    expect_damaged(text.substr(0, size), "parse error at line ");
  expect_damaged("", "at line 1, column 1: ");
}

TEST(Golden, DamageIsToldWithItsPlace) {
  const std::string text = example().text();
  expect_damaged(replaced(text, "\"golden\": [",
                          "\"golden\": ["
                          "\n  oops"),
                 "parse error at line 4, column ");
  expect_damaged(text + "x", "parse error at line ");
  expect_damaged("\x89PNG\r\n", "parse error at line 1, column 1");
  expect_damaged("[]", "type_error");
  expect_damaged("null", "type_error");
  expect_damaged("{}", "key 'schema' not found");
  expect_damaged(R"({"schema": 1})", "key 'golden' not found");
  expect_damaged(R"({"schema": 1, "golden": {}})", "type must be array, but is object");
  expect_damaged(R"({"schema": 1, "golden": [7]})", "entry 0: ");
  expect_damaged(replaced(text, "\"precision\": \"bf16\"", "\"precision\": 16"),
                 "entry 0: [json.exception.type_error.302] type must be string, but is number");
  expect_damaged(replaced(text, "\"work\"", "\"werk\""),
                 "entry 0: [json.exception.out_of_range.403] key 'work' not found");
}

TEST(Golden, AnotherSchemaIsRefused) {
  for (const char* other : {"0", "2", "-1", "4294967297", "18446744073709551615"})
    expect_damaged(replaced(example().text(), "\"schema\": 1", std::string("\"schema\": ") + other),
                   std::string("schema ") + other + " is not known, only 1");
}

TEST(Golden, DamagedDigestsAreRefused) {
  const std::string digits = to_string(Digest{5, 6});
  for (const std::string& bad : {digits.substr(1), digits + "0", replaced(digits, "0", "g"), std::string()})
    expect_damaged(replaced(example().text(), digits, bad), "entry 0: digest of 'layer 0 output' is not 32");
  const std::string entry = R"({"schema": 1, "golden": [{"device_model": "", "work": "", "precision": "",)";
  expect_damaged(entry + R"("digests": {"a": 5}}]})",
                 "entry 0: [json.exception.type_error.302] type must be string");
  expect_damaged(entry + R"("digests": {}}]})", "entry 0: it has no digests");
  expect_damaged(entry + R"("digests": []}]})",
                 "entry 0: [json.exception.type_error.302] type must be object, but is array");
  expect_damaged(entry + R"("digest": {}}]})",
                 "entry 0: [json.exception.out_of_range.403] key 'digests' not found");
}

TEST(Golden, TheSameTwiceIsRefused) {
  expect_damaged(replaced(example().text(), "\"bf16\"", "\"fp32\""), "entry 1: repeats another's");
}

TEST(Golden, AnyFlippedBitIsRefusedOrChangesNothing) {
  const std::string text = example().text();
  for (std::size_t place = 0; place < text.size(); ++place)
    for (int bit = 0; bit < 8; ++bit) {
      std::string flipped = text;
      flipped[place] = static_cast<char>(flipped[place] ^ (1 << bit));
      const auto parsed = Golden::parse(flipped, "my.json");
      if (parsed.ok())
        ASSERT_EQ(parsed.value().text(), text);
      else
        ASSERT_EQ(parsed.status().code(), StatusCode::invalid_argument);
    }
}

class GoldenFile : public testing::Test {
 protected:
  GoldenFile() {
    std::string name = fs::temp_directory_path() / "egt_golden_XXXXXX";
    folder_ = mkdtemp(name.data());
    path_ = folder_ / "golden.json";
  }
  ~GoldenFile() override { fs::remove_all(folder_); }

  std::ptrdiff_t entries() const {
    return std::distance(fs::directory_iterator(folder_), fs::directory_iterator());
  }
  void expect_unreadable(const fs::path& path, const std::string& what) const {
    const auto read = read_golden(path);
    ASSERT_FALSE(read.ok()) << path;
    EXPECT_EQ(read.status().code(), StatusCode::unavailable);
    EXPECT_THAT(read.status().what(), HasSubstr(path.string()));
    EXPECT_THAT(read.status().what(), HasSubstr(what));
  }

  fs::path folder_, path_;
};

TEST_F(GoldenFile, IsReadBackAsWritten) {
  ASSERT_TRUE(write_golden(path_, example()).ok());
  const auto read = read_golden(path_);
  ASSERT_TRUE(read.ok()) << read.status().what();
  ASSERT_TRUE(read.value());
  EXPECT_EQ(*read.value(), example());
  EXPECT_EQ(entries(), 1);
}

TEST_F(GoldenFile, NoneYetIsNoError) {
  const auto read = read_golden(path_);
  ASSERT_TRUE(read.ok()) << read.status().what();
  EXPECT_FALSE(read.value());
  EXPECT_EQ(entries(), 0);
}

TEST_F(GoldenFile, NoneYetWhereNoneCanBeMadeIsToldAtOnce) {
  expect_unreadable(folder_ / "none" / "golden.json", "cannot be made: No such file or directory");
}

TEST_F(GoldenFile, WhatIsNoFileIsUnavailable) {
  expect_unreadable(folder_, "no regular file");
  expect_unreadable("/dev/null", "no regular file");
  ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);
  expect_unreadable(path_, "no regular file");
  std::ofstream(folder_ / "file") << "x";
  expect_unreadable(folder_ / "file" / "golden.json", "Not a directory");
}

TEST_F(GoldenFile, WithoutPermissionItIsUnavailable) {
  if (::geteuid() == 0) GTEST_SKIP() << "root may read everything";
  ASSERT_TRUE(write_golden(path_, example()).ok());
  ASSERT_EQ(::chmod(path_.c_str(), 0), 0);
  expect_unreadable(path_, "Permission denied");
}

TEST_F(GoldenFile, ADamagedOneIsWrongUsage) {
  std::ofstream(path_) << example().text().substr(0, 100);
  const auto read = read_golden(path_);
  ASSERT_FALSE(read.ok());
  EXPECT_EQ(read.status().code(), StatusCode::invalid_argument);
  EXPECT_THAT(read.status().what(), HasSubstr(path_.string()));
}

TEST_F(GoldenFile, AHugeOneIsNotReadWhole) {
  std::ofstream(path_) << " ";
  fs::resize_file(path_, std::uintmax_t{1} << 40);
  const auto read = read_golden(path_);
  ASSERT_FALSE(read.ok());
  EXPECT_EQ(read.status().code(), StatusCode::unavailable);
  EXPECT_THAT(read.status().what(), HasSubstr("is too large: 1099511627776 bytes"));
}

TEST_F(GoldenFile, AFailedWriteLeavesTheOldOneAndNothingElse) {
  ASSERT_TRUE(write_golden(path_, example()).ok());
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  ::getrlimit(RLIMIT_FSIZE, &before);
  const rlimit full{20, before.rlim_max};
  ::setrlimit(RLIMIT_FSIZE, &full);
  const Status written = write_golden(path_, Golden());
  ::setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(written.code(), StatusCode::no_space) << written.what();
  EXPECT_EQ(entries(), 1);
  const auto read = read_golden(path_);
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(*read.value(), example());
}

TEST_F(GoldenFile, WhereItCannotBeWrittenIsUnavailable) {
  EXPECT_EQ(write_golden(folder_ / "none" / "golden.json", example()).code(), StatusCode::unavailable);
  fs::create_directory(path_);
  EXPECT_EQ(write_golden(path_, example()).code(), StatusCode::unavailable);
  EXPECT_EQ(entries(), 1);
}

const std::vector<std::string> two_questions = {"layer 0 output", "layer 0 weight gradient"};

TEST(Golden, AnswersEveryQuestionInItsOrder) {
  const auto answers = example().answers(h200, work, "fp32", two_questions, "my.json");
  ASSERT_TRUE(answers.ok() && answers.value());
  EXPECT_EQ(*answers.value(), (Answers{{1, 2}, {3, ~0ull}}));
}

TEST(Golden, AFileThatLacksATensorOfTheWorkIsDamaged) {
  const auto answers = example().answers(h200, work, "bf16", two_questions, "my.json");
  EXPECT_EQ(answers.status().code(), StatusCode::invalid_argument);
  EXPECT_THAT(answers.status().what(), HasSubstr("my.json: "));
  EXPECT_THAT(answers.status().what(), HasSubstr("it lacks the digest of 'layer 0 weight gradient' in bf16"));
}

TEST(Golden, APrecisionThatIsNotInTheFileHasNoAnswers) {
  const auto answers = example().answers(h200, work, "tf32", two_questions, "my.json");
  ASSERT_TRUE(answers.ok());
  EXPECT_FALSE(answers.value());
}

TEST(Golden, AnEmptyListIsDamaged) {
  expect_damaged(R"({"schema": 1, "golden": []})", "its list 'golden' is empty");
}

}  // namespace
}  // namespace egt
