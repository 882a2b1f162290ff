#include "report/html/page.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <cmath>

#include "egt/device/sensor.hpp"
#include "judge/result.hpp"
#include "tests/support/comparison_fixtures.hpp"
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

/// The data that the page's script reads.
Json data_of(const std::string& page) {
  constexpr std::string_view opening = "id=\"data\">";
  const std::size_t begin = page.find(opening) + opening.size();
  return Json::parse(page.substr(begin, page.find("</script>", begin) - begin));
}

TEST(ScriptJson, IsData) {
  const Json json = {{"name", "</script><!-- & \xe2\x80\xa8 \xe2\x80\xa9 \xff"}, {"nan", NAN}};
  const std::string text = script_json(json);
  for (const char* no : {"<", ">", "&", "\xe2\x80\xa8", "\xe2\x80\xa9", "\xff"})
    EXPECT_THAT(text, Not(HasSubstr(no)));
  EXPECT_THAT(text, HasSubstr("\\u2028"));
  EXPECT_EQ(Json::parse(text)["name"], "</script><!-- & \xe2\x80\xa8 \xe2\x80\xa9 \xef\xbf\xbd");
  EXPECT_EQ(Json::parse(text)["nan"], nullptr);
}

TEST(ScriptJson, KeepsEveryDigitOfAnInteger) {
  EXPECT_EQ(script_json({{"seed", 18446744073709551615u}, {"all", {1ll << 53, -(1ll << 54), 0.5}}}),
            R"({"all":[9007199254740992,"-18014398509481984",0.5],"seed":"18446744073709551615"})");
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
  EXPECT_THAT(page, HasSubstr("\\u003cimg src=x onerror=alert(1)\\u003e"));
  EXPECT_EQ(Json(page).dump().empty(), false);  // throws on invalid UTF-8
}

TEST(Page, HoldsTheResultAndItsText) {
  const Json result = result_of({start(0, 2), start(1, 2), fault(1), end(0), end(1)});
  const std::string page = page_text(result, TimeLines());
  EXPECT_EQ(data_of(page)["result"], result);
  EXPECT_THAT(page, AllOf(HasSubstr("<title>FAULT node1 burn "), HasSubstr("default-src 'none'"),
                          HasSubstr("Verdict: fault (exit code 1)\n  GPU 1, UUID GPU-1: ")));
  for (const char* no : {"{{", "http-equiv=\"refresh", "sourceMappingURL"})
    EXPECT_FALSE(page.substr(0, page.find("id=\"data\"")).find(no) != std::string::npos) << no;
}

/// The script marks each of them on the charts.
TEST(Page, HoldsEveryFaultOfASelftest) {
  std::vector<Record> records = good_run(1);
  for (int i = 0; i < 560; ++i) records.push_back(fault(0));
  for (std::size_t i = 0; i < records.size(); ++i)
    if (records[i].kind == RecordKind::fault) records[i].step = static_cast<std::int64_t>(i);
  find(records, RecordKind::start, 0).body["command"] = "selftest";
  EXPECT_EQ(data_of(page_text(result_of(records), TimeLines()))["result"]["faults"].size(), 560u);
}

TEST(Page, HoldsTheScalingOfABench) {
  using namespace comparison_fixtures;
  const std::vector<Json> entries = {bench("mlp", 8192, "single", 1, 10),
                                     bench("mlp", 8192, "collective", 2, 5.5)};
  Json result = comparison_fixtures::result_of({h100, h100}, entries);
  const Json values = data_of(page_text(result, TimeLines()))["comparison"]["tests"][0]["values"];
  EXPECT_NEAR(values.at(1)["speedup"].get<double>(), 1.818, 1e-3);
  result["command"] = "burn";
  EXPECT_FALSE(data_of(page_text(result, TimeLines())).contains("comparison"));
}

