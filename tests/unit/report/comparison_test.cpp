#include "report/compare/comparison.hpp"

#include <gmock/gmock.h>

#include <cstdint>
#include <limits>
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
using testing::IsEmpty;
using testing::Not;
using testing::Optional;
using testing::SizeIs;

TEST(Comparison, OfSingleMultiAndHeteroGivesTheSeedsTable) {
  const Comparison comparison = compare(seed_files());
  EXPECT_EQ(comparison.exit_code, 0);
  const std::string text = comparison_text(comparison);
  EXPECT_EQ(line_with(text, "Configuration"),
            "| Configuration                            | Multimodal (ms) | Voxelize (ms) | Speedup |");
  EXPECT_EQ(line_with(text, "1x NVIDIA H100 "),
            "| 1x NVIDIA H100                           |           0.050 |         0.020 |   1.00x |");
  // sqrt(0.050 / 0.028 * 0.020 / 0.012) and so on
  EXPECT_EQ(line_with(text, "2x NVIDIA H100 (p2p)"),
            "| 2x NVIDIA H100 (p2p)                     |           0.028 |         0.012 |   1.73x |");
  EXPECT_EQ(line_with(text, "2x NVIDIA H100 (collective)"),
            "| 2x NVIDIA H100 (collective)              |           0.032 |         0.015 |   1.44x |");
  EXPECT_EQ(line_with(text, "2x NVIDIA A100 (p2p)"),
            "| 2x NVIDIA A100 (p2p)                     |           0.033 |         0.019 |   1.71x |");
  // Relative to the mean of its two devices alone: 600702 samples/s and 40625 M points/s.
  EXPECT_EQ(line_with(text, "(hetero)"),
            "| 1x NVIDIA A100 + 1x NVIDIA H100 (hetero) |           0.030 |         0.014 |   1.77x |");
}

TEST(Comparison, ASharedBatchIsComparedAndHasNoRowInTheSeedsTable) {
  const auto file = [](const char* label, double strong_ms) {
    return file_of(label, result_of({h100, h100},
                                    {bench("mlp", 64, "single", 1, 2), bench("mlp", 64, "collective", 2, 1),
                                     bench("mlp", 64, "strong", 2, strong_ms)}));
  };
  const Comparison comparison = compare({file("a", 1.5), file("b", 3)});
  EXPECT_THAT(comparison.scaling.rows, SizeIs(4)) << "two of each file";
  ASSERT_THAT(comparison.regressions, SizeIs(1));
  EXPECT_EQ(comparison.tests[0].values[comparison.regressions[0].value].configuration.mode, "strong");
}

TEST(Comparison, AForecastOfAnOlderVersionIsNoMeasurement) {
  const Json measured = bench("mlp", 64, "collective", 4, 2);
  Json expected = bench("mlp", 64, "collective", 4, 20);  // ten times as long
  expected["forecast"] = true;
  Json of_others = bench("mlp", 128, "collective", 64, 1);
  of_others["forecast"] = true;
  const std::vector<std::string> devices(4, h100);
  const Comparison comparison = compare({file_of("a", result_of(devices, {measured})),
                                         file_of("b", result_of(devices, {measured, expected, of_others}))});
  ASSERT_THAT(comparison.tests, SizeIs(1));
  EXPECT_THAT(comparison.regressions, IsEmpty());
  EXPECT_THAT(comparison.tests[0].values[1].change_percent, Optional(DoubleNear(0, 1e-9)));
  EXPECT_THAT(comparison.scaling.rows, SizeIs(2)) << "a measured one of each file";
}

TEST(Comparison, RowsStandByKindOfDeviceThenCountThenMode) {
  std::vector<std::string> rows;
  for (const Scaling::Row& row : compare(seed_files()).scaling.rows)
    rows.push_back(to_text(row.configuration));
  EXPECT_THAT(rows, ElementsAre("1x NVIDIA H100", "2x NVIDIA H100 (p2p)", "2x NVIDIA H100 (collective)",
                                "1x NVIDIA A100", "2x NVIDIA A100 (p2p)", "2x NVIDIA A100 (collective)",
                                "1x NVIDIA A100 + 1x NVIDIA H100 (hetero)"));
}

