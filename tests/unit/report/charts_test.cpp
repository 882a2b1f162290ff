#include "report/html/charts.hpp"

#include <gmock/gmock.h>

#include "report/html/sections.hpp"
#include "tests/support/comparison_fixtures.hpp"

namespace egt {
namespace {

using namespace comparison_fixtures;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr const char* hostile_name = "\"><img src=x onerror=alert(1)>";

std::size_t count_of(const std::string& text, const std::string& piece) {
  std::size_t count = 0;
  for (std::size_t at = text.find(piece); at != std::string::npos; at = text.find(piece, at + 1)) ++count;
  return count;
}

TEST(LineChart, PlacesPointsByTheirRatios) {
  const std::string html = line_chart(
      {"speed", "devices", "times", {{"ours", {{4, 2}, {1, 1}, {2, 1}}}, {"ideal", {{1, 1}, {4, 4}}, true}}});
  EXPECT_THAT(html,
              HasSubstr("<g class=\"of-0\"><polyline points=\"56.0,208.0 222.0,208.0 388.0,109.0 \"/>"));
  EXPECT_THAT(html, HasSubstr("<g class=\"ideal\"><polyline points=\"56.0,208.0 388.0,10.0 \"/></g>"));
  EXPECT_THAT(html, HasSubstr("<title>ours, 4: 2</title>"));
  EXPECT_EQ(count_of(html, "<title>"), 3u);
}

TEST(LineChart, OfOneNumberOfDevicesIsNone) {
  EXPECT_EQ(line_chart({"", "", "", {{"ours", {{2, 1}, {2, 3}}}}}), "");
  EXPECT_EQ(line_chart({"", "", "", {}}), "");
  EXPECT_THAT(line_chart({"", "", "", {{"flat", {{1, 1}, {2, 1}}}}}), Not(HasSubstr("nan")));
}

TEST(LineChart, NamesAreText) {
  const std::string html =
      line_chart({hostile_name, hostile_name, hostile_name, {{hostile_name, {{1, 1}, {2, 2}}}}});
  EXPECT_THAT(html, AllOf(Not(HasSubstr("<img")), HasSubstr("&lt;img src=x onerror=alert(1)&gt;")));
}

TEST(ScalingCharts, BeginWithTheBaselineOrTheFilesOwn) {
  const std::string html = page::scaling_charts(compare(seed_files()));
  EXPECT_EQ(count_of(html, "<figure"), 2u) << "multimodal, voxelize";
  EXPECT_THAT(html, HasSubstr("<title>h100_2gpu, p2p, 1: 1</title>"));
  EXPECT_THAT(html, HasSubstr("<title>h100_2gpu, p2p, 2: 1.786</title>"));
  const std::vector<Json> slower = joined(both("single", 1, .1, .04), both("p2p", 2, .05, .02));
  const std::string own = page::scaling_charts(
      compare({file_of("a", comparison_fixtures::result_of({h100}, both("single", 1, .05, .02))),
               file_of("b", comparison_fixtures::result_of({h100, h100}, slower))}));
  EXPECT_THAT(own,
              AllOf(HasSubstr("<title>b, p2p, 1: 0.5</title>"), HasSubstr("<title>b, p2p, 2: 1</title>")));
}

TEST(ScalingSection, IsOfABenchAndOfWhatWasMeasured) {
  Json row = bench("mlp", 8192, "collective", 2, 1);
  row.update({{"devices", 1024}, {"forecast", true}, {"items_per_second", 8192.0 * 512 * 100}});
  Json result = comparison_fixtures::result_of(
      {h100, h100}, {bench("mlp", 8192, "single", 1, 10), bench("mlp", 8192, "collective", 2, 5.5)});
  const std::string measured = page::scaling_section(result);
  EXPECT_EQ(count_of(measured, "<figure"), 1u);
  EXPECT_THAT(measured, HasSubstr("<title>collective, 2: 1.818</title>"));
  result["results"].push_back({{"forecast", true}, {"rows", Json::array({row, 7, "text"})}});
  EXPECT_EQ(page::scaling_section(result), measured) << "a forecast of an older version is left out";
  result["command"] = "burn";
  EXPECT_EQ(page::scaling_section(result), "");
}

TEST(ComparisonPage, BarsTellTheSpeedUp) {
  const std::string html = comparison_page(compare(pair_of(0.5)));
  EXPECT_THAT(html, HasSubstr("<rect width=\"100.0\" height=\"10\"/><line x1=\"100.0\""));
  EXPECT_THAT(html, HasSubstr("<rect width=\"50.0\" height=\"10\"/><line x1=\"100.0\""));
  EXPECT_THAT(html, HasSubstr("class=\"verdict warn\""));
  EXPECT_THAT(html, HasSubstr("data-label=\"change\">-50.0 %"));
  EXPECT_EQ(count_of(html, "class=\"bad short\""), 4u) << "of the regression only";
  EXPECT_THAT(comparison_page(compare(pair_of(2))),
              HasSubstr("<rect width=\"50.0\" height=\"10\"/><line x1=\"50.0\""));
}

TEST(ComparisonPage, HoldsNothingOfWhatItShowsAsMarkup) {
  std::vector<ComparedFile> files = seed_files();
  for (ComparedFile& file : files) {
    file.label = file.path = hostile_name + file.label;
    for (Json& entry : file.result["results"]) entry["test_name"] = entry["mode"] = hostile_name;
    for (Json& rank : file.result["ranks"]) rank["device"]["name"] = hostile_name;
  }
  files.push_back({hostile_name, hostile_name, {}, hostile_name});
  const std::string html = comparison_page(compare(files));
  EXPECT_THAT(html, AllOf(Not(HasSubstr("<img")), Not(HasSubstr("<script"))));
  EXPECT_THAT(html,
              AllOf(HasSubstr("exit code 2"), HasSubstr("no verdict"), HasSubstr("default-src 'none'")));
}

}  // namespace
}  // namespace egt