TEST(ComparisonPage, HoldsNothingOfWhatItShowsAsMarkup) {
  std::vector<ComparedFile> files = comparison_fixtures::seed_files();
  for (ComparedFile& file : files) {
    file.label = file.path = hostile + file.label;
    for (Json& entry : file.result["results"]) entry["test_name"] = entry["mode"] = hostile;
    for (Json& rank : file.result["ranks"]) rank["device"]["name"] = hostile;
  }
  files.push_back({hostile, hostile, {}, hostile});
  const std::string page = comparison_page(comparison_fixtures::compare(files));
  EXPECT_THAT(page, AllOf(Not(HasSubstr("<img")), HasSubstr("&lt;img"), HasSubstr("default-src 'none'")));
  EXPECT_EQ(data_of(page)["comparison"]["exit_code"], 2);
}

TEST(Page, OfAResultThatIsCutOrForeignIsThere) {
  for (const Json& result :
       {Json(), Json::object(), Json::array({1, "x"}), Json("text"), build_result({}, judge({}))})
    EXPECT_EQ(data_of(page_text(result, TimeLines()))["result"], result);
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
  const Json data = time_lines_json(lines, result_of({start(0, 1), end(0)}));
  const Json *power = chart_of(data, "Power"), *capped = chart_of(data, "At the power cap");
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
  const Json data = time_lines_json(lines, result);
  const Json* power = chart_of(data, "Power");
  ASSERT_NE(power, nullptr);
  EXPECT_EQ((*power)["limits"], Json::array({700.0}));
  EXPECT_THAT((*power)["lines"][0]["mean"].size(), AllOf(testing::Gt(31u), testing::Le(64u)));
  EXPECT_EQ(max_of((*power)["lines"][0]), 600);
  EXPECT_EQ(max_of((*power)["lines"][1]), 1234);
  const double at = (7'001 - 0.5) / data["seconds"].get<double>();
  EXPECT_EQ((*power)["lines"][1]["most"][static_cast<std::size_t>(at)], 1234);
  EXPECT_EQ((*power)["most"], 1234);
  EXPECT_EQ((*power)["most_rank"], 1);
  EXPECT_EQ(chart_of(data, "Temperature") == nullptr, false) << "it differs between ranks";
}

TEST(TimeLines, TellRatesOfWhatCountsOn) {
  TimeLines lines;
  for (int second = 0; second < 10; ++second)
    static_cast<void>(lines.write(sample(0, 1000 + second, 600, 4.0 * second + (second > 5 ? 8 : 0))));
  static_cast<void>(lines.write(start(0, 1)));  // resumed: its counters restart
  static_cast<void>(lines.write(sample(0, 1020, 600, 3)));
  static_cast<void>(lines.write(sample(0, 1021, 600, 5)));
  const Json data = time_lines_json(lines, Json::object());
  const Json* memory = chart_of(data, "Verified memory");
  ASSERT_NE(memory, nullptr);
  const Json& mean = (*memory)["lines"][0]["mean"];
  EXPECT_THAT(std::vector<Json>(mean.begin(), mean.begin() + 8), ElementsAre(nullptr, 4, 4, 4, 4, 4, 12, 4));
  EXPECT_THAT(std::vector<Json>(mean.begin() + 19, mean.end()), ElementsAre(nullptr, nullptr, 2));
}

TEST(TimeLines, OfManyRanksAreTheirMedianAndThoseWithFaults) {
  TimeLines lines;
  for (int rank = 0; rank < 100; ++rank)
    for (const double second : {0, 1, 2})
      static_cast<void>(lines.write(sample(rank, 1000 + second, rank == 63 ? 610 : 600 + second)));
  Record wrong = fault(63);
  const Json data = time_lines_json(lines, result_of({start(63, 100), wrong, end(63)}));
  const Json& power = *chart_of(data, "Power");
  const Json& drawn = power["lines"];
  ASSERT_EQ(drawn.size(), 2u);
  EXPECT_EQ(drawn[0]["name"], "median of 100 ranks");
  EXPECT_EQ(drawn[0]["mean"], Json::array({600.0, 601.0, 602.0}));
  EXPECT_EQ(drawn[0]["most"], Json::array({610.0, 610.0, 610.0}));
  EXPECT_EQ(drawn[1]["name"], "rank 63");
  EXPECT_EQ(power["own_lines"], Json::array({"rank 63"}));
}

TEST(TimeLines, RanksFarFromTheMedianHaveTheirOwnLines) {
  const auto own_lines = [](std::vector<double> watts) {
    TimeLines lines;
    for (std::size_t rank = 0; rank < watts.size(); ++rank)
      for (const int second : {0, 1})
        static_cast<void>(lines.write(sample(static_cast<int>(rank), 1000 + second, watts[rank] + second)));
    const Json data = time_lines_json(lines, Json::object());
    const Json& power = *chart_of(data, "Power");
    EXPECT_EQ(power["lines"].size(), watts.size() + (watts.size() < 4 ? 0 : 1));
    return power["own_lines"];
  };
  EXPECT_EQ(own_lines({690, 692, 691, 600, 693, 690, 692, 691}), Json::array({"rank 3"}));
  EXPECT_EQ(own_lines({690, 690, 690, 680, 690, 690, 690, 690}), Json::array()) << "1.4 % of the median";
  EXPECT_EQ(own_lines({500, 550, 600, 650, 700}), Json::array()) << "the others differ as much";
  EXPECT_EQ(own_lines({690, 691, 300}), Json::array({"rank 0", "rank 1", "rank 2"})) << "too few";
}

TEST(TimeLines, AreInGroupsAndOneOfTwoEqualCurvesIsDrawn) {
  TimeLines lines;
  for (const int second : {0, 1, 2}) {
    Record one = sample(0, 1000 + second, 600, second);
    Json& telemetry = one.body["telemetry"];
    for (const char* load : {"gpu_utilization_percent", "cpu_percent"})
      telemetry[load] = {{"last", 50 + 20 * second}};
    telemetry["host_memory_percent"] = {{"last", 20 + second}};
    telemetry["sm_clock_mhz"] = {{"last", 1700 + second}};
    static_cast<void>(lines.write(one));
  }
  const Json data = time_lines_json(lines, Json::object());
  std::vector<std::string> groups;
  for (const Json& chart : data["charts"])
    if (groups.empty() || groups.back() != chart["group"].get<std::string>())
      groups.push_back(chart["group"]);
  EXPECT_THAT(groups, ElementsAre("Power and temperature", "Clocks", "Compute", "Memory", "Host"));
  EXPECT_EQ((*chart_of(data, "Utilization"))["lines"].size(), 1u);
  EXPECT_EQ((*chart_of(data, "Host CPU"))["lines"], Json::array());
  EXPECT_EQ((*chart_of(data, "Host CPU"))["most"], 90);
  EXPECT_EQ((*chart_of(data, "Host memory"))["lines"].size(), 1u);
}

TEST(TimeLines, HaveEverySampledMetric) {
  TimeLines lines;
  for (const double second : {0, 1}) {
    Record one = sample(0, 1000 + second, 0);
    double value = 50 + second;
    for (const SampledMetric& metric : sampled_metrics)
      one.body["telemetry"][metric.key] = {{"last", value += 10}};
    static_cast<void>(lines.write(one));
  }
  const Json data = time_lines_json(lines, result_of({start(0, 1), end(0)}));
  double value = 51;
  for (const SampledMetric& metric : sampled_metrics) {
    value += 10;
    if (!metric.chart) continue;
    const Json* const chart = chart_of(data, metric.chart);
    ASSERT_NE(chart, nullptr) << metric.chart;
    EXPECT_DOUBLE_EQ(max_of((*chart)["lines"][0]), value * metric.scale) << metric.chart;
    EXPECT_EQ((*chart)["group"], metric.group);
  }
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