TEST(Comparison, HoldsEveryTestAgainstTheFirstFilesFewestDevices) {
  const Comparison comparison = compare(seed_files());
  ASSERT_THAT(comparison.tests, SizeIs(2));
  const ComparedTest& test = comparison.tests[0];
  EXPECT_EQ(test.test, "multimodal batch 32");
  EXPECT_EQ(test.unit, "samples/s");
  ASSERT_THAT(test.values, SizeIs(7));
  EXPECT_EQ(test.values[0].speedup, 1);
  EXPECT_EQ(test.values[0].efficiency, 1);
  EXPECT_THAT(test.values[2].speedup, Optional(DoubleNear(.050 / .028, 1e-9)));
  EXPECT_THAT(test.values[2].efficiency, Optional(DoubleNear(.050 / .028 / 2, 1e-9)));
  EXPECT_EQ(test.values[2].change_percent, std::nullopt) << "nothing like it in an earlier file";
  EXPECT_EQ(comparison.tests[1].unit, "points/s");
}

TEST(Comparison, OfOneFileShowsItsOwnSpeedups) {
  const auto entries = joined(both("p2p", 2, .028, .012), both("single", 1, .050, .020));
  const Comparison comparison = compare({file_of("all", result_of({h100, h100}, entries))});
  EXPECT_EQ(comparison.exit_code, 0);
  EXPECT_EQ(comparison.verdict, "pass");
  EXPECT_THAT(comparison.reasons, ElementsAre("a single file: nothing to judge for regressions"));
  ASSERT_THAT(comparison.tests[0].values, SizeIs(2));
  EXPECT_EQ(comparison.tests[0].baseline().configuration.devices, 1);
  EXPECT_THAT(comparison.tests[0].values[1].speedup, Optional(DoubleNear(.050 / .028, 1e-9)));
}

TEST(Comparison, EachDeviceAloneIsTakenInTheMean) {
  Json first = bench("mlp", 8192, "single", 1, 10), second = bench("mlp", 8192, "single", 1, 8);
  second["ranks"] = {1};
  const Comparison comparison = compare({file_of("one", result_of({h100, h100}, {first, second}))});
  ASSERT_THAT(comparison.tests[0].values, SizeIs(1));
  EXPECT_THAT(comparison.tests[0].baseline().value, Optional(DoubleNear((819200.0 + 1024000.0) / 2, 1e-6)));
  const Comparison unlike = compare({file_of("two", result_of({h100, a100}, {first, second}))});
  EXPECT_THAT(unlike.tests[0].values, SizeIs(2)) << "not of one another's kind";
}

TEST(Comparison, WithoutOneDeviceAloneTheFewestAreTheBase) {
  const auto entries = joined(both("collective", 4, .026, .011), both("p2p", 2, .052, .022));
  const Comparison comparison = compare({file_of("multi", result_of({h100, h100, h100, h100}, entries))});
  ASSERT_THAT(comparison.scaling.rows, SizeIs(2));
  EXPECT_EQ(comparison.scaling.rows[0].speedup, 1);
  EXPECT_THAT(comparison.scaling.rows[1].speedup, Optional(DoubleNear(2, 1e-9)));
  EXPECT_THAT(comparison.tests[0].values[1].efficiency, Optional(DoubleNear(1, 1e-9)));
}

