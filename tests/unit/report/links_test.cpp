#include "report/tables/summary.hpp"

#include <gmock/gmock.h>

namespace egt {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

Json bandwidth(double gigabytes) {
  return {{"gb_per_second", gigabytes}, {"gbit_per_second", 8 * gigabytes}};
}

Json pair_entry(int a, int b, const std::string& method, double forth, double back, double latency) {
  const std::string to_b = std::to_string(a) + "->" + std::to_string(b);
  const std::string to_a = std::to_string(b) + "->" + std::to_string(a);
  return {{"test_name", "pair " + std::to_string(a) + "-" + std::to_string(b) + " by " + method},
          {"measurement", "pair"},
          {"success", true},
          {"failure", nullptr},
          {"from", a},
          {"to", b},
          {"method", method},
          {"link", {{"kind", "nvlink"}, {"width", 18}, {"text", "NVLink 4 x18 through NVSwitch"}}},
          {"one_way", {{to_b, bandwidth(forth)}, {to_a, bandwidth(back)}}},
          {"both_ways", bandwidth(forth + back)},
          {"latency_us", latency},
          {"ratio_line_rate", std::min(forth, back) / 450},
          {"not_possible", nullptr}};
}

/// With three GPUs.
Json good_result() {
  Json result = {
      {"command", "links"},
      {"verdict", "pass"},
      {"ranks", Json::array({{{"rank", 0}}, {{"rank", 1}}, {{"rank", 2}}})},
      {"system_info", {{"hostnames", {"node1"}}}},
      {"verified_work", {{"bytes_exchanged_verified", 123'000'000'000}}},
      {"findings", Json::array()},
      {"counters",
       {{"0",
         {{"nvlink_crc", {{"before", 5}, {"after", 7}}}, {"pcie_replay", {{"before", 1}, {"after", 1}}}}},
        {"1", {{"nvlink_crc", {{"before", 0}, {"after", 1}}}}}}},
      {"results", Json::array()}};
  Json& entries = result["results"];
  entries.push_back({{"test_name", "links"}, {"measurement", "end"}, {"success", true}});
  entries.push_back(pair_entry(0, 1, "NCCL", 361, 360, 9.5));
  entries.push_back(pair_entry(0, 2, "NCCL", 362, 363, 9.6));
  entries.push_back(pair_entry(1, 2, "NCCL", 364, 365, 9.7));
  entries.push_back(pair_entry(0, 1, "peer copies", 393, 394, 1.6));
  entries.push_back({{"test_name", "host and device"},
                     {"measurement", "host"},
                     {"success", true},
                     {"rank", 1},
                     {"link", {{"text", "PCIe 5 x16"}}},
                     {"nodes", Json::array({{{"numa_node", 1},
                                             {"host_to_device", bandwidth(55.1)},
                                             {"device_to_host", bandwidth(55.2)},
                                             {"both_ways", bandwidth(88)}}})}});
  entries.push_back({{"test_name", "all-reduce"},
                     {"measurement", "collective"},
                     {"success", true},
                     {"size_bytes", 1'000'000'000},
                     {"algorithm_gb_per_second", 261},
                     {"bus_gb_per_second", 348},
                     {"least_latency_us", 11.5}});
  return result;
}

TEST(LinksText, TellsPairsByTheirBetterMethod) {
  const std::string text = links_text(good_result());
  EXPECT_THAT(text, HasSubstr("Found 3 devices on 1 host"));
  EXPECT_THAT(text, HasSubstr("| 0 - 1 | NVLink 4 x18 through NVSwitch |     393 |     394 |       787 |     "
                              "    87 % |       1.60 | peer copies |"));
  EXPECT_THAT(text, HasSubstr("| 0 - 2 | NVLink 4 x18 through NVSwitch |     362 |     363 |"));
  EXPECT_THAT(text, HasSubstr("NV18: NVLink 4 x18 through NVSwitch"));
}

TEST(LinksText, ALatencyThatScattersSaysSo) {
  Json result = good_result();
  result["results"][4]["latency_scatters"] = true;
  result["results"][2]["latency_us"] = result["results"][2]["latency_scatters"] = nullptr;
  const std::string text = links_text(result);
  EXPECT_THAT(text, HasSubstr("| 1.60 scatters | peer copies |"));
  EXPECT_THAT(text, HasSubstr("|             - |        NCCL |"));
}

TEST(LinksText, ALatencyIsOfTheMethodOfItsRow) {
  const std::string text = links_text(good_result());
  EXPECT_THAT(text, HasSubstr("|       9.60 |        NCCL |"));
  EXPECT_THAT(text, HasSubstr("Latency of a message, microseconds\n"
                              "| rank |    0 |    1 |    2 |\n"
                              "|------|-----:|-----:|-----:|\n"
                              "| 0    |    X | 9.50 | 9.60 |\n"));
}

TEST(LinksText, RatesThatAreNoOneFigureAreMarked) {
  Json result = good_result();
  result["results"][4]["one_way"]["0->1"].update(
      {{"lowest_gb_per_second", 9}, {"highest_gb_per_second", 395}});
  const std::string text = links_text(result);
  EXPECT_THAT(text, HasSubstr("| 393 unstable |     394 |"));
  EXPECT_THAT(
      text,
      HasSubstr("Unstable:              1 of 6 directions, whose repeats differ by more than 30 %; most "
                "rank 0 -> rank 1: 9.00 to 395 GB/s\n"));
  EXPECT_THAT(links_text(good_result()), Not(HasSubstr("nstable")));
}

TEST(LinksText, SaysWhyRatesWereNotJudged) {
  Json result = good_result();
  result["results"][1]["not_judged"] = "ranks share cores";
  EXPECT_THAT(links_text(result), AllOf(HasSubstr("  Rates were not judged: ranks share cores\n"),
                                        Not(HasSubstr("No link is slower"))));
}

TEST(LinksText, MatricesHaveARowARank) {
  const std::string text = links_text(good_result());
  EXPECT_THAT(text, HasSubstr("One way, from the row's rank to the column's, GB/s\n"
                              "| rank |   0 |   1 |   2 |\n"
                              "|------|----:|----:|----:|\n"
                              "| 0    |   X | 393 | 362 |\n"
                              "| 1    | 394 |   X | 364 |\n"
                              "| 2    | 363 | 365 |   X |\n"));
  EXPECT_THAT(text, HasSubstr("| 0    |    X | NV18 | NV18 |"));
}

TEST(LinksText, HostsCollectivesAndASummary) {
  const std::string text = links_text(good_result());
  EXPECT_THAT(text,
              HasSubstr("| 1    | PCIe 5 x16 |         1 |           55.1 |           55.2 |      88.0 |"));
  EXPECT_THAT(text, HasSubstr("| all-reduce | 1.00 GB |            261 |      348 |        11.5 |"));
  EXPECT_THAT(text, HasSubstr("Lowest pair, one way:  362 GB/s (2.9 Tb/s), rank 0 -> rank 2"));
  EXPECT_THAT(text, HasSubstr("Highest:               394 GB/s (3.15 Tb/s), rank 1 -> rank 0"));
  EXPECT_THAT(text, HasSubstr("Verified:              123 GB, every measured transfer"));
  EXPECT_THAT(text, HasSubstr("New link errors:       nvlink_crc 3, pcie_replay 0"));
  EXPECT_THAT(text, HasSubstr("No link is slower than it should be"));
}

TEST(LinksText, WarningsFailuresAndWhatIsNotPossible) {
  Json result = good_result();
  result["verdict"] = "incomplete";
  Json failed = pair_entry(0, 2, "NCCL", 1, 1, 1);
  failed["success"] = false;
  failed["failure"] = "rank 0 and rank 2 did not come through it";
  failed["one_way"] = failed["both_ways"] = failed["latency_us"] = nullptr;
  result["results"][2] = failed;
  result["results"][4]["not_possible"] = "no peer access";
  result["findings"].push_back(
      {{"kind", "link"}, {"rank", nullptr}, {"text", "rank 1 <-> rank 2: 180 GB/s\x1b"}});
  result["findings"].push_back({{"kind", "throttle"}, {"rank", 0}, {"text", "too hot"}});
  const std::string text = links_text(result);
  EXPECT_THAT(text, HasSubstr("Failed: pair 0-2 by NCCL: rank 0 and rank 2 did not come through it"));
  EXPECT_THAT(text, HasSubstr("pair 0-1 by peer copies: not possible: no peer access"));
  EXPECT_THAT(text, HasSubstr("Warning: rank 1 <-> rank 2: 180 GB/s?"));
  EXPECT_THAT(text, HasSubstr("| 0    |      X | 393 | failed |"));
  EXPECT_THAT(text, AllOf(Not(HasSubstr("too hot")), Not(HasSubstr("No link is slower"))));
}

TEST(LinksText, OneRankAloneAndNothingAtAll) {
  Json alone = good_result();
  alone["ranks"] = Json::array({{{"rank", 0}}});
  alone["results"] = Json::array({good_result()["results"][5]});
  const std::string text = links_text(alone);
  EXPECT_THAT(text, HasSubstr("Found 1 device on 1 host"));
  EXPECT_THAT(text, HasSubstr("One rank alone has no pairs"));
  EXPECT_THAT(text, Not(HasSubstr("One way,")));
  EXPECT_THAT(links_text(Json::object()), HasSubstr("Found 0 devices"));
}

TEST(LinksText, IsWhatReportTells) {
  EXPECT_EQ(summary_text(good_result()), links_text(good_result()));
}

}  // namespace
}  // namespace egt
