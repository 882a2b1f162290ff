#include "report/html/page.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <chrono>

#include "judge/result.hpp"
#include "report/html/html_text.hpp"
#include "report/html/sections.hpp"
#include "tests/support/record_fixtures.hpp"

namespace egt {
namespace {

using namespace fixtures;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Lt;
using testing::Not;

constexpr const char* hostile = "<img src=x onerror=alert(1)>";

Json result_of(const std::vector<Record>& records) {
  return build_result(records, judge(records));
}

/// A sample of one rank: its power, and `gigabytes` GB verified.
Record sample(int rank, double time, double watts, double gigabytes = 0) {
  Json body = {
      {"telemetry", {{"power_w", {{"last", watts}}}, {"temperature_c", {{"last", 60 + rank}}}}},
      {"parts", Json::array({{{"name", "memory"}, {"work", {{"bytes_patrolled", gigabytes * 1e9}}}}})}};
  return {.kind = RecordKind::progress, .time = time, .rank = rank, .step = 0, .body = std::move(body)};
}

const Json* chart_of(const Json& data, const std::string& title) {
  for (const Json& chart : data["charts"])
    if (chart["title"] == title) return &chart;
  return nullptr;
}

double max_of(const Json& line) {
  double most = 0;
  for (const Json& value : line.contains("most") ? line["most"] : line["mean"])
    if (value.is_number()) most = std::max(most, value.get<double>());
  return most;
}

TEST(HtmlText, OfAScriptIsData) {
  const Json json = {{"name", "</script><!-- & \xe2\x80\xa8 \xe2\x80\xa9 \xff"}};
  const std::string text = script_json(json);
  for (const char* no : {"<", ">", "&", "\xe2\x80\xa8", "\xe2\x80\xa9", "\xff"})
    EXPECT_THAT(text, Not(HasSubstr(no)));
  EXPECT_THAT(text, HasSubstr("\\u2028"));
  EXPECT_EQ(Json::parse(text)["name"], "</script><!-- & \xe2\x80\xa8 \xe2\x80\xa9 \xef\xbf\xbd");
}

TEST(HtmlText, AttributesOfATableAreQuoted) {
  HtmlTable table("a \" b", {"x \" onclick=\"y"}, true);
  EXPECT_EQ(table.html(), "");
  table.add({"cell"});
  EXPECT_THAT(table.html(), AllOf(Not(HasSubstr("x \"")), HasSubstr("aria-label=\"a &quot; b\"")));
}

TEST(Page, HoldsNothingOfWhatItShowsAsMarkup) {
  Record begin = start(0, 1);
  begin.body["identity"]["hostname"] = hostile;
  begin.body["identity"]["device"]["name"] = std::string("\xff</script>") + hostile;
  begin.body["arguments"] = {"--io-dir", "/tmp/\"'><script>alert(2)</script>"};
  begin.body["options"] = {{hostile, hostile}};
  begin.body["command"] = "verify";
  Record wrong = fault(0);
  wrong.body["where"] = std::string("file '\"") + hostile + "\xc3";
  wrong.body["hostname"] = hostile;
  TimeLines lines;
  for (int second = 0; second < 3; ++second)
    static_cast<void>(lines.write(sample(0, 1000 + second, 600 + second)));
  const std::string page = page_text(result_of({begin, wrong, end(0)}), lines);
  EXPECT_THAT(page, AllOf(Not(HasSubstr("<img")), Not(HasSubstr("<script>alert"))));
  EXPECT_THAT(page, HasSubstr("&lt;img src=x onerror=alert(1)&gt;"));
  EXPECT_THAT(page, HasSubstr("Results as the terminal shows them"));
  EXPECT_THAT(page,
              HasSubstr("\\u003cimg src=x onerror=alert(1)\\u003e"));  // of the fault's mark in the charts
  EXPECT_EQ(Json(page).dump().empty(), false);                         // throws on invalid UTF-8
}

TEST(Page, TellsTheVerdictWhyAndWhom) {
  const std::string page =
      page_text(result_of({start(0, 2), start(1, 2), fault(1), end(0), end(1)}), TimeLines());
  EXPECT_THAT(page, AllOf(HasSubstr("class=\"verdict fault\""), HasSubstr("<b>rank 1</b> on <b>node1</b>"),
                          HasSubstr("<code>GPU-1</code>"), HasSubstr("exit code 1")));
  EXPECT_THAT(page, HasSubstr("default-src 'none'"));
  for (const char* no : {"{{verdict", "{{data", "http-equiv=\"refresh", "sourceMappingURL"})
    EXPECT_FALSE(page.find(no) != std::string::npos) << no;
}

TEST(Page, ShowsTheBitsOfAFault) {
  Json result = result_of({start(0, 1), fault(0), end(0)});
  result["faults"][0]["xor"] = "0x02000080";
  EXPECT_THAT(page::faults_section(result), HasSubstr("0x02000080 (bits 7, 25)"));
  result["faults"][0]["xor"] = "0xffff0000";
  EXPECT_THAT(page::faults_section(result), HasSubstr("0xffff0000 (16 bits)"));
  result["faults"][0]["xor"] = "0xzz";
  EXPECT_THAT(page::faults_section(result), HasSubstr("<code>0xzz</code>"));
}

TEST(Page, MarksLinksBelowTheirLimitOnly) {
  Json result = {{"results", Json::array()}};
  for (const auto& [a, b, rate] : {std::tuple{0, 1, 400.0}, {0, 2, 100.0}, {1, 2, 390.0}}) {
    const Json way = {{"gb_per_second", rate}, {"below_limit", rate < 200}};
    result["results"].push_back(
        {{"measurement", "pair"},
         {"method", "NCCL"},
         {"from", a},
         {"to", b},
         {"latency_us", 9.5},
         {"one_way", {{fmt::format("{}->{}", a, b), way}, {fmt::format("{}->{}", b, a), way}}}});
  }
  const std::string html = page::links_section(result);
  EXPECT_THAT(html, AllOf(HasSubstr("<td>400"), HasSubstr("<td class=\"heat\">100"), HasSubstr("<td>390"),
                          HasSubstr("<td>9.5")));
}

TEST(Page, OfAResultThatIsCutOrForeignIsThere) {
  for (const Json& result :
       {Json(), Json::object(), Json::array({1, "x"}), Json("text"), build_result({}, judge({}))})
    EXPECT_THAT(page_text(result, TimeLines()), HasSubstr("The journals have no time series"));
  Json whole = result_of({start(0, 1), fault(0), end(0)});
  const Json keys = whole;
  for (const Json& foreign : {Json(), Json(7), Json("text"), Json::array({1, "x", nullptr}), Json{{"0", 3}}})
    for (const auto& [key, value] : keys.items()) {
      whole[key] = foreign;
      EXPECT_THAT(page_text(whole, TimeLines()), HasSubstr("</html>"));
      whole[key] = value;
    }
}

TEST(TimeLines, PowerIsTheMeanBetweenSamplesAndNoShareOfTheTimeIsAboveAll) {
  TimeLines lines;
  Record record = sample(0, 1000, 845);
  Json& telemetry = record.body["telemetry"];
  for (const double seconds : {0.0, 0.5, 2.5}) {  // a second apart
    telemetry["power_w_between"] = {{"last", 691 + seconds}};
    telemetry["throttle_seconds"] = {{"sw_power_cap", seconds}};
    static_cast<void>(lines.write(record));
    record.time += 1;
  }
  const Json data = page::time_lines_json(lines, result_of({start(0, 1), end(0)}));
  const Json *power = chart_of(data, "Power, W"), *capped = chart_of(data, "At the power cap, % of time");
  ASSERT_TRUE(power && capped);
  EXPECT_EQ(max_of((*power)["lines"][0]), 693.5);
  EXPECT_EQ(max_of((*capped)["lines"][0]), 100);
}

TEST(TimeLines, KeepEveryExtremeHoweverLongTheRun) {
  TimeLines lines(64);
  for (int second = 0; second < 10'000; ++second)
    for (const int rank : {0, 1})
      static_cast<void>(
          lines.write(sample(rank, 5000 + second, rank == 1 && second == 7'001 ? 1234 : 600 + rank)));
  for (const double no_time : {-1e308, 1e308}) static_cast<void>(lines.write(sample(0, no_time, 9999)));
  Json result = result_of({start(0, 2), start(1, 2), fault(1), end(0), end(1)});
  result["telemetry"]["0"]["power_limit_w"] = 700;
  const Json data = page::time_lines_json(lines, result);
  const Json* power = chart_of(data, "Power, W");
  ASSERT_NE(power, nullptr);
  EXPECT_EQ((*power)["limits"], Json::array({700.0}));
  EXPECT_THAT((*power)["lines"][0]["mean"].size(), AllOf(testing::Gt(31u), testing::Le(64u)));
  EXPECT_EQ(max_of((*power)["lines"][0]), 600);
  EXPECT_EQ(max_of((*power)["lines"][1]), 1234);
  const double at = (7'001 - 0.5) / data["seconds"].get<double>();
  EXPECT_EQ((*power)["lines"][1]["most"][static_cast<std::size_t>(at)], 1234);
  ASSERT_EQ(data["marks"].size(), 2u);
  EXPECT_EQ(data["marks"][0]["kind"], "fault");
  EXPECT_THAT(page::time_lines_section(lines), HasSubstr("1234 (rank 1)"));
  EXPECT_EQ(chart_of(data, "Temperature, °C") == nullptr, false) << "it differs between ranks";
}

TEST(TimeLines, OfManyFaultsMarksAreKeptOverTheWholeRun) {
  std::vector<Record> records = {start(0, 1)};
  for (int second = 0; second < 2500; ++second) {
    records.push_back(fault(0, second));
    records.back().body["where"] = fmt::format("block {}", second);
  }
  records.push_back(end(0));
  const Json marks = page::time_lines_json(TimeLines(), result_of(records))["marks"];
  ASSERT_EQ(marks.size(), 1001u);  // including the start of the run
  EXPECT_EQ(marks[0]["text"], "memory fault, rank 0: block 0");
  EXPECT_EQ(marks[500]["text"], "memory fault, rank 0: block 1250");
  EXPECT_EQ(marks[999]["text"], "memory fault, rank 0: block 2499");
}

TEST(TimeLines, TellRatesOfWhatCountsOn) {
  TimeLines lines;
  for (int second = 0; second < 10; ++second)
    static_cast<void>(lines.write(sample(0, 1000 + second, 600, 4.0 * second + (second > 5 ? 8 : 0))));
  static_cast<void>(lines.write(start(0, 1)));  // resumed: its counters restart
  static_cast<void>(lines.write(sample(0, 1020, 600, 3)));
  static_cast<void>(lines.write(sample(0, 1021, 600, 5)));
  const Json data = page::time_lines_json(lines, Json::object());
  const Json* memory = chart_of(data, "Verified memory, GB/s");
  ASSERT_NE(memory, nullptr);
  const Json& mean = (*memory)["lines"][0]["mean"];
  EXPECT_THAT(std::vector<Json>(mean.begin(), mean.begin() + 8), ElementsAre(nullptr, 4, 4, 4, 4, 4, 12, 4));
  EXPECT_THAT(std::vector<Json>(mean.begin() + 19, mean.end()), ElementsAre(nullptr, nullptr, 2));
}

TEST(TimeLines, OfManyRanksAreOneBesideThoseThatAreNamed) {
  TimeLines lines;
  for (int rank = 0; rank < 100; ++rank)
    for (const double second : {0, 1, 2})
      static_cast<void>(lines.write(sample(rank, 1000 + second, rank == 63 ? 100 : 600 + second)));
  Record wrong = fault(63);
  const Json data = page::time_lines_json(lines, result_of({start(63, 100), wrong, end(63)}));
  const Json& drawn = (*chart_of(data, "Power, W"))["lines"];
  ASSERT_EQ(drawn.size(), 2u);
  EXPECT_EQ(drawn[0]["name"], "all 100 ranks");
  EXPECT_EQ(drawn[0]["least"][0], 100);
  EXPECT_EQ(drawn[1]["name"], "rank 63");
}

TEST(TimeLines, OfThreeDaysOnEightDevicesFitInAPage) {
  TimeLines lines;
  Record one = sample(0, 0, 0);
  one.body["telemetry"]["sm_clock_mhz"] = one.body["telemetry"]["gpu_utilization_percent"] =
      one.body["telemetry"]["cpu_percent"] = {{"last", 0}};
  for (int second = 0; second < 72 * 3600; second += 60)  // as in journals of long runs
    for (int rank = 0; rank < 8; ++rank) {
      one.rank = rank;
      one.time = 1e9 + second;
      Json& telemetry = one.body["telemetry"];
      for (const char* figure :
           {"power_w", "temperature_c", "sm_clock_mhz", "gpu_utilization_percent", "cpu_percent"})
        telemetry[figure]["last"] = 1000.0 / (1 + (second * 7 + rank) % 97);
      one.body["parts"][0]["work"]["bytes_patrolled"] = 3.7e9 * second * (1 + second % 13 * 1e-3);
      static_cast<void>(lines.write(one));
    }
  std::vector<Record> records;
  for (int rank = 0; rank < 8; ++rank) records.insert(records.end(), {start(rank, 8), end(rank)});
  const std::string page = page_text(result_of(records), lines);
  EXPECT_THAT(page.size(),
              AllOf(testing::Gt(500'000u), Lt(4'000'000u)));  // six of its 25 metrics; the limit is 10 MB
}

}  // namespace
}  // namespace egt