TEST(Comparison, OfManySizesTheKnownOneStandsInTheTable) {
  const std::vector<Json> entries = {bench("voxelize", 10'000, "single", 1, .002),
                                     bench("voxelize", 1'000'000, "single", 1, .02),
                                     bench("voxelize", 10'000'000, "single", 1, .2),
                                     bench("mlp", 64, "single", 1, 1), bench("mlp", 128, "single", 1, 2)};
  const Comparison comparison = compare({file_of("sizes", result_of({h100}, entries))});
  ASSERT_THAT(comparison.scaling.columns, SizeIs(2));
  EXPECT_EQ(comparison.tests[comparison.scaling.columns[0].test].test, "voxelize 1000000 points");
  EXPECT_EQ(comparison.tests[comparison.scaling.columns[1].test].test, "mlp batch 128");
  EXPECT_THAT(comparison.tests, SizeIs(5));
}

TEST(Comparison, ARowWithoutAWorkloadSaysSo) {
  auto files = seed_files();
  files[2].result["results"].erase(1);  // voxelize, p2p
  const std::string line = line_with(comparison_text(compare(files)), "2x NVIDIA H100 (p2p)");
  EXPECT_THAT(line, HasSubstr("|             - | 1.79x (1 of 2) |"));
}

TEST(Comparison, SixPercentWorseIsARegressionAndFourIsNot) {
  const Comparison worse = compare(pair_of(0.94));
  EXPECT_EQ(worse.exit_code, 5);
  EXPECT_EQ(worse.verdict, "degraded");
  ASSERT_THAT(worse.regressions, SizeIs(1));
  EXPECT_THAT(worse.regressions[0].worse_percent, Optional(DoubleNear(6, 1e-9)));
  EXPECT_THAT(worse.reasons, ElementsAre("worse than the baseline by more than 5 %: 1 of 1 metric"));
  const std::string text = comparison_text(worse);
  EXPECT_EQ(line_with(text, "| mlp batch 8192 throughput"),
            "| mlp batch 8192 throughput | 819.2 k samples/s | 770 k samples/s | -6.0 % |  0.5 % |  worse |");
  EXPECT_THAT(text, testing::AllOf(Not(HasSubstr("items_per_second")), HasSubstr("worst first")));
  EXPECT_EQ(text.find("-6.0 %"), text.rfind("-6.0 %")) << "a regression is listed once";
  for (const double change : {0.96, 0.95, 1.0, 1.5}) {
    const Comparison fine = compare(pair_of(change));
    EXPECT_EQ(fine.exit_code, 0) << change;
    EXPECT_EQ(fine.verdict, "pass");
    EXPECT_EQ(fine.judged, 1u);
    EXPECT_THAT(line_with(comparison_text(fine), "| mlp batch 8192 throughput"),
                HasSubstr(change > 1.05 ? " better |" : " within tolerance |"));
  }
  EXPECT_EQ(compare(pair_of(0.9499)).exit_code, 5);
}

TEST(Comparison, TheToleranceIsTheUsers) {
  EXPECT_EQ(compare(pair_of(0.94), {.tolerance = 0.10, .prices = {}}).exit_code, 0);
  EXPECT_EQ(compare(pair_of(0.99), {.tolerance = 0, .prices = {}}).exit_code, 5);
  EXPECT_EQ(compare(pair_of(1), {.tolerance = 0, .prices = {}}).exit_code, 0);
}

TEST(Comparison, ATimeIsWorseWhenItGrows) {
  const auto files = [](double ms) {
    return std::vector<ComparedFile>{
        file_of("old", result_of({h100}, {part("infer", 0, {{"avg_iteration_time_ms", 10.0}})})),
        file_of("new", result_of({h100}, {part("infer", 0, {{"avg_iteration_time_ms", ms}})}))};
  };
  const Comparison slower = compare(files(10.6));
  EXPECT_EQ(slower.exit_code, 5);
  EXPECT_THAT(slower.tests[0].values[1].speedup, Optional(DoubleNear(10 / 10.6, 1e-12)));
  EXPECT_THAT(slower.tests[0].values[1].change_percent, Optional(DoubleNear(6, 1e-9)));
  EXPECT_EQ(compare(files(10.4)).exit_code, 0);
  EXPECT_EQ(compare(files(2)).exit_code, 0);
}

TEST(Comparison, AThirdFileIsHeldAgainstTheFirstThatRanAlike) {
  std::vector<ComparedFile> files = {file_of("single", result_of({h100}, both("single", 1, .050, .020))),
                                     file_of("old", result_of({h100, h100}, both("p2p", 2, .028, .012))),
                                     file_of("new", result_of({h100, h100}, both("p2p", 2, .028, .0128)))};
  const Comparison comparison = compare(files);
  EXPECT_EQ(comparison.exit_code, 5);
  ASSERT_THAT(comparison.regressions, SizeIs(1));
  const std::string row = line_with(comparison_text(comparison), "| voxelize 1000000 points throughput");
  EXPECT_THAT(row, testing::AllOf(HasSubstr(" new |"), HasSubstr("-6.2 %"), HasSubstr("  worse |")));
}

TEST(Comparison, UnlikeDevicesAreSaidAndNotJudged) {
  std::vector<ComparedFile> files = {file_of("h", result_of({h100}, both("single", 1, .050, .020))),
                                     file_of("a", result_of({a100}, both("single", 1, .057, .032)))};
  const Comparison comparison = compare(files);
  EXPECT_EQ(comparison.exit_code, 0);
  EXPECT_EQ(comparison.judged, 0u);
  EXPECT_THAT(comparison.reasons, ElementsAre(HasSubstr("nothing to judge for regressions")));
  EXPECT_THAT(comparison.notes, ElementsAre("a ran on NVIDIA A100, h on NVIDIA H100: different devices are "
                                            "compared, but not judged for regressions"));
}

TEST(Comparison, RanksOfARunBecomeOneFigure) {
  const auto burn = [](double second_rank) {
    return result_of({h100, h100, h100},
                     {part("train", 0, {{"samples_per_second", 100.0}, {"tflops", 1.0}}),
                      part("collective", 0, {{"all_reduce_bus_gb_per_s", 300.0}}),
                      part("io", 0, {{"write_gb_per_s", 1.0}, {"read_gb_per_s", 2.0}}),
                      part("train", 1, {{"samples_per_second", second_rank}, {"tflops", 1.0}}),
                      part("collective", 1, {{"all_reduce_bus_gb_per_s", 310.0}}),
                      part("io", 1, {{"write_gb_per_s", 1.0}, {"read_gb_per_s", 2.0}}),
                      part("train", 2, {{"samples_per_second", 100.0}, {"tflops", 1.0}}),
                      part("collective", 2, {{"all_reduce_bus_gb_per_s", 305.0}}),
                      part("io", 2, {{"write_gb_per_s", 1.0}, {"read_gb_per_s", 2.0}})},
                     "burn");
  };
  const Comparison comparison = compare({file_of("old", burn(100)), file_of("new", burn(80))});
  std::vector<std::pair<std::string, double>> baselines;
  for (const ComparedTest& test : comparison.tests)
    baselines.emplace_back(test.test + " " + test.figure, test.baseline().value.value_or(-1));
  EXPECT_THAT(baselines,
              ElementsAre(std::pair("train samples_per_second", 300.0),
                          std::pair("collective all_reduce_bus_gb_per_s", 305.0),
                          std::pair("io read_gb_per_s", 6.0), std::pair("io write_gb_per_s", 3.0)));
  EXPECT_EQ(comparison.tests[0].baseline().configuration.devices, 3);
  ASSERT_THAT(comparison.regressions, SizeIs(1));
  EXPECT_THAT(comparison.regressions[0].worse_percent, Optional(DoubleNear(20.0 / 3, 1e-9)));
}

TEST(Comparison, AFigureThatARankLacksIsNotMeasured) {
  Json lacking = result_of({h100, h100}, {part("train", 0, {{"samples_per_second", 100.0}}),
                                          part("train", 1, {{"samples_per_second", nullptr}})});
  Json whole = result_of({h100, h100}, {part("train", 0, {{"samples_per_second", 100.0}}),
                                        part("train", 1, {{"samples_per_second", 100.0}})});
  const Comparison comparison = compare({file_of("a", whole), file_of("b", lacking)});
  EXPECT_EQ(comparison.tests[0].values[1].value, std::nullopt);
  EXPECT_THAT(comparison.notes, IsEmpty()) << "the table has it";
  EXPECT_EQ(comparison.exit_code, 5);
  EXPECT_THAT(comparison.reasons, ElementsAre("missing, but not in the baseline: 1 value"));
  EXPECT_THAT(line_with(comparison_text(comparison), "| train throughput"),
              HasSubstr("not measured | missing |"));
}

TEST(Comparison, EveryKnownFigureIsFound) {
  for (const KnownFigure& known : work_figures) {
    const Json entry = part("x", 0, {{std::string(known.name), 2.0}, {"other_gb_per_s", 3.0}});
    const auto figures = tests_of(result_of({h100}, {entry}));
    ASSERT_THAT(figures, SizeIs(1)) << known.name;
    EXPECT_EQ(figures[0].figure, known.name);
    EXPECT_EQ(figures[0].better, known.better);
  }
  for (const KnownFigure& known : part_figures) {
    const std::string name = "one_way_" + std::string(known.name);
    const auto figures =
        tests_of(result_of({h100}, {part("x", 0, {{name, {{"median", 2.0}}}, {"bytes", 5}})}));
    ASSERT_THAT(figures, SizeIs(1)) << known.name;
    EXPECT_EQ(figures[0].figure, name);
    EXPECT_EQ(figures[0].unit, known.unit);
    EXPECT_EQ(figures[0].baseline().value, 2.0);
    EXPECT_THAT(
        tests_of(result_of({h100}, {part("x", 0, {{"expected_" + std::string(known.name), 2.0}})}))[0].figure,
        IsEmpty());
  }
}

TEST(Comparison, APairOfLinksIsOfItsTwoDevices) {
  const Json pair = {{"test_name", "pair 0-2 by NCCL"},
                     {"from", 0},
                     {"to", 2},
                     {"rank", nullptr},
                     {"one_way_gb_per_second", 390.0},
                     {"algorithm_gb_per_second", 390.0},
                     {"latency_us", 12.0}};
  const auto figures = tests_of(result_of({h100, a100, a100, a100}, {pair}, "links"));
  ASSERT_THAT(figures, SizeIs(2));
  EXPECT_EQ(figures[0].figure, "latency_us");
  EXPECT_EQ(figures[1].figure, "one_way_gb_per_second");
  EXPECT_EQ(to_text(figures[0].baseline().configuration), "1x NVIDIA A100 + 1x NVIDIA H100");
}

TEST(Comparison, ATestThatFailsNowIsARegression) {
  auto files = pair_of(1);
  files[1].result["results"][0].update({{"success", false}, {"failure", "3 wrong voxels"}});
  const Comparison comparison = compare(files);
  EXPECT_EQ(comparison.exit_code, 5);
  EXPECT_THAT(comparison.reasons, ElementsAre("failed, but passed in the baseline: 1 test"));
  EXPECT_THAT(line_with(comparison_text(comparison), "| mlp batch 8192"), HasSubstr("| failed |"));
  EXPECT_THAT(comparison.notes,
              ElementsAre("failed in new: mlp batch 8192, 1x NVIDIA H100 (3 wrong voxels)"));
  std::swap(files[0].result, files[1].result);
  EXPECT_EQ(compare(files).exit_code, 0) << "what failed before and passes now is none";
}

TEST(Comparison, ATestThatFailedBeforeItMeasuredIsARegressionToldOnce) {
  const Json whole = part("io", 0, {{"write_gb_per_s", 1.0}, {"read_gb_per_s", 2.0}});
  Json failed = part("io", 0, {{"write_gb_per_s", nullptr}, {"read_gb_per_s", nullptr}});
  failed["success"] = false;
  Json slow = whole;
  slow["success"] = false;
  for (const Json& now : {failed, slow}) {
    const Comparison comparison =
        compare({file_of("a", result_of({h100}, {whole})), file_of("b", result_of({h100}, {now}))});
    EXPECT_EQ(comparison.exit_code, 5);
    EXPECT_THAT(comparison.reasons, ElementsAre("failed, but passed in the baseline: 1 test"));
    EXPECT_THAT(comparison.tests, SizeIs(2));
  }
}

TEST(Comparison, TestsWithoutFiguresAreComparedBySuccess) {
  const auto result = [](bool success) {
    Json entry = part("selftest.gemm", 0, {{"found", 4}});
    entry["success"] = success;
    return result_of({h100}, {entry}, "selftest");
  };
  EXPECT_EQ(compare({file_of("a", result(true)), file_of("b", result(true))}).exit_code, 0);
  const Comparison comparison = compare({file_of("a", result(true)), file_of("b", result(false))});
  EXPECT_EQ(comparison.exit_code, 5);
  EXPECT_THAT(comparison_text(comparison), HasSubstr("| selftest.gemm |   passed | failed |"));
}

TEST(Comparison, ZeroAndHugeFiguresNeverDivide) {
  auto files = pair_of(1);
  files[0].result["results"][0]["items_per_second"] = 0.0;
  const Comparison zero = compare(files);
  EXPECT_EQ(zero.tests[0].values[1].speedup, std::nullopt);
  EXPECT_EQ(zero.tests[0].values[1].change_percent, std::nullopt);
  EXPECT_THAT(zero.notes, ElementsAre("the baseline is 0, so no speed-up: mlp batch 8192"));
  files = pair_of(0);
  const Comparison nothing = compare(files);
  EXPECT_EQ(nothing.exit_code, 5) << "no work at all is 100 % worse";
  EXPECT_EQ(nothing.tests[0].values[1].speedup, 0);
  files = pair_of(1);
  files[0].result["results"][0]["items_per_second"] = 1e-300;
  files[1].result["results"][0]["items_per_second"] = 1e300;
  EXPECT_EQ(compare(files).tests[0].values[1].speedup, std::nullopt);
  for (const Json& bad : {Json(std::numeric_limits<double>::quiet_NaN()), Json(-5.0), Json("7"), Json()}) {
    files[1].result["results"][0]["items_per_second"] = bad;
    files[1].result["results"][0]["step_ms"] = nullptr;
    const Comparison comparison = compare(files);
    EXPECT_EQ(comparison.judged, 0u);
    const Json json = Json::parse(result_text(comparison_json(comparison)));
    EXPECT_EQ(json["exit_code"], 5) << "what is not measured any more is no pass";
  }
  const double huge = std::numeric_limits<double>::max();
  const Json sum =
      result_of({h100, h100}, {part("t", 0, {{"tflops", huge}}), part("t", 1, {{"tflops", huge}})});
  EXPECT_EQ(tests_of(sum)[0].baseline().value, std::nullopt);
}

TEST(Comparison, SaysWhatSetsFilesApart) {
  auto files = pair_of(1);
  Json& old = files[0].result;
  Json& other = files[1].result;
  old.update({{"verdict", "fault"}, {"reasons", {"rank 0 computed wrong"}}});
  old["options"] = {{"batch", 128}, {"seed", 1}};
  old["system_info"] = {{"driver_version", "580.1"}, {"cuda_version", "13.0"}};
  other["options"] = {{"batch", 256}, {"seed", 2}};
  other["system_info"] = {{"driver_version", "575.2"}, {"cuda_version", "13.0"}};
  other["program_version"] = "0.0.9";
  other["results"].push_back(bench("mlp", 64, "single", 1, 1));
  const Comparison comparison = compare(files);
  EXPECT_THAT(
      comparison.notes,
      ElementsAre("the baseline old: its verdict is fault, not pass (rank 0 computed wrong)",
                  "new: written by version 0.0.9 of the program, this is " + std::string(program_version()),
                  "new: driver_version \"575.2\" (old: \"580.1\")",
                  "new: other options than old: --batch 256 (128)", "only in new: mlp batch 64"));
}

TEST(Comparison, TheSpreadIsShownAndCountsNot) {
  auto files = pair_of(0.94);
  files[1].result["results"][0]["spread_percent"] = 40.0;
  const Comparison comparison = compare(files);
  EXPECT_EQ(comparison.exit_code, 5);
  EXPECT_THAT(line_with(comparison_text(comparison), "| mlp"), HasSubstr("-6.0 % | 40.0 % |"));
}

TEST(Comparison, AWorseVerdictIsARegressionAndToldFirst) {
  const std::vector<std::string> verdicts = {"pass", "degraded", "incomplete", "fault"};
  for (std::size_t before = 0; before < verdicts.size(); ++before)
    for (std::size_t now = 0; now < verdicts.size(); ++now) {
      auto files = pair_of(1);
      files[0].result["verdict"] = verdicts[before];
      files[1].result["verdict"] = verdicts[now];
      EXPECT_EQ(compare(files).exit_code, now > before || now > 1 ? 5 : 0)
          << verdicts[before] << ", " << verdicts[now];
    }
  auto files = pair_of(0.9);
  files[1].result.update({{"verdict", "fault"}, {"reasons", {"rank 1: memory fault"}}});
  const Comparison comparison = compare(files);
  EXPECT_THAT(comparison.reasons,
              ElementsAre("new: its verdict is fault (rank 1: memory fault)", HasSubstr("more than 5 %")));
  EXPECT_THAT(comparison.notes, Not(testing::Contains(HasSubstr("its verdict is"))));
  EXPECT_EQ(comparison.verdict, "degraded");
  EXPECT_EQ(comparison_json(comparison)["worse_verdicts"], Json({"new"}));
  files[1].result["verdict"] = "interrupted";
  EXPECT_THAT(compare(files).worse_verdicts, IsEmpty()) << "nothing was wrong";
}

TEST(Comparison, AVerdictCountsWhereNoFigureCan) {
  auto files = pair_of(1);
  files[1].result["ranks"].push_back({{"rank", 1}, {"device", {{"name", h100}}}});
  files[1].result["results"][0].update({{"devices", 2}, {"ranks", {0, 1}}, {"mode", "p2p"}});
  EXPECT_EQ(compare(files).exit_code, 0);
  files[1].result["verdict"] = "incomplete";
  EXPECT_EQ(compare(files).exit_code, 5);
  EXPECT_EQ(compare({files[1]}).exit_code, 5) << "also of a file alone";
}

TEST(Comparison, NothingComparedIsNoPass) {
  const Comparison comparison = compare({pair_of(1)[0]});
  EXPECT_EQ(comparison.exit_code, 4);
  EXPECT_EQ(comparison.verdict, "incomplete");
  EXPECT_THAT(comparison.reasons, ElementsAre(HasSubstr("nothing was compared")));
  EXPECT_TRUE(comparison_text(comparison).starts_with("nothing to compare with: only one result\n"));
}

TEST(Comparison, FilesWithoutATestInCommonAreWrongUsage) {
  const Comparison comparison =
      compare({file_of("a", result_of({h100}, {part("train", 0, {{"tflops", 1.0}})})),
               file_of("b", result_of({h100}, {part("links", 0, {{"gb_per_s", 1.0}})}))});
  EXPECT_EQ(comparison.exit_code, 2);
  EXPECT_EQ(comparison.verdict, "");
  EXPECT_THAT(comparison.reasons, ElementsAre(HasSubstr("no test in common")));
}

TEST(Comparison, WhatCouldNotBeReadIsSaidAndTheRestCompared) {
  auto files = pair_of(0.94);
  files.insert(files.begin(), {"broken.json", "broken", Json(), "is damaged"});
  const Comparison comparison = compare(files);
  EXPECT_EQ(comparison.exit_code, 2);
  EXPECT_EQ(comparison.verdict, "");
  EXPECT_THAT(comparison.reasons,
              ElementsAre("left out: 1 of 3 files: broken.json", HasSubstr("more than 5 %")));
  EXPECT_THAT(comparison_text(comparison), Not(HasSubstr("is damaged"))) << "it is in problems_text";
  EXPECT_EQ(problems_text(comparison.files), "broken.json: is damaged\n");
  EXPECT_EQ(comparison.tests[0].values[0].file, 1u) << "the next file is the baseline";
  const Comparison none = compare({files[0]});
  EXPECT_EQ(none.exit_code, 2);
  EXPECT_EQ(comparison_text(none), "");
}

}  // namespace
}  // namespace egt
