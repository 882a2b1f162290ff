#include "session/run_report.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "egt/core/file_io.hpp"
#include "judge/result.hpp"
#include "report/journal/journal.hpp"
#include "session/resumed_run.hpp"
#include "session/selftest/selftest_report.hpp"
#include "tests/support/record_fixtures.hpp"
#include "tests/support/selftest_fixtures.hpp"

namespace egt {
namespace {

namespace fs = std::filesystem;
using namespace fixtures;
using testing::ElementsAre;
using testing::HasSubstr;

class RunReports : public testing::Test {
 protected:
  RunReports() {
    std::string name = fs::temp_directory_path() / "egt_run_report_XXXXXX";
    folder_ = mkdtemp(name.data());
  }
  ~RunReports() override { fs::remove_all(folder_); }

  /// One journal per rank; irrelevant records are interleaved.
  void write(const std::vector<Record>& records) {
    for (const Record& record : records) {
      auto journal = Journal::open(folder_, record.rank, Journal::Mode::resume);
      ASSERT_TRUE(journal.ok()) << journal.status().what();
      Record notice = record;
      notice.kind = RecordKind::notice;
      notice.body = {{"level", "info"}, {"text", "nothing"}};
      for (const Record& one : {notice, record}) ASSERT_TRUE(journal.value()->write(one).ok());
    }
  }
  std::string result() const {
    std::ostringstream text;
    text << std::ifstream(folder_ / "result.json").rdbuf();
    return text.str();
  }
  RunReport reported() {
    auto report = report_directory(folder_);
    EXPECT_TRUE(report.ok()) << report.status().what();
    return report.ok() ? report.value() : RunReport();
  }

