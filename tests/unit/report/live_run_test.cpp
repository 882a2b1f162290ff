#include "report/serve/live_run.hpp"

#include <gmock/gmock.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "report/serve/serve_address.hpp"
#include "tests/support/record_fixtures.hpp"

namespace egt {
namespace {

using namespace fixtures;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr const char* hostile_host = "<img src=x onerror=alert(1)>";

LiveRun live(Activity main = {}, std::string directory = {}) {
  return LiveRun({.directory = std::move(directory),
                  .ranks = 2,
                  .earlier = {},
                  .lines = TimeLines(),
                  .main_thread = [main] { return main; },
                  .patience_seconds = 30});
}

std::string text_of(LiveRun& run, LiveRun::Kind kind) {
  return *run.text(kind);
}

TEST(ServeAddress, IsAPortOfThisHostUnlessItSaysMore) {
  const auto text = [](const char* given) {
    const auto parsed = parse_serve_address(given);
    return parsed ? parsed->text() + (parsed->is_loopback() ? " own" : "") : "none";
  };
  EXPECT_EQ(text("8080"), "127.0.0.1:8080 own");
  EXPECT_EQ(text("0"), "127.0.0.1:0 own");
  EXPECT_EQ(text("localhost:1"), "127.0.0.1:1 own");
  EXPECT_EQ(text("127.8.0.1:65535"), "127.8.0.1:65535 own");
  EXPECT_EQ(text("[::1]:80"), "[::1]:80 own");
  EXPECT_EQ(text("[::]:80"), "[::]:80");
  EXPECT_EQ(text("0.0.0.0:80"), "0.0.0.0:80");
  for (const char* wrong :
       {"", "-1", "+1", "65536", "80 ", "a", ":80", "::1:80", "[::1]", "[1.2.3.4]:80", "[]:80", "1.2.3.4",
        "1.2.3:80", "example.org:80", "127.0.0.1:", "99999999999999999999"})
    EXPECT_EQ(text(wrong), "none") << wrong;
}

TEST(ServeAddress, OfTheNetworkNeedsASecret) {
  const ServeAddress own, open{.address = "0.0.0.0", .port = 80};
  ::unsetenv("EGT_SERVE_TOKEN");
  EXPECT_TRUE(check_serve_token(own).ok());
  EXPECT_THAT(check_serve_token(open).what(), HasSubstr("set EGT_SERVE_TOKEN"));
  ::setenv("EGT_SERVE_TOKEN", "123456789012345", 1);
  EXPECT_THAT(check_serve_token(open).what(), HasSubstr("15 characters"));
  EXPECT_THAT(check_serve_token(own).what(), HasSubstr("15 characters"));  // checked if it is set
  ::setenv("EGT_SERVE_TOKEN", "1234567890123456", 1);
  EXPECT_TRUE(check_serve_token(open).ok());
  ::unsetenv("EGT_SERVE_TOKEN");
}

TEST(LiveRun, HasAllTextsBeforeTheFirstRecord) {
  LiveRun run = live();
  EXPECT_THAT(text_of(run, LiveRun::page), HasSubstr("</html>"));
  EXPECT_THAT(text_of(run, LiveRun::metrics), HasSubstr("egt_run_faults 0"));
  EXPECT_EQ(Json::parse(text_of(run, LiveRun::result))["verdict"], "running");
  EXPECT_EQ(Json::parse(*run.lines(0, 1))["charts"], Json::array());
  EXPECT_EQ(run.trouble(), "");
}

TEST(LiveRun, IsRunningAndNeverAPassUntilAFault) {
  LiveRun run = live();
  for (const Record& record : {start(0, 2), start(1, 2), end(0), end(1)}) ASSERT_TRUE(run.write(record).ok());
  const Json before = Json::parse(text_of(run, LiveRun::result));
  EXPECT_EQ(before["verdict"], "running");
  EXPECT_EQ(before["exit_code"], nullptr);
  EXPECT_FALSE(before.contains("nodes"));
  EXPECT_EQ(run.trouble(), "");

  LiveRun other = live();
  for (const Record& record : {start(0, 2), start(1, 2), fault(1)}) ASSERT_TRUE(other.write(record).ok());
  EXPECT_EQ(Json::parse(text_of(other, LiveRun::result))["verdict"], "fault");
  EXPECT_THAT(other.trouble(), HasSubstr("fault\nGPU 1, UUID GPU-1: "));
  EXPECT_EQ(Json::parse(text_of(other, LiveRun::data))["result"]["verdict"], "fault");
}

TEST(LiveRun, KnowsTheProgressAndWhichRanksReported) {
  LiveRun run = live();
  Record begin = start(0, 2);
  begin.body["requested_duration_seconds"] = 40.0;
  ASSERT_TRUE(run.write(begin).ok());
  Record sample{.kind = RecordKind::progress, .time = 1000, .rank = 0, .step = 0, .body = {}};
  sample.body = {{"elapsed_seconds", 10.0}};
  ASSERT_TRUE(run.write(sample).ok());
  const Json state = Json::parse(text_of(run, LiveRun::data))["live"];
  EXPECT_EQ(state["done"], 0.25);
  EXPECT_EQ(state["elapsed_seconds"], 10);
  EXPECT_NEAR(state["heard"][0].get<double>(), state["now"].get<double>(), 60);
  EXPECT_EQ(state["heard"][1], nullptr);
}

TEST(LiveRun, ShowsTheResultAtTheEnd) {
  LiveRun run = live({}, "/no such directory");
  ASSERT_TRUE(run.write(start(0, 2)).ok());
  EXPECT_EQ(Json::parse(text_of(run, LiveRun::data))["live"]["report"], "/no such directory/report.html");
  run.finish({{"verdict", "pass"}});
  ASSERT_TRUE(run.write(fault(0)).ok());  // a late record
  const Json data = Json::parse(text_of(run, LiveRun::data));
  EXPECT_EQ(data["result"], Json({{"verdict", "pass"}}));
  EXPECT_EQ(data["live"]["report"], "") << "the file was not written";
}

TEST(LiveRun, MakesATextOnceASecondAndSharesIt) {
  LiveRun run = live();
  const LiveRun::Text first = run.text(LiveRun::metrics);
  ASSERT_TRUE(run.write(start(0, 1)).ok());
  EXPECT_EQ(run.text(LiveRun::metrics), first);
}

TEST(LiveRun, HostsOfAnyNameStayText) {
  LiveRun run = live();
  Record begin = start(0, 1), wrong = fault(0);
  begin.body["identity"]["hostname"] = begin.body["system"]["hostname"] = hostile_host;
  wrong.body["where"] = hostile_host;
  ASSERT_TRUE(run.write(begin).ok());
  ASSERT_TRUE(run.write(wrong).ok());
  EXPECT_THAT(text_of(run, LiveRun::page), HasSubstr("&lt;img src=x"));
  for (const LiveRun::Kind kind : {LiveRun::page, LiveRun::data})
    EXPECT_THAT(text_of(run, kind), AllOf(HasSubstr("\\u003cimg"), Not(HasSubstr("<img"))));
}

TEST(LiveRun, IsInTroubleWhereTheMainThreadIsStuck) {
  const auto trouble = [](Activity main) {
    LiveRun run = live(std::move(main));
    EXPECT_TRUE(run.flush().ok());
    return run.trouble();
  };
  EXPECT_EQ(trouble({.line = "main", .phase = "step", .step = 7, .seconds = 29}), "");
  EXPECT_EQ(trouble({.line = "main", .phase = "", .seconds = 99}), "");
  EXPECT_EQ(trouble({.line = "main", .phase = "finish", .step = 7, .patience_seconds = 300, .seconds = 99}),
            "");
  EXPECT_EQ(trouble({.line = "main", .phase = "step", .step = 7, .seconds = 41}),
            "no progress for 41 s: step, step 7");
}

TEST(LiveRun, AsksTheMainThreadNoMoreAtItsEnd) {
  int asked = 0;
  LiveRun run({.directory = {}, .ranks = 1, .earlier = {}, .lines = TimeLines(), .main_thread = [&asked] {
                 ++asked;
                 return Activity();
               }});
  ASSERT_TRUE(run.flush().ok());
  run.end();
  ASSERT_TRUE(run.flush().ok());
  EXPECT_EQ(asked, 1);
}

TEST(LiveRun, TellsOnlyThePointsThatAreNew) {
  LiveRun run = live();
  for (int second = 0; second < 10; ++second) {
    Record sample{.kind = RecordKind::progress, .time = 1000.0 + second, .rank = 0, .step = 0, .body = {}};
    sample.body = {{"telemetry", {{"power_w", {{"last", 100 + second}}}}}};
    ASSERT_TRUE(run.write(sample).ok());
  }
  const auto points = [&](std::size_t from, double seconds) {
    return Json::parse(*run.lines(from, seconds))["charts"][0]["lines"][0]["mean"].dump();
  };
  EXPECT_EQ(points(8, 1), "[108.0,109.0]");
  EXPECT_EQ(points(10, 1), "[]");
  EXPECT_EQ(points(8, 2), points(0, 1));  // its points differ
}

TEST(LiveRun, TellsAJournalInParts) {
  const std::string folder = testing::TempDir() + "egt_live_run";
  std::filesystem::create_directories(folder);
  std::ofstream(folder + "/journal.rank1.jsonl") << "{\"a\":1}\nno record\n{\"b\":2}\n{\"torn\":";
  const LiveRun run = live({}, folder);
  EXPECT_EQ(run.journal(1, 0).value(),
            "{\"rank\":1,\"from\":0,\"next\":26,\"records\":[{\"a\":1},{\"b\":2}]}\n");
  EXPECT_EQ(run.journal(1, 18).value(), "{\"rank\":1,\"from\":18,\"next\":26,\"records\":[{\"b\":2}]}\n");
  EXPECT_EQ(run.journal(1, 26).value(), "{\"rank\":1,\"from\":26,\"next\":26,\"records\":[]}\n");
  EXPECT_EQ(run.journal(1, 9999).value(), run.journal(1, 0).value());  // restarted meanwhile
  EXPECT_EQ(run.journal(1, 3).status().code(), StatusCode::invalid_argument);
  EXPECT_EQ(run.journal(0, 0).status().code(), StatusCode::unavailable);
  for (const int nobody : {-1, 2})
    EXPECT_EQ(run.journal(nobody, 0).status().code(), StatusCode::invalid_argument);
  std::filesystem::remove_all(folder);
}

TEST(LiveRun, ARecordLongerThanAnAnswerIsGivenWhole) {
  const std::string folder = testing::TempDir() + "egt_live_run_long";
  std::filesystem::create_directories(folder);
  const std::string record = "{\"a\":\"" + std::string(5 << 19, 'x') + "\"}";
  std::ofstream(folder + "/journal.rank0.jsonl") << record << "\n{\"b\":1}\n";
  const LiveRun run = live({}, folder);
  const Json answer = Json::parse(run.journal(0, 0).value());
  EXPECT_EQ(answer["records"], Json::parse("[" + record + ",{\"b\":1}]"));
  EXPECT_EQ(answer["next"], record.size() + 9);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace egt
