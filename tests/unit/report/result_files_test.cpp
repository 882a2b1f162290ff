#include <gmock/gmock.h>

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "report/export/result_files.hpp"
#include "report/journal/journal.hpp"
#include "session/run_report.hpp"
#include "tests/support/record_fixtures.hpp"

namespace egt {
namespace {

namespace fs = std::filesystem;
using namespace fixtures;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class ResultFiles : public testing::Test {
 protected:
  ResultFiles() {
    std::string name = fs::temp_directory_path() / "egt_result_files_XXXXXX";
    folder_ = mkdtemp(name.data());
  }
  ~ResultFiles() override { fs::remove_all(folder_); }

  std::string text_of(const char* name) const {
    std::ostringstream text;
    text << std::ifstream(folder_ / name).rdbuf();
    return text.str();
  }
  std::vector<std::string> names() const {
    std::vector<std::string> all;
    for (const auto& entry : fs::directory_iterator(folder_)) all.push_back(entry.path().filename());
    std::sort(all.begin(), all.end());
    return all;
  }

  fs::path folder_;
  const Json result_ = report_of(good_run(2)).result;
  const TimeLines lines_;
};

TEST_F(ResultFiles, AreWrittenAndLeftAloneWhereTheyAreTheSame) {
  EXPECT_THAT(write_result_files(folder_, result_, lines_), IsEmpty());
  EXPECT_THAT(names(), ElementsAre("junit.xml", "metrics.prom", "report.html"));
  EXPECT_EQ(text_of("junit.xml"), junit_xml(result_));
  EXPECT_EQ(text_of("metrics.prom"), prometheus_text(result_));
  const auto before = fs::last_write_time(folder_ / "junit.xml") - std::chrono::hours(1);
  fs::last_write_time(folder_ / "junit.xml", before);
  std::ofstream(folder_ / "metrics.prom") << "old";
  EXPECT_THAT(write_result_files(folder_, result_, lines_), IsEmpty());
  EXPECT_EQ(fs::last_write_time(folder_ / "junit.xml"), before);
  EXPECT_EQ(text_of("metrics.prom"), prometheus_text(result_));
}

TEST_F(ResultFiles, ThatCannotBeWrittenAreToldEach) {
  fs::create_directories(folder_ / "junit.xml/taken");
  EXPECT_THAT(write_result_files(folder_, result_, lines_),
              ElementsAre(HasSubstr("junit.xml: cannot be written: ")));
  EXPECT_EQ(text_of("metrics.prom"), prometheus_text(result_)) << "the others are written";
  EXPECT_THAT(names(), ElementsAre("junit.xml", "metrics.prom", "report.html")) << "nothing else is left";
  EXPECT_THAT(write_result_files(folder_ / "none", result_, lines_), testing::SizeIs(3));
}

TEST_F(ResultFiles, OfAnotherResultDoNotStay) {
  ASSERT_THAT(write_result_files(folder_, result_, lines_), IsEmpty());
  for (const ResultFile& file : result_files())  // blocks the target of the rename
    fs::create_directories(folder_ / fmt::format("{}.tmp.{}", file.name, ::getpid()) / "taken");
  EXPECT_THAT(write_result_files(folder_, report_of({start(0, 1)}).result, lines_), testing::SizeIs(3));
  for (const ResultFile& file : result_files()) EXPECT_FALSE(fs::exists(folder_ / file.name)) << file.name;
}

TEST_F(ResultFiles, ThatWereRequestedAreWrittenEach) {
  const RequestedFiles files{.nodes = folder_ / "nodes", .ocp = folder_ / "ocp"};
  EXPECT_THAT(write_requested_files(files, result_), IsEmpty());
  EXPECT_THAT(text_of("nodes"), HasSubstr("pass node1"));
  EXPECT_EQ(text_of("ocp"), ocp_text(result_));
  EXPECT_THAT(write_requested_files({.nodes = folder_ / "no/nodes", .ocp = folder_ / "no/ocp"}, result_),
              ElementsAre(testing::StartsWith("--nodes-file: "), testing::StartsWith("--ocp: ")));
  EXPECT_THAT(write_requested_files({}, result_), IsEmpty());
}

TEST_F(ResultFiles, AreWrittenByReportAndChangeNoVerdict) {
  for (const Record& record : good_run(2)) {
    auto journal = Journal::open(folder_, record.rank, Journal::Mode::resume);
    ASSERT_TRUE(journal.ok() && journal.value()->write(record).ok());
  }
  auto report = report_directory(folder_);
  ASSERT_TRUE(report.ok());
  EXPECT_THAT(report.value().warnings, IsEmpty());
  EXPECT_THAT(text_of("report.html"), HasSubstr("Verdict: pass (exit code 0)"));
  EXPECT_EQ(text_of("junit.xml"), junit_xml(report.value().result));
  EXPECT_EQ(text_of("metrics.prom"), prometheus_text(report.value().result));
  fs::remove(folder_ / "metrics.prom");
  fs::create_directories(folder_ / "metrics.prom/taken");
  report = report_directory(folder_);
  ASSERT_TRUE(report.ok()) << report.status().what();
  EXPECT_EQ(report.value().verdict.exit_code, 0);
  EXPECT_THAT(report.value().warnings, ElementsAre(HasSubstr("metrics.prom: cannot be written: ")));
}

}  // namespace
}  // namespace egt
