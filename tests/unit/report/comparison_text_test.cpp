#include "report/compare/comparison.hpp"

#include <gmock/gmock.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "judge/result.hpp"
#include "tests/support/comparison_fixtures.hpp"

namespace egt {
namespace {

using namespace comparison_fixtures;
using testing::DoubleNear;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::Optional;
using testing::SizeIs;

TEST(Cost, IsTheSeedsTableByOneMeasure) {
  ComparisonOptions options;
  options.prices = {{"H100", 3.5}, {"NVIDIA A100", 2.5}};
  const Comparison comparison = compare(seed_files(), options);
  ASSERT_THAT(comparison.costs, SizeIs(5));
  const Cost& two = comparison.costs[2];
  EXPECT_EQ(to_text(two.configuration), "2x NVIDIA H100 (p2p)") << "the file's fastest";
  EXPECT_THAT(two.performance, Optional(DoubleNear(1.7252, 1e-4)));
  EXPECT_EQ(two.price_per_hour, 7);
  EXPECT_THAT(two.performance_per_price, Optional(DoubleNear(1.7252 / 7, 1e-4)));
  EXPECT_EQ(two.power_w, 1000);
  EXPECT_THAT(two.performance_per_kilowatt, Optional(DoubleNear(1.7252, 1e-4)));
  EXPECT_THAT(comparison.costs[3].performance, Optional(DoubleNear(1.2629, 1e-4))) << "against one H100";
  EXPECT_THAT(comparison.costs[3].scaling, Optional(DoubleNear(1.7056, 1e-4))) << "against one A100";
  EXPECT_EQ(comparison.costs[4].price_per_hour, 6) << "one of each";
  const std::string text = comparison_text(comparison);
  EXPECT_TRUE(line_with(text, "| Performance  ").ends_with("|   h100_2gpu |")) << text;
  EXPECT_TRUE(line_with(text, "| Price").ends_with("| a100_single |")) << text;
  EXPECT_TRUE(line_with(text, "| Performance/$").ends_with("| a100_single |")) << text;
  EXPECT_THAT(line_with(text, "| Performance/$"), HasSubstr("0.246x/$"));
  EXPECT_EQ(line_with(text, "Recommendation"),
            "Recommendation: h100_2gpu for the best performance (1.73x), a100_single for the most per price "
            "(0.296x/$).");
}

TEST(Cost, AFilesOwnPriceGoesBeforeItsDevices) {
  const auto price = [](std::vector<Price> prices, std::size_t file) {
    return compare(seed_files(), {.tolerance = 0.05, .prices = std::move(prices)}).costs[file].price_per_hour;
  };
  EXPECT_EQ(price({{"H100", 3}, {"h100_2gpu", 2}}, 2), 4);
  EXPECT_EQ(price({{"H100", 3}, {"h100_2gpu", 2}}, 0), 3);
  EXPECT_EQ(price({{"NVIDIA", 1}, {"nvidia a100", 2}}, 1), 2) << "the longest name";
  EXPECT_EQ(price({{"H100", 3}}, 1), std::nullopt);
  EXPECT_EQ(price({{"H100", 3}}, 4), std::nullopt) << "half a price is none";
}

TEST(Cost, APriceForNothingIsRefused) {
  for (const char* name : {"A10", "H100", "100", "B200", "single"}) {
    const Result<Comparison> comparison =
        compare_results({seed_files()[1]}, {.tolerance = 0.05, .prices = {{name, 1}}});
    ASSERT_FALSE(comparison.ok()) << name;
    EXPECT_EQ(comparison.status().what(), std::string("--price ") + name +
                                              ": no file or device has that name; use one of: NVIDIA A100, "
                                              "a100_single");
  }
}

TEST(Cost, TakesTheRunsPowerWhereTestsHaveNone) {
  const auto burn = [](double speed, Json power) {
    Json result = result_of({h100, h100},
                            {part("train", 0, {{"tflops", speed}}), part("train", 1, {{"tflops", speed}})});
    result["telemetry"] = {{"0", {{"power_w", {{"avg", 600.0}}}}}, {"1", {{"power_w", std::move(power)}}}};
    return result;
  };
  const Comparison comparison =
      compare({file_of("a", burn(10, {{"avg", 650.0}})), file_of("b", burn(11, nullptr))});
  ASSERT_THAT(comparison.costs, SizeIs(2));
  EXPECT_EQ(comparison.costs[0].power_w, 1250);
  EXPECT_THAT(comparison.costs[0].performance_per_kilowatt, Optional(DoubleNear(0.8, 1e-12)));
  EXPECT_EQ(comparison.costs[1].power_w, std::nullopt);
  const std::string text = comparison_text(comparison);
  EXPECT_THAT(line_with(text, "| Power"), HasSubstr(" 1250 W |              - |      - |"));
  EXPECT_THAT(text, Not(HasSubstr("Price"))) << "none was given";
}

TEST(Cost, OfOneFileHasItsConfigurations) {
  const auto entries = joined(both("p2p", 2, .028, .012), both("single", 1, .050, .020));
  const Comparison comparison = compare({file_of("all", result_of({h100, h100}, entries))},
                                        {.tolerance = 0.05, .prices = {{"H100", 2}}});
  ASSERT_THAT(comparison.costs, SizeIs(2));
  EXPECT_THAT(comparison_text(comparison),
              HasSubstr("Recommendation: 2x NVIDIA H100 (p2p) for the best performance (1.73x), 1x NVIDIA "
                        "H100 for the most per price (0.5x/$)."));
}

TEST(ComparisonJson, HasItAll) {
  auto files = pair_of(0.94);
  files.push_back({"x.json", "x", Json(), "is empty"});
  const Json json = comparison_json(compare(files, {.tolerance = 0.05, .prices = {{"H100", 2}}}));
  for (const char* key :
       {"schema", "command", "files", "tests", "regressions", "cost", "verdict", "exit_code", "reasons"})
    EXPECT_TRUE(json.contains(key)) << key;
  EXPECT_EQ(json["schema"], 1);
  EXPECT_EQ(json["command"], "compare");
  EXPECT_EQ(json["exit_code"], 2);
  EXPECT_EQ(json["verdict"], Json());
  EXPECT_EQ(json["files"][2]["problem"], "is empty");
  EXPECT_EQ(json["files"][2]["compared"], false);
  const Json& value = json["tests"][0]["values"][1];
  EXPECT_EQ(value["file"], "new");
  EXPECT_EQ(value["mode"], "single");
  EXPECT_EQ(value["devices"], 1);
  EXPECT_NEAR(value["change_percent"].get<double>(), -6, 1e-9);
  EXPECT_EQ(json["regressions"][0]["test_name"], "mlp batch 8192");
  EXPECT_NEAR(json["regressions"][0]["worse_percent"].get<double>(), 6, 1e-9);
  EXPECT_EQ(json["cost"][0]["price_per_hour"], 2);
  EXPECT_NEAR(json["cost"][1]["performance_per_price"].get<double>(), 0.47, 1e-9);
}

TEST(ComparisonText, HasNoControlCharactersAndAlignsWideNames) {
  auto files = pair_of(0.9);
  files[0].label = "größe";
  for (ComparedFile& file : files) {
    file.path = "evil\x1b[31m\n.json";
    file.result["results"][0]["test_name"] = "mlp\x1b[0m\n| batch";
    file.result["verdict"] = "pass\r";
  }
  const std::string text = comparison_text(compare(files));
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
  EXPECT_EQ(text.find('\r'), std::string::npos);
  const std::string one = line_with(text, "1x NVIDIA H100, größe"),
                    other = line_with(text, "1x NVIDIA H100, new");
  EXPECT_EQ(one.size(), other.size() + 2) << "ö and ß have two bytes and one column";
}

TEST(ParseResult, SaysWhatIsWrong) {
  const auto problem = [](const std::string& text) {
    const Result<Json> result = parse_result(text);
    return result.ok() ? "" : result.status().what();
  };
  const std::string good = result_text(result_of({h100}, both("single", 1, 1, 1)));
  EXPECT_EQ(problem(good), "");
  EXPECT_THAT(problem(""), HasSubstr("is empty"));
  EXPECT_THAT(problem(" \n"), HasSubstr("is empty"));
  EXPECT_THAT(problem(good.substr(0, good.size() / 2)), HasSubstr("is damaged: no JSON at byte"));
  EXPECT_THAT(problem("\xff\xfe"), HasSubstr("is damaged"));
  EXPECT_THAT(problem(R"({"schema": NaN})"), HasSubstr("is damaged: no JSON at byte"));
  EXPECT_THAT(problem(R"({"schema": 1e999})"), HasSubstr("too large"));
  EXPECT_THAT(problem(std::string(1'000'000, '[')), HasSubstr("is damaged"));
  EXPECT_THAT(problem(std::string(100, '[') + std::string(100, ']')), HasSubstr("nests too deep"));
  for (const char* text : {"5", "[]", "{}", "null", R"({"schema": "1"})", R"({"schema": 1.5})"})
    EXPECT_THAT(problem(text), HasSubstr("no result of this program")) << text;
  EXPECT_THAT(problem(R"({"schema": 2, "program_version": "3.0"})"),
              HasSubstr("is of schema 2, this program reads 1; compare it with version 3.0"));
  EXPECT_THAT(problem(R"({"schema": 1, "command": "compare"})"), HasSubstr("what a comparison came to"));
  for (const char* text : {R"({"schema": 1})", R"({"schema": 1, "results": []})",
                           R"({"schema": 1, "results": 7})", R"({"schema": 1, "results": [5, {}]})"})
    EXPECT_THAT(problem(text), HasSubstr("holds no test")) << text;
}

TEST(Labels, AreShortAndUnique) {
  EXPECT_THAT(
      labels_of({"a/h100.json", "runs/day 1/result.json", "result.json", "größe.json", "runs/b/", "v1.2"}),
      ElementsAre("h100", "day 1", "result", "größe", "b", "v1.2"));
  EXPECT_THAT(labels_of({"a/x.json", "b/x.json", "y.json"}), ElementsAre("a/x.json", "b/x.json", "y"));
}

}  // namespace
}  // namespace egt
