#include <gmock/gmock.h>

#include <sstream>
#include <string>
#include <vector>

#include "report/tables/summary.hpp"
#include "report/tables/text_table.hpp"
#include "tests/support/record_fixtures.hpp"

namespace egt {
namespace {

using testing::HasSubstr;
using testing::Not;

Json gpu(int rank) {
  return {{"rank", rank},
          {"local_rank", rank % 8},
          {"hostname", "node" + std::to_string(rank / 8)},
          {"backend", "cuda"},
          {"device", {{"index", rank % 8}, {"name", "NVIDIA H200"}}}};
}

TEST(WrappedProse, ATableIsDividedBelowTheColumnsThatNameItsRows) {
  const std::string table = table_text({{"Test", "Device", "ms", "GB/s", "Clock"},
                                        {"mlp", "rank 0", "1.5", "20", "1980 MHz"},
                                        {"mlp", "rank 1", "2.5", "30", "1980 MHz"}});
  EXPECT_EQ(wrapped_prose(table, 80), table);
  EXPECT_EQ(wrapped_prose("Title of it\n" + table + "End\n", 31),
            "Title of it\n"
            "| Test | Device |  ms | GB/s |\n"
            "|------|-------:|----:|-----:|\n"
            "| mlp  | rank 0 | 1.5 |   20 |\n"
            "| mlp  | rank 1 | 2.5 |   30 |\n"
            "\n"
            "| Test | Device |    Clock |\n"
            "|------|-------:|---------:|\n"
            "| mlp  | rank 0 | 1980 MHz |\n"
            "| mlp  | rank 1 | 1980 MHz |\n"
            "End\n");
  EXPECT_EQ(wrapped_prose("  Collective | YES | every element of it\n", 30),
            "  Collective | YES | every\n"
            "                     element\n"
            "                     of it\n");
}

/// A passed burn with every value that the table shows.
Json result_of(int ranks) {
  Json result = {{"command", "burn"},
                 {"verdict", "pass"},
                 {"test_summary", {{"actual_duration_seconds", 3600}}},
                 {"ranks", Json::array()}};
  for (int rank = 0; rank < ranks; ++rank) {
    const std::string key = std::to_string(rank);
    result["ranks"].push_back(gpu(rank));
    result["telemetry"][key] = {
        {"power_w_mean", 693.4},
        {"power_limit_w", 700.0},
        {"temperature_c", {{"avg", 60.0}, {"max", 71.0}}},
        {"memory_temperature_c", {{"avg", 70.0}, {"max", 82.0}}},
        {"sm_clock_mhz", {{"avg", 1755.2}, {"max", 1980.0}}},
        {"throttle_seconds", {{"sw_power_cap", 3500.0}, {"sw_thermal", 30.0}, {"hw_thermal", 6.0}}}};
    result["peers"][key]["compute_tflops"]["ratio"] = 1.003;
    result["counters"][key]["ecc_corrected"] = {{"before", 5}, {"after", 7}, {"moved", {{"train", 2}}}};
  }
  return result;
}

std::vector<std::string> lines_of(const Json& result, std::size_t columns = 0) {
  std::istringstream text(device_table(result, columns));
  std::vector<std::string> lines;
  for (std::string line; std::getline(text, line);) lines.push_back(line);
  return lines;
}

TEST(DeviceTable, HasARowPerDevice) {
  Json result = result_of(2);
  result["verdict"] = "fault";
  result["faults"] = {{{"rank", 1}}, {{"rank", nullptr}}};
  result["fault_repeats"] = {{{"rank", 1}, {"count", 3}}};
  const std::vector<std::string> expected = {
      "FAULT  node0  2x NVIDIA H200  1 h 00 m  5 errors",
      "GPU  errors  power W avg/limit  temp C max  mem C max  SM MHz avg  throttled  vs peers  ECC new",
      "0         0          693 / 700          71         82        1755      1.0 %    +0.3 %        2",
      "1         4          693 / 700          71         82        1755      1.0 %    +0.3 %        2",
      "1 error on an unknown device"};
  EXPECT_EQ(lines_of(result), expected);
  EXPECT_EQ(lines_of(result, 200), expected);
  EXPECT_EQ(lines_of(result, 120), expected);
}

TEST(DeviceTable, ARankWithoutAnEndIsLost) {
  Json result = result_of(2);
  result["ranks"][0]["end_reason"] = "duration";
  result["ranks"][1]["end_reason"] = nullptr;
  EXPECT_THAT(lines_of(result)[2], HasSubstr("0         0 "));
  EXPECT_THAT(lines_of(result)[3], HasSubstr("1      lost "));
  result["running"] = true;
  EXPECT_THAT(lines_of(result)[3], HasSubstr("1         0 "));
}

TEST(DeviceTable, MarksCellsOfThePage) {
  Json result = result_of(3);
  result["verdict"] = "fault";
  result["faults"] = {{{"rank", 1}}};
  result["findings"] = {{{"rank", 2}, {"kind", "slow"}}};
  result["telemetry"]["0"]["guard"]["temperature_limit_c"] = 71.0;
  result["telemetry"]["1"]["throttle_seconds"] = {{"sw_power_cap", 3500.0}};
  result["counters"]["1"]["ecc_corrected"] = {{"before", 5}, {"after", 5}};
  result["ranks"][1]["device"]["uuid"] = "GPU-1";
  Json page = device_cells(result);
  EXPECT_EQ(page["headline"], Json({"FAULT", "node0", "3x NVIDIA H200", "1 h 00 m", "1 error"}));
  EXPECT_EQ(page["columns"], Json({"errors", "power W avg/limit", "temp C max", "mem C max", "SM MHz avg",
                                   "throttled", "vs peers", "ECC new"}));
  EXPECT_EQ(page["rows"][1]["cells"], Json({"1", "693 / 700", "71", "82", "1755", "0.0 %", "+0.3 %", "0"}));
  EXPECT_EQ(page["rows"][0]["notable"], Json({false, false, true, false, false, true, false, true}));
  EXPECT_EQ(page["rows"][1]["notable"], Json(std::vector<bool>(8)));
  EXPECT_EQ(page["rows"][1]["identity"], "GPU 1, UUID GPU-1");
  EXPECT_EQ(page["rows"][2]["label"], "GPU 2");
  const auto marks = [&](const char* key) {
    return Json({page["rows"][0][key], page["rows"][1][key], page["rows"][2][key]});
  };
  EXPECT_EQ(marks("is_bad"), Json({false, true, false}));
  EXPECT_EQ(marks("has_finding"), Json({false, false, true}));
  result["command"] = "selftest";
  page = device_cells(result);
  EXPECT_EQ(marks("is_bad"), Json({false, false, false})) << "all its faults are injected";
  EXPECT_EQ(device_cells({{"verdict", "pass"}}), nullptr);
}

TEST(DeviceTable, FitsATerminal) {
  const Json result = result_of(9);
  for (const std::size_t columns : {40u, 60u, 80u, 82u, 120u, 200u})
    for (const std::string& line : lines_of(result, columns))
      EXPECT_LE(line.size(), std::max<std::size_t>(columns, 50)) << line;
  const auto at_80 = lines_of(result, 80);
  ASSERT_EQ(at_80.size(), 11u) << "one table";
  EXPECT_EQ(at_80[1], "GPU      errors    power W  temp C  mem C  SM MHz  throttled  vs peers  ECC new");
  const auto at_40 = lines_of(result, 40);
  EXPECT_EQ(at_40[1], "GPU      errors    power W  temp C");
  EXPECT_EQ(at_40[11], "GPU      mem C  SM MHz  throttled") << "the others follow below";
  EXPECT_EQ(at_40.size(), 31u);
}

TEST(DeviceTable, LeavesOutColumnsWithoutAnyValue) {
  Json result = result_of(2);
  for (Json& rank : result["ranks"]) rank["backend"] = "host";
  for (Json& telemetry : result["telemetry"]) telemetry = {{"sm_clock_mhz", {{"avg", 2445.0}}}};
  result.erase("counters");
  result.erase("peers");
  EXPECT_EQ(lines_of(result)[1], "CPU  errors  MHz avg");
  result["telemetry"]["1"]["temperature_c"]["max"] = 50.0;
  EXPECT_EQ(lines_of(result)[1], "CPU  errors  temp C max  MHz avg");
  EXPECT_EQ(lines_of(result)[2], "0         0           -     2445") << "not measured, never 0";
  EXPECT_EQ(device_table({{"verdict", "pass"}}, 0), "");
}

TEST(DeviceTable, NoDeviationHasNoSign) {
  Json result = result_of(1);
  result["peers"]["0"]["compute_tflops"]["ratio"] = 0.9999;
  EXPECT_THAT(device_table(result, 0), HasSubstr("  0.0 %        2\n"));
}

TEST(DeviceTable, ThrottledTimeIsOfTheLastPart) {
  Json result = result_of(1);
  result["parts_of_run"] = {{{"elapsed_seconds", 3540.0}}, {{"elapsed_seconds", 60.0}}};
  EXPECT_THAT(device_table(result, 0), HasSubstr(" 60.0 % "));
  result["telemetry"]["0"]["throttle_seconds"] = {{"hw_power_brake", 0.01}};
  EXPECT_THAT(device_table(result, 0), HasSubstr(" < 0.1 % "));
  result["telemetry"]["0"]["throttle_seconds"] = {{"sw_power_cap", 60.0}};
  EXPECT_THAT(device_table(result, 0), HasSubstr(" 0.0 % "));
}

TEST(DeviceTable, OfManyDevicesShowsThoseThatMatter) {
  Json result = result_of(800);
  result["faults"] = {{{"rank", 500}}};
  result["losses"] = {{{"rank", 600}}};
  result["findings"] = {{{"rank", 700}}, {{"rank", nullptr}, {"ranks", {701, 702}}}};
  result["peers"]["799"]["compute_tflops"]["ratio"] = 0.95;
  const auto lines = lines_of(result);
  ASSERT_EQ(lines.size(), 19u);
  EXPECT_EQ(lines[0], "PASS  100 nodes  800x NVIDIA H200  1 h 00 m  1 error");
  const std::vector<std::string> first = {"node62:4", "node75:0", "node87:4",
                                          "node87:5", "node87:6", "node99:7"};
  for (std::size_t i = 0; i < first.size(); ++i)
    EXPECT_THAT(lines[2 + i], testing::StartsWith(first[i] + " "));
  EXPECT_THAT(lines[3], HasSubstr("  lost  "));
  EXPECT_THAT(lines[7], HasSubstr("  -5.0 %  "));
  EXPECT_EQ(lines.back(), "and 784 more: see report.html");
}

TEST(DeviceTable, InjectedFaultsOfASelftestAreNoErrors) {
  Json result = result_of(2);
  result["command"] = "selftest";
  result["faults"] = {{{"rank", 1}}, {{"rank", nullptr}}};
  EXPECT_THAT(device_table(result, 0), Not(HasSubstr("error")));
}

TEST(DeviceTable, HostileNamesStayOnTheirLine) {
  Json result = result_of(9);
  result["ranks"][0]["hostname"] = "a\nb\x1b[31m";
  result["ranks"][0]["device"]["name"] = "c\rd";
  for (const char c : std::string("\r\x1b")) EXPECT_EQ(device_table(result, 0).find(c), std::string::npos);
  EXPECT_EQ(lines_of(result).size(), 11u);
}

}  // namespace
}  // namespace egt
