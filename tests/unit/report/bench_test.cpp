#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "report/tables/summary.hpp"

namespace egt {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

Json one(const std::string& workload, std::int64_t size, const std::string& mode, std::vector<int> ranks,
         double step) {
  const auto devices = static_cast<double>(ranks.size());
  const std::string name = workload == "voxelize" ? "voxelize " + std::to_string(size) + " points"
                                                  : workload + " batch " + std::to_string(size);
  return {{"test_name", name},
          {"test_type", "bench"},
          {"rank", nullptr},
          {"workload", workload},
          {"size", size},
          {"mode", mode},
          {"devices", ranks.size()},
          {"ranks", ranks},
          {"step_ms", {{"min", step}, {"p50", step}, {"p95", step}, {"max", step}}},
          {"spread_percent", 1.25},
          {"ms_per_batch", step / devices},
          {"items", workload == "voxelize" ? "points" : "samples"},
          {"items_per_second", static_cast<double>(size) * devices / step * 1e3},
          {"speedup", nullptr},
          {"memory_bytes", 2e9},
          {"power_w", 700 * devices},
          {"sm_clock_mhz", 1755},
          {"success", true},
          {"failure", nullptr}};
}

Json result() {
  Json made = {{"schema", 1}, {"command", "bench"}, {"verdict", "pass"}, {"ranks", Json::array()}};
  for (int rank = 0; rank < 2; ++rank)
    made["ranks"].push_back({{"rank", rank}, {"device", {{"name", "NVIDIA H200"}}}});
  Json& results = made["results"] = Json::array();
  for (const auto& [workload, size] :
       {std::pair("mlp", 8192), std::pair("multimodal", 8), std::pair("multimodal", 32),
        std::pair("voxelize", 10'000), std::pair("voxelize", 1'000'000)}) {
    const double step = size == 32 ? 0.05 : size == 1'000'000 ? 0.02 : 1;
    for (int rank = 0; rank < 2; ++rank) results.push_back(one(workload, size, "single", {rank}, step));
    results.push_back(one(workload, size, "p2p", {0, 1}, step * 1.12));
    results.push_back(one(workload, size, "collective", {0, 1}, step * 1.28));
    results.push_back(one(workload, size, "hetero", {0, 1}, step * 1.1));
  }
  return made;
}

TEST(BenchText, HasModesSideBySideWhereWorkIsDivided) {
  Json made = result();
  EXPECT_EQ(parallel_text(made), "");
  Json pipeline = one("mlp", 8192, "pipeline", {0, 1}, 4);
  pipeline["parallel"] = {{"data", 1}, {"tensor", 1}, {"pipeline", 2}};
  pipeline["stages"] = {{1, 2}, {3, 6}};
  pipeline["micro_batches"] = 8;
  pipeline["bubble_share"] = 0.125;
  pipeline["bubble_share_formula"] = 1.0 / 9;
  pipeline["state_bytes"] = 1e9;
  pipeline["verified_against"] = "one device";
  pipeline["recommendation"] = "mlp batch 8192: use pipeline";
  made["results"].push_back(pipeline);
  const std::string text = bench_text(made);
  EXPECT_THAT(text, HasSubstr("\nParallel\n"));
  EXPECT_THAT(
      text,
      HasSubstr(
          "|   2, pipeline |       4 |       - |          - |          - |       - | 12.5 % |     11.1 % |"
          " 1.00 GB | 2.00 GB |"));
  EXPECT_THAT(
      text,
      HasSubstr(
          "\n  mlp batch 8192 (2, pipeline): layers 1 to 2, 3 to 6, 8 micro-batches; gradients compared "
          "with one device\n  mlp batch 8192: use pipeline\n"));
  const std::string parallel = parallel_text(made);
  EXPECT_THAT(parallel, HasSubstr("| 2, collective |"));
  EXPECT_THAT(parallel, Not(HasSubstr("voxelize"))) << "is divided by its batch alone";
}

TEST(BenchText, HasTheSeedsTable) {
  const std::string text = bench_text(result());
  EXPECT_THAT(
      text,
      HasSubstr("| Configuration               | Multimodal (ms) | Voxelize (ms) | MLP (ms) | Speedup |"));
  EXPECT_THAT(
      text,
      HasSubstr("| 1x NVIDIA H200              |           0.050 |         0.020 |    1.000 |   1.00x |"));
  EXPECT_THAT(
      text,
      HasSubstr("| 2x NVIDIA H200 (p2p)        |           0.028 |         0.011 |    0.560 |   1.79x |"));
  EXPECT_THAT(text, HasSubstr("2x NVIDIA H200 (collective)"));
  EXPECT_THAT(text, HasSubstr("2x NVIDIA H200 (hetero)"));
  EXPECT_THAT(text, HasSubstr("multimodal batch 32, voxelize 1000000 points, mlp batch 8192"));
}

TEST(BenchText, HasAllThatWasMeasured) {
  const std::string text = bench_text(result());
  for (const char* piece :
       {"\nmlp\n", "\nmultimodal\n", "\nvoxelize\n", "| voxelize 10000 points   |  rank 1 alone |",
        "| multimodal batch 8  | 2, collective |", "1.2 %", "2.00 GB", "1400 W | 1755 MHz |"})
    EXPECT_THAT(text, HasSubstr(piece));
  EXPECT_EQ(summary_text(result()), text);
}

TEST(BenchText, TellsWhatFailedOrCouldNotBe) {
  Json changed = result();
  Json& results = changed["results"];
  results[2]["success"] = false;
  results[2]["failure"] = "rank 1 found wrong results";
  results[3]["not_possible"] = "ranks 0 and 1 are on different hosts";
  results[3]["step_ms"] = results[3]["ms_per_batch"] = results[3]["items_per_second"] = nullptr;
  results[4]["shares"] = {10923, 5461};
  results[4]["even_items_per_second"] = 12'000'000;
  const std::string text = bench_text(changed);
  EXPECT_THAT(text, HasSubstr("  mlp batch 8192 (2, p2p): failed: rank 1 found wrong results\n"));
  EXPECT_THAT(
      text,
      HasSubstr("  mlp batch 8192 (2, collective): not possible: ranks 0 and 1 are on different hosts\n"));
  EXPECT_THAT(text, HasSubstr("shares [10923,5461], "));
  EXPECT_THAT(text, HasSubstr("in equal shares 12 M samples/s\n"));
}

TEST(BenchText, TellsWhatCompressionSavesAndCosts) {
  Json changed = result();
  Json compressed = one("mlp", 8192, "collective topk:1%", {0, 1}, 0.64);
  for (const auto& [name, value] :
       {std::pair("sent_bytes", 1e6), std::pair("whole_sent_bytes", 5e7), std::pair("whole_step_ms", 1.28),
        std::pair("loss", 0.105), std::pair("whole_loss", 0.1), std::pair("loss_excess_percent", 5.0)})
    compressed[name] = value;
  changed["results"].push_back(compressed);
  const std::string text = bench_text(changed);
  EXPECT_THAT(text, HasSubstr("| 2, collective topk:1% |"));
  EXPECT_THAT(text, HasSubstr("mlp batch 8192 (2, collective topk:1%): 1.00 MB sent per rank and step, "
                              "50.0 MB without compression; a step takes 0.50 times as long\n"));
  EXPECT_THAT(text,
              HasSubstr("loss 0.105 after as many steps as whole gradients give 0.1: +5.0 %, within 10 %\n"));
  changed["results"].back()["loss_excess_percent"] = 25;
  EXPECT_THAT(bench_text(changed), HasSubstr("+25.0 %, not within 10 %\n"));
}

TEST(BenchText, LeavesTheForecastOfAnOlderVersionOut) {
  Json changed = result();
  changed["results"][2]["efficiency_slowest"] = 0.875;
  const std::string text = bench_text(changed);
  EXPECT_THAT(text, HasSubstr(" 87.5 % |"));
  Json row = one("mlp", 8192, "collective", {0}, 4);
  row["forecast"] = true;
  changed["results"][3]["forecast_error_percent"] = 17.25;
  changed["results"].push_back(
      {{"test_name", "mlp batch 8192 forecast"}, {"forecast", true}, {"rows", {row}}});
  EXPECT_EQ(bench_text(changed), text);
}

TEST(BenchText, StandsWhatIsCut) {
  EXPECT_EQ(bench_text(Json::object()), "");
  EXPECT_EQ(bench_text({{"results", 3}}), "");
  const Json cut = {{"command", "bench"}, {"results", {{{"workload", "voxelize"}}, 7, nullptr}}};
  EXPECT_THAT(bench_text(cut), HasSubstr("voxelize"));
  EXPECT_THAT(bench_text(cut), Not(HasSubstr("nan")));
}

Json ceiling(const std::string& name, int rank, const Json& ratio) {
  return {{"test_name", name},
          {"test_type", "bench"},
          {"rank", rank},
          {"ceiling", "memory"},
          {"unit", "gb_per_s"},
          {"limit", "read_bandwidth"},
          {"gb_per_s", 4000},
          {"limit_gb_per_s", 5000},
          {"ratio_read_bandwidth", ratio},
          {"ratio_spread_percent", 1.5},
          {"sm_clock_mhz", 1980},
          {"power_w", nullptr},
          {"success", !ratio.is_null()},
          {"failure", ratio.is_null() ? Json("rank 1: no memory") : Json()}};
}

TEST(BenchText, CeilingsTellTheirRanksTogether) {
  const std::string text = bench_text({{"command", "bench"},
                                       {"results",
                                        {ceiling("verify", 0, 0.9), ceiling("digest", 0, 0.5),
                                         ceiling("verify", 1, 0.8), ceiling("digest", 1, nullptr)}}});
  EXPECT_THAT(text, HasSubstr("Ceilings: memory\n| Part "));
  EXPECT_THAT(text,
              HasSubstr("| verify | 4000 |  5000 | GB/s | 0.850 | 0.800 (rank 1) |  1.5 % | 1980 MHz |"));
  EXPECT_THAT(text, HasSubstr("| digest | 4000 |  5000 | GB/s | 0.500 | 0.500 (rank 0) |"));
  EXPECT_THAT(text, HasSubstr("  digest (rank 1): failed: rank 1: no memory\n"));
  EXPECT_THAT(text, Not(HasSubstr("Scaling")));
}

TEST(BenchText, CeilingsWhoseRoundsDifferHaveNoRatio) {
  Json unsteady = ceiling("verify", 0, 5.5);
  unsteady["ratio_spread_percent"] = 2009;
  const std::string text =
      bench_text({{"command", "bench"}, {"results", {unsteady, ceiling("digest", 0, 0.5)}}});
  EXPECT_THAT(
      text, HasSubstr("| verify | 4000 |  5000 | GB/s | unstable |              - | 2009.0 % | 1980 MHz |"));
  EXPECT_THAT(text, HasSubstr("| digest | 4000 |  5000 | GB/s |    0.500 | 0.500 (rank 0) |"));
  EXPECT_THAT(text, HasSubstr("\nRatio: the median over rounds of ours / limit of the same round"));
}

}  // namespace
}  // namespace egt