  fs::path folder_;
};

/// All kinds of events of a run.
std::vector<Record> eventful_run() {
  std::vector<Record> records = good_run(3);
  for (const int rank : {2, 0, 1}) {
    records.push_back(fault(rank));
    records.push_back(finding(rank));
    records.push_back(restart(1, 1, rank));
    records.push_back(loss(1, Loss::How::stuck, rank, 1030 + rank));
  }
  return records;
}

TEST_F(RunReports, WriteWhatTheRunWrote) {
  for (const auto& records : {good_run(2), eventful_run(), resumed(eventful_run(), 3)}) {
    const Verdict verdict = judge(records);
    const std::string text = result_text(build_result(records, verdict));
    write(records);
    const RunReport report = reported();
    EXPECT_EQ(report.verdict.exit_code, verdict.exit_code);
    EXPECT_EQ(report.verdict.reasons, verdict.reasons);
    EXPECT_EQ(result(), text);
    for (const auto& entry : fs::directory_iterator(folder_)) fs::remove(entry);
  }
}

TEST_F(RunReports, LeaveAResultThatIsTheSameAlone) {
  write(good_run(2));
  reported();
  const auto written = fs::last_write_time(folder_ / "result.json") - std::chrono::hours(1);
  fs::last_write_time(folder_ / "result.json", written);
  reported();
  EXPECT_EQ(fs::last_write_time(folder_ / "result.json"), written);
  std::ofstream(folder_ / "result.json") << "{";
  reported();
  EXPECT_EQ(Json::parse(result())["verdict"], "pass");
}

TEST_F(RunReports, OfARunThatWasCutNameWhoVanished) {
  write({start(0, 2), start(1, 2), progress(0), progress(1)});
  const RunReport report = reported();
  EXPECT_EQ(report.verdict.exit_code, 4);
  EXPECT_THAT(report.verdict.reasons,
              ElementsAre("rank 0 was lost: it left no end record; last seen at step 99",
                          "rank 1 was lost: it left no end record; last seen at step 99"));
  EXPECT_EQ(Json::parse(result())["verified_work"]["replica_checks"], 6);
}

TEST_F(RunReports, WithWhatCannotBeReadNeverPass) {
  write(good_run(2));
  std::ofstream(folder_ / "journal.rank1.jsonl", std::ios::app) << "torn in the middle\n{}\n";
  const RunReport report = reported();
  EXPECT_EQ(report.verdict.name, "incomplete");
  EXPECT_EQ(report.verdict.exit_code, 4);
  EXPECT_THAT(report.verdict.reasons, ElementsAre(HasSubstr("journal.rank1.jsonl: line 7 is no record"),
                                                  HasSubstr("journal.rank1.jsonl: line 8 is no record")));
  EXPECT_EQ(Json::parse(result())["exit_code"], 4);
}

TEST_F(RunReports, ATornLastLineIsNoProblem) {
  write(good_run(2));
  std::ofstream(folder_ / "journal.rank1.jsonl", std::ios::app) << R"({"kind":"not)";
  EXPECT_EQ(reported().verdict.name, "pass");
}

TEST_F(RunReports, WithoutARecordAreIncomplete) {
  std::ofstream(folder_ / "journal.rank0.jsonl").close();
  EXPECT_THAT(reported().verdict.reasons, ElementsAre("no rank left a record"));
}

/// Three ranks of one run, the last of which has a fault.
std::vector<Record> faulty_run(const char* run_id = "a1") {
  std::vector<Record> records = good_run(3);
  for (Record& record : records)
    if (record.kind == RecordKind::start) record.body["run_id"] = run_id;
  records.push_back(fault(2));
  records.back().rank = 2;  // only in that rank's journal
  return records;
}

TEST_F(RunReports, WithoutAJournalKeepTheHeavierEarlierResult) {
  write(faulty_run());
  EXPECT_EQ(reported().verdict.exit_code, 1);
  const std::string earlier = result();
  fs::remove(folder_ / "journal.rank2.jsonl");
  const RunReport report = reported();
  EXPECT_EQ(report.verdict.name, "fault");
  EXPECT_EQ(report.verdict.exit_code, 1);
  EXPECT_EQ(report.result, Json::parse(earlier)) << "with its nodes";
  EXPECT_EQ(result(), earlier);
  EXPECT_THAT(report.warnings, ElementsAre("missing journals: rank 2; the earlier result (fault) is kept"));
}

TEST_F(RunReports, WithoutAJournalKeepAnEquallyHeavyResultThatHadIt) {
  std::vector<Record> records = faulty_run();
  records.push_back(fault(0, 20));
  write(records);
  EXPECT_EQ(reported().verdict.exit_code, 1);
  const std::string earlier = result();
  fs::remove(folder_ / "journal.rank2.jsonl");
  EXPECT_EQ(reported().result["faults"].size(), 2u);
  EXPECT_EQ(result(), earlier);
}

TEST_F(RunReports, ReplaceTheResultOfAnotherRunAndOneWithLessEvidence) {
  write(faulty_run("another"));
  reported();
  for (const int rank : {0, 1, 2}) fs::remove(folder_ / fmt::format("journal.rank{}.jsonl", rank));
  std::vector<Record> records = faulty_run();
  std::erase_if(records, [](const Record& record) { return record.rank == 2; });
  write(records);
  EXPECT_EQ(reported().verdict.exit_code, 4) << "the earlier result is of another run";
  std::vector<Record> rest = faulty_run();
  std::erase_if(rest, [](const Record& record) { return record.rank != 2; });
  write(rest);
  EXPECT_EQ(reported().verdict.exit_code, 1);
}

TEST_F(RunReports, AreRefusedWhereThereIsNothingToJudge) {
  EXPECT_EQ(report_directory(folder_ / "none").status().code(), StatusCode::unavailable);
  EXPECT_EQ(report_directory(folder_).status().code(), StatusCode::unavailable);
  EXPECT_TRUE(fs::is_empty(folder_));
  auto records = good_run(1);
  records[0].body.update({{"journal_schema", 2}, {"program_version", "9.0.0"}});
  write(records);
  const auto later = report_directory(folder_);
  EXPECT_EQ(later.status().code(), StatusCode::unsupported);
  EXPECT_THAT(later.status().what(), HasSubstr("of version 9.0.0"));
  EXPECT_FALSE(fs::exists(folder_ / "result.json"));
}

TEST_F(RunReports, ThatCannotBeWrittenSaySo) {
  write(good_run(1));
  fs::create_directory(folder_ / "result.json");
  const auto report = report_directory(folder_);
  EXPECT_EQ(report.status().code(), StatusCode::io_error);
  EXPECT_THAT(report.status().what(), HasSubstr("result.json: cannot be written"));
}

std::vector<Record> selftest_run(const std::function<bool(const Injection&)>& is_found) {
  std::vector<Record> records = good_run(2);
  for (Record& record : records)
    if (record.kind == RecordKind::start)
      record.body.update(
          {{"command", "selftest"},
           {"options",
            {{"layers", {128, 256, 192}}, {"extreme-iterations", 2}, {"memory", "90%"}, {"no-io", false}}}});
  const SelftestPlan plan = plan_of(records[0].body);
  for (const Record& record : fixtures::records_of(plan, is_found)) records.push_back(record);
  return records;
}

TEST(RunReport, OfASelftestJudgesItsScore) {
  const RunReport all = report_of(selftest_run([](const Injection&) { return true; }));
  EXPECT_EQ(all.verdict.name, "pass") << testing::PrintToString(all.verdict.reasons);
  EXPECT_THAT(all.summary, HasSubstr("file-lost"));
  EXPECT_EQ(all.result["results"][0]["test_type"], "selftest");
  const RunReport missed = report_of(selftest_run(
      [](const Injection& one) { return !(one.kind == InjectionKind::memory && one.rank == 1); }));
  EXPECT_EQ(missed.verdict.exit_code, 1);
  EXPECT_THAT(missed.verdict.reasons, testing::Contains(HasSubstr("memory: ")));
}

TEST(RunReport, TellsOfAllPartsOfARun) {
  const std::vector<Record> cut = {start(0, 2), start(1, 2), progress(0, 40), progress(1, 39)};
  const Json result = report_of(resumed(cut, 2)).result;
  const Json& parts = result["parts_of_run"];
  ASSERT_EQ(parts.size(), 2u);
  EXPECT_EQ(parts[0]["steps"], 40);
  EXPECT_TRUE(parts[0]["end_reason"].is_null());
  EXPECT_EQ(parts[0]["started_at"], "1970-01-01T00:16:40.000Z");
  EXPECT_EQ(parts[1]["steps"], 100);
  EXPECT_EQ(parts[1]["end_reason"], "duration");
  EXPECT_EQ(result["ranks"][0]["steps"], 140);
  EXPECT_EQ(result["verified_work"]["replica_checks"], 4 * 3);
  EXPECT_EQ(result["test_summary"]["actual_duration_seconds"], 61.0);
  EXPECT_EQ(result["system_info"]["started_at"], parts[0]["started_at"]);
  EXPECT_EQ(result["system_info"]["ended_at"], parts[1]["ended_at"]);
}

TEST(RunReport, NamesEachLossFindingAndRestartOnce) {
  const Json result = report_of(eventful_run()).result;
  ASSERT_EQ(result["losses"].size(), 1u);
  EXPECT_EQ(result["losses"][0]["rank"], 1);
  EXPECT_EQ(result["losses"][0]["device_uuid"], "GPU-1");
  EXPECT_EQ(result["losses"][0]["time"], "1970-01-01T00:17:10.000Z");
  EXPECT_EQ(result["findings"].size(), 3u);
  EXPECT_EQ(result["restarts"].size(), 1u);
  EXPECT_EQ(result["faults"].size(), 3u);
}

std::vector<Record> cut_run() {
  std::vector<Record> records = {start(0, 2), start(1, 2), progress(0, 40), progress(1, 39)};
  for (Record& record : records) record.body["elapsed_seconds"] = 20.0 + record.rank;
  return records;
}

ResumePoint point_of(const std::vector<Record>& records) {
  auto point = resume_point_of("DIR", records);
  EXPECT_TRUE(point.ok()) << point.status().what();
  return point.ok() ? point.value() : ResumePoint();
}

TEST(Resume, GoesOnAfterWhatEveryRankHasDone) {
  const ResumePoint point = resume_point_from(to_json(point_of(cut_run())));
  EXPECT_FALSE(point.is_complete);
  EXPECT_EQ(point.part, 1);
  EXPECT_EQ(point.size, 2);
  EXPECT_EQ(point.steps, 39);
  EXPECT_EQ(point.arguments, (std::vector<std::string>{"--duration", "60s"}));
  EXPECT_EQ(seconds_left(60, point), 40);
  EXPECT_EQ(seconds_left(20, point), 1);
  EXPECT_EQ(seconds_left(std::nullopt, point), std::nullopt);
  EXPECT_EQ(steps_left(100, point), 61);
  EXPECT_EQ(steps_left(30, point), 1);
  auto again = resumed(cut_run(), 2);
  remove(again, RecordKind::end, 0);
  remove(again, RecordKind::end, 1);
  EXPECT_EQ(point_of(again).part, 2);
  EXPECT_EQ(point_of(again).steps, 139);
}

TEST(Resume, ARunThatEndedByItselfIsComplete) {
  EXPECT_TRUE(point_of(good_run(2)).is_complete);
  EXPECT_EQ(point_of(good_run(2)).verdict, "pass");
  auto records = good_run(2);
  find(records, RecordKind::end, 1) = end(1, "signal");
  EXPECT_FALSE(point_of(records).is_complete) << "it was told to stop";
  records = good_run(2);
  remove(records, RecordKind::end, 1);
  EXPECT_FALSE(point_of(records).is_complete);
  records = good_run(2);
  records[0].body["size"] = 3;
  EXPECT_FALSE(point_of(records).is_complete) << "a rank left nothing";
  EXPECT_TRUE(point_of(resumed(cut_run(), 2)).is_complete);
  EXPECT_EQ(resume_point_of("DIR", {progress(0)}).status().what(),
            "--resume DIR: it was cut before it began; start a new run");
}

TEST(Resume, RefusesAFaultThatOnlyTheResultShows) {
  std::string folder = std::filesystem::temp_directory_path() / "egt_resume_XXXXXX";
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  auto records = cut_run();
  for (Record& record : records)
    if (record.kind == RecordKind::start) record.body["run_id"] = "abc";
  const auto with_result = [&](const Json& result) {
    std::ofstream(folder + "/result.json") << result.dump();
    return resume_point_of(folder, records).status();
  };
  EXPECT_TRUE(with_result({{"verdict", "incomplete"}, {"run_id", "abc"}}).ok());
  EXPECT_TRUE(with_result({{"verdict", "fault"}, {"run_id", "of another run"}}).ok());
  const Status refused = with_result({{"verdict", "fault"}, {"run_id", "abc"}});
  EXPECT_EQ(refused.code(), StatusCode::invalid_argument);
  EXPECT_THAT(refused.what(), HasSubstr("its result.json has the verdict fault"));
  std::ofstream(folder + "/result.json") << "torn";
  EXPECT_TRUE(resume_point_of(folder, records).ok());
  std::filesystem::remove_all(folder);
}

TEST(Resume, RefusesWhatIsNotTheSameRun) {
  ResumePoint point = point_of(cut_run());
  EXPECT_TRUE(check_resume("DIR", point, 2, point.program_version).ok());
  EXPECT_EQ(check_resume("DIR", point, 3, point.program_version).what(),
            "--resume DIR: that run has 2 ranks, not 3; use mpirun --quiet -np 2");
  EXPECT_THAT(check_resume("DIR", point, 2, "99.0").what(), HasSubstr("this is 99.0; use that one"));
  ASSERT_EQ(point.nodes.size(), 2u);
  EXPECT_TRUE(check_same_node("DIR", point, 1, "node1").ok());
  EXPECT_THAT(check_same_node("DIR", point, 1, "elsewhere").what(),
              HasSubstr("rank 1 ran on node1, not on elsewhere; go on there"));
  point.command = "selftest";
  EXPECT_EQ(check_resume("DIR", point, 2, point.program_version).what(),
            "--resume DIR: holds a selftest; only a burn can go on");
  EXPECT_TRUE(check_same_options("DIR", {{"batch", 5}}, {{"batch", 5}}).ok());
  EXPECT_EQ(
      check_same_options("DIR", {{"batch", 5}, {"steps", nullptr}}, {{"batch", 5}, {"steps", 7}}).what(),
      "--resume DIR: --steps is not set there and 7 here; leave it out, and it is the same");
}

}  // namespace
}  // namespace egt
