#include "report/compare/comparison.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <string>
#include <utility>

#include "tests/support/comparison_fixtures.hpp"

namespace egt {
namespace {

using namespace comparison_fixtures;
using testing::Contains;

class VanishedFigures : public testing::TestWithParam<std::pair<const char*, Json>> {};

TEST_P(VanishedFigures, AreARegression) {
  const auto& [figure, value] = GetParam();
  const auto run = [](const Json& train) {
    return result_of(
        {h100, h100},
        {part("train", 0, train), part("train", 1, train), part("memory", 0, {{"verify_gb_per_s", 9.0}}),
         part("memory", 1, {{"verify_gb_per_s", 9.0}})},
        "burn");
  };
  const Json before = {{"samples_per_second", 100.0}};
  Json candidate = run(before);
  for (Json& entry : candidate["results"])
    if (entry["test_name"] == "train") entry[figure] = value;
  const Comparison comparison = compare({file_of("a", run(before)), file_of("b", candidate)});
  EXPECT_EQ(comparison.exit_code, 5);
  ASSERT_EQ(comparison.regressions.size(), 1u);
  EXPECT_EQ(comparison.tests[comparison.regressions[0].test].test, "train");
}

INSTANTIATE_TEST_SUITE_P(AFigure, VanishedFigures,
                         testing::Values(std::pair("samples_per_second", Json()),
                                         std::pair("samples_per_second", Json(-5.0)),
                                         std::pair("samples_per_second", Json("fast")),
                                         std::pair("success", Json("yes"))));

TEST(Comparison, ATestThatIsNotInALaterFileIsARegression) {
  const auto run = [](std::vector<Json> entries) { return result_of({h100}, entries, "burn"); };
  const Json train = part("train", 0, {{"samples_per_second", 100.0}}),
             memory = part("memory", 0, {{"verify_gb_per_s", 9.0}});
  const Comparison less = compare({file_of("a", run({train, memory})), file_of("b", run({memory}))});
  EXPECT_EQ(less.exit_code, 5);
  EXPECT_THAT(less.reasons, Contains("missing, but not in the baseline: 1 value"));
  EXPECT_EQ(compare({file_of("b", run({memory})), file_of("a", run({train, memory}))}).exit_code, 0)
      << "a test more is none";
}

TEST(Comparison, ATestThatARankLacksIsMissingAlsoWhereNoOtherRanOnAll) {
  const auto run = [](std::vector<Json> entries) { return result_of({h100, h100}, entries, "burn"); };
  const Json of_rank_0 = part("train", 0, {{"samples_per_second", 100.0}}),
             of_rank_1 = part("train", 1, {{"samples_per_second", 100.0}});
  const Comparison less =
      compare({file_of("a", run({of_rank_0, of_rank_1})), file_of("b", run({of_rank_1}))});
  EXPECT_EQ(less.exit_code, 5);
  EXPECT_THAT(less.reasons, Contains("missing, but not in the baseline: 1 value"));
}

TEST(Comparison, OtherNumbersOfDevicesAreRefused) {
  const auto run = [](int devices) {
    std::vector<Json> entries;
    for (int rank = 0; rank < devices; ++rank)
      entries.push_back(part("train", rank, {{"samples_per_second", 100.0}}));
    return result_of(std::vector<std::string>(static_cast<std::size_t>(devices), h100), entries, "burn");
  };
  const Comparison comparison = compare({file_of("a", run(2)), file_of("b", run(1))});
  EXPECT_EQ(comparison.exit_code, 2);
  EXPECT_THAT(comparison.reasons,
              testing::ElementsAre("b ran on 1 device, a on 2: compare results of as many devices"));
  EXPECT_EQ(compare({file_of("a", run(2)), file_of("c", run(2)), file_of("b", run(1))}).exit_code, 2)
      << "though others were judged";
}

TEST(Comparison, AnEntryThatDoesNotSayThatItPassedDidNot) {
  const Json train = part("train", 0, {{"samples_per_second", 100.0}});
  Json candidate = result_of({h100}, {train}, "burn");
  candidate["results"][0].erase("success");
  const Comparison comparison =
      compare({file_of("a", result_of({h100}, {train}, "burn")), file_of("b", candidate)});
  EXPECT_EQ(comparison.exit_code, 5);
  EXPECT_THAT(comparison.reasons, Contains("failed, but passed in the baseline: 1 test"));
}

TEST(Comparison, RepeatsOfARankDoNotAddUp) {
  const Json slow = part("train", 0, {{"samples_per_second", 50.0}}),
             fast = part("train", 0, {{"samples_per_second", 100.0}});
  EXPECT_EQ(compare({file_of("a", result_of({h100}, {fast}, "burn")),
                     file_of("b", result_of({h100}, {slow, slow}, "burn"))})
                .exit_code,
            5);
}

TEST(Comparison, OneBadDeviceAmongManyIsARegression) {
  const auto run = [](double of_rank_7) {
    std::vector<Json> entries;
    for (int rank = 0; rank < 24; ++rank)
      entries.push_back(part("memory", rank, {{"verify_gb_per_s", rank == 7 ? of_rank_7 : 9.0}}));
    return file_of(fmt::format("{}", of_rank_7),
                   result_of(std::vector<std::string>(24, h100), entries, "burn"));
  };
  EXPECT_EQ(compare({run(9), run(8)}).exit_code, 0) << "11 %, of one of 24";
  const Comparison bad = compare({run(9), run(2)});
  EXPECT_EQ(bad.exit_code, 5);
  EXPECT_THAT(bad.reasons, Contains("worse by more than 20 % on the worst rank alone: 1 metric"));
  EXPECT_THAT(comparison_text(bad), testing::HasSubstr("worst rank 77.8 % worse"));
}

TEST(Comparison, CopiesBothWaysAreCompared) {
  const auto run = [](double rate) {
    return file_of(fmt::format("{}", rate),
                   result_of({h100}, {part("copies", 0, {{"gb_per_s_each_way", rate}})}, "burn"));
  };
  EXPECT_EQ(compare({run(50), run(25)}).exit_code, 5);
}

TEST(Comparison, CostsByTheEnergyCounter) {
  Json result = result_of({h100}, {part("train", 0, {{"samples_per_second", 100.0}})}, "burn");
  result["telemetry"]["0"] = {{"power_w", {{"avg", 400.0}}}, {"power_w_mean", 650.0}};
  EXPECT_EQ(compare({file_of("a", result)}).costs.at(0).power_w, 650.0);
  result["telemetry"]["0"]["power_w_mean"] = nullptr;
  EXPECT_EQ(compare({file_of("a", result)}).costs.at(0).power_w, 400.0);
}

}  // namespace
}  // namespace egt
