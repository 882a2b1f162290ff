// Each GPU compared with its own past runs.
#include "judge/history.hpp"

#include <cmath>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "judge/result.hpp"
#include "tests/support/record_fixtures.hpp"

namespace egt {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

Json line(int gpu, int run, double tflops) {
  return {
      {"id", fmt::format("GPU-{}", gpu)},
      {"run_id", fmt::format("run{}", run)},
      {"verdict", "pass"},
      {"injected", false},
      {"rank", gpu},
      {"hostname", "node7"},
      {"device", {{"uuid", fmt::format("GPU-{}", gpu)}}},
      {"seconds", 3600},
      {"values", {{"compute_tflops", tflops}, {"compute_ms", 30}, {"temperature_c", 70}, {"power_w", 690}}},
      {"errors", {{"ecc_corrected", 0}}},
      {"configuration", {{"command", "burn"}, {"precisions", {"bf16"}}}}};
}

/// Runs of equal GPUs with reproducible noise: a part of each GPU, and one that all share.
struct Runs {
  explicit Runs(int gpus, unsigned seed = 1) : count(gpus), random(seed) {
    for (int gpu = 0; gpu < gpus; ++gpu) usual.push_back(600 * (1 + 0.02 * normal(random)));
  }
  /// Adds a run; `factors` are the GPUs' rates relative to their usual ones.
  void add(const std::vector<double>& factors) {
    const double shared = shared_noise * normal(random);
    for (int gpu = 0; gpu < count; ++gpu) {
      const auto g = static_cast<std::size_t>(gpu);
      lines.push_back(line(gpu, runs, usual[g] * factors[g] * std::exp(shared + own_noise * normal(random))));
    }
    ++runs;
  }
  void add(int times, double factor = 1) {
    for (int i = 0; i < times; ++i) add(std::vector<double>(static_cast<std::size_t>(count), factor));
  }
  std::vector<Json*> last_run() {
    std::vector<Json*> all;
    for (std::size_t i = lines.size() - static_cast<std::size_t>(count); i < lines.size(); ++i)
      all.push_back(&lines[i]);
    return all;
  }
  std::vector<Finding> findings() const {
    std::vector<Finding> all;
    for (const GpuHistory& gpu : review_history(lines))
      all.insert(all.end(), gpu.findings.begin(), gpu.findings.end());
    return all;
  }

  int count, runs = 0;
  double own_noise = 0.003, shared_noise = 0.002;
  std::mt19937_64 random;
  std::normal_distribution<double> normal;
  std::vector<double> usual;
  std::vector<Json> lines;
};

TEST(History, AGpuThatLosesThreePerMilleARunIsReportedByRun12AndNoOther) {
  for (unsigned seed = 1; seed <= 20; ++seed) {
    Runs runs(8, seed);
    int reported = 0;
    for (int run = 1; run <= 20; ++run) {
      std::vector<double> factors(8, 1);
      factors[5] = std::pow(1 - 0.003, run - 1);
      runs.add(factors);
      for (const Finding& finding : runs.findings()) {
        EXPECT_EQ(finding.rank, 5) << "seed " << seed << ", run " << run << ": " << finding.text;
        if (reported == 0) reported = run;
      }
    }
    EXPECT_GT(reported, 0) << seed;
    EXPECT_LE(reported, 12) << seed;
  }
}

TEST(History, AStepIsReportedWithItsValues) {
  Runs runs(8);
  runs.add(6);
  EXPECT_THAT(runs.findings(), IsEmpty());
  std::vector<double> factors(8, 1);
  factors[2] = 0.94;
  runs.add(factors);
  const auto found = runs.findings();
  ASSERT_THAT(found, SizeIs(1));
  EXPECT_EQ(found[0].kind, "history");
  EXPECT_EQ(found[0].rank, 2);
  EXPECT_EQ(found[0].hostname, "node7");
  EXPECT_EQ(found[0].device_uuid, "GPU-2");
  EXPECT_EQ(found[0].where, "compute rate compared with its past");
  EXPECT_NEAR(*found[0].actual / *found[0].expected, 0.94, 0.01);
  EXPECT_THAT(found[0].text, HasSubstr("below its own past in its last run"));
  EXPECT_THAT(found[0].text, HasSubstr("(70 C, 690 W; in the first run 70 C, 690 W)"));
}

TEST(History, AChangeOfAllGpusIsNone) {
  for (const int gpus : {2, 3, 8}) {
    Runs runs(gpus, 7);
    runs.add(8);
    runs.add(8, 0.95);
    EXPECT_THAT(runs.findings(), IsEmpty()) << gpus;
  }
  Runs alone(1);
  alone.add(8);
  alone.add(2, 0.95);
  EXPECT_THAT(alone.findings(), SizeIs(1)) << "without another GPU, nothing shows that it is the room";
}

TEST(History, AFasterGpuAccusesNoOther) {
  for (const int gpus : {2, 3, 8}) {
    Runs runs(gpus, 3);
    runs.add(8);
    std::vector<double> factors(static_cast<std::size_t>(gpus), 1);
    factors[0] = 1.06;
    for (int i = 0; i < 4; ++i) runs.add(factors);
    EXPECT_THAT(runs.findings(), IsEmpty()) << gpus;
    factors[0] = 0.94;
    runs.add(factors);
    ASSERT_THAT(runs.findings(), SizeIs(1)) << gpus;
    EXPECT_EQ(runs.findings()[0].rank, 0);
  }
}

TEST(History, ItNeedsFiveEarlierRunsLikeThisOne) {
  Runs runs(8);
  runs.add(4);
  std::vector<double> factors(8, 1);
  factors[0] = 0.5;
  runs.add(factors);
  EXPECT_THAT(runs.findings(), IsEmpty());
  EXPECT_FALSE(review_history(runs.lines)[0].rates.at(0).decline.has_value());
  runs.add(factors);
  EXPECT_THAT(runs.findings(), SizeIs(1));
  for (Json* last : runs.last_run()) (*last)["configuration"]["precisions"] = {"fp8"};
  EXPECT_THAT(runs.findings(), IsEmpty()) << "no earlier run has this configuration";
  EXPECT_EQ(review_history(runs.lines)[0].rates.at(0).runs, 1u);
}

TEST(History, SmallDeclinesAreNone) {
  Runs runs(8);
  runs.own_noise = runs.shared_noise = 1e-5;
  runs.add(10);
  std::vector<double> factors(8, 1);
  factors[1] = 0.992;
  for (int i = 0; i < 8; ++i) runs.add(factors);
  EXPECT_THAT(runs.findings(), IsEmpty());
  factors[1] = 0.985;
  for (int i = 0; i < 8; ++i) runs.add(factors);
  EXPECT_THAT(runs.findings(), SizeIs(1));
}

TEST(History, ARepairedGpuIsNoFindingAnyMore) {
  Runs runs(8);
  runs.add(8);
  std::vector<double> factors(8, 1);
  factors[1] = 0.95;
  for (int i = 0; i < 8; ++i) runs.add(factors);
  EXPECT_THAT(runs.findings(), SizeIs(1)) << "a slow GPU does not become its own standard";
  runs.add(8);
  EXPECT_THAT(runs.findings(), IsEmpty());
}

TEST(History, RunsThatProveNoRateAreNoPastAndAreNotJudged) {
  const std::vector<std::pair<const char*, Json>> marks = {
      {"verdict", "fault"}, {"verdict", "incomplete"}, {"verdict", "interrupted"}, {"injected", true}};
  for (const auto& [key, value] : marks) {
    Runs slow_past(1);
    slow_past.add(6);
    slow_past.add(6, 0.5);
    EXPECT_THAT(slow_past.findings(), SizeIs(1));
    for (Json* last : slow_past.last_run()) (*last)[key] = value;
    EXPECT_THAT(slow_past.findings(), IsEmpty()) << key << " " << value;

    Runs marked(1);
    marked.add(6);
    for (Json& one : marked.lines) one[key] = value;
    marked.add(1, 0.5);
    EXPECT_THAT(marked.findings(), IsEmpty()) << key << " " << value;
    EXPECT_EQ(review_history(marked.lines)[0].rates.at(0).runs, 1u);
  }
}

TEST(History, TheLastLineOfARunCounts) {
  Runs runs(1);
  runs.add(5);
  runs.add(1, 0.5);
  runs.lines.back()["verdict"] = "interrupted";
  EXPECT_THAT(runs.findings(), IsEmpty());
  runs.lines.push_back(line(0, 5, 300));  // the run was resumed
  EXPECT_THAT(runs.findings(), SizeIs(1));
  EXPECT_EQ(review_history(runs.lines)[0].runs, 6u);
}

TEST(History, GrowingCorrectedErrorsAreAFindingWhateverTheConfiguration) {
  Runs runs(2);
  runs.add(6);
  for (Json& one : runs.lines) one["verdict"] = "fault";
  const auto with_errors = [&](double count) {
    (*runs.last_run()[1])["errors"]["ecc_corrected"] = count;
    (*runs.last_run()[1])["configuration"] = {{"command", "verify"}};
    return runs.findings();
  };
  EXPECT_THAT(with_errors(19), IsEmpty());
  const auto found = with_errors(20);
  ASSERT_THAT(found, SizeIs(1));
  EXPECT_EQ(found[0].rank, 1);
  EXPECT_EQ(found[0].where, "corrected memory errors compared with its past");
  EXPECT_THAT(found[0].text, HasSubstr("grow: 20 per hour, 0 in its 5 earlier runs"));
  for (Json& one : runs.lines) one["errors"]["ecc_corrected"] = 30;
  EXPECT_THAT(with_errors(149), IsEmpty()) << "this GPU always has some";
  EXPECT_THAT(with_errors(151), SizeIs(1));
  (*runs.last_run()[1])["injected"] = true;
  EXPECT_THAT(runs.findings(), IsEmpty());
}

TEST(History, DamagedValuesAreNoValues) {
  Runs runs(1);
  runs.add(8);
  for (const Json& value : {Json("x"), Json(), Json(-1), Json(0), Json(INFINITY), Json::array()}) {
    Json damaged = line(0, 100, 1);
    damaged["values"]["compute_tflops"] = value;
    runs.lines.push_back(damaged);
    EXPECT_THAT(runs.findings(), IsEmpty()) << value;
    EXPECT_EQ(review_history(runs.lines)[0].rates.at(0).runs, 8u) << value;
  }
  EXPECT_THAT(review_history({Json(), Json(3), Json::object()}), SizeIs(1));
}

TEST(History, LinesHaveWhatTheResultHas) {
  std::vector<Record> records;
  for (int rank = 0; rank < 2; ++rank) records.push_back(fixtures::start(rank, 2));
  records[0].body["run_id"] = records[1].body["run_id"] = "abc";
  records[0].body["identity"]["device"]["serial"] = "13202";
  records[0].body["options"] = {{"seed", 7}, {"duration", 60.0}};
  records.push_back(fixtures::fault(1));
  for (int rank = 0; rank < 2; ++rank) records.push_back(fixtures::end(rank));
  records[4].body["counters"]["ecc_corrected"]["moved"] = {{"memory", 3}, {"train", 4}};
  Verdict verdict;
  verdict.name = "fault";
  const auto lines = history_lines(build_result(records, verdict));
  ASSERT_THAT(lines, SizeIs(2));
  EXPECT_EQ(lines[0]["id"], "13202");
  EXPECT_EQ(lines[1]["id"], "GPU-1") << "without a serial number";
  EXPECT_EQ(lines[0]["run_id"], "abc");
  EXPECT_EQ(lines[0]["verdict"], "fault");
  EXPECT_EQ(lines[0]["seconds"], 30.5);
  EXPECT_EQ(lines[0]["values"]["power_w"], 600.0);
  EXPECT_EQ(lines[0]["errors"]["faults"], 0);
  EXPECT_EQ(lines[1]["errors"]["faults"], 1);
  EXPECT_EQ(lines[1]["errors"]["ecc_corrected"], 7);
  EXPECT_EQ(lines[0]["configuration"]["ranks"], 2);
  EXPECT_EQ(lines[0]["configuration"]["options"], Json({{"duration", 60.0}}));
}

TEST(History, AGpuIsKnownByItsSerialNumber) {
  Json identity = {{"hostname", "node7"},
                   {"backend", "host"},
                   {"device", {{"index", 3}, {"name", "CPU"}, {"uuid", nullptr}}}};
  EXPECT_EQ(history_id(identity), "node7-host-3");
  identity["device"]["uuid"] = "GPU-1";
  EXPECT_EQ(history_id(identity), "GPU-1");
  identity["device"]["serial"] = "13202";
  EXPECT_EQ(history_id(identity), "13202");
  identity["device"]["name"] = "NVIDIA H200 MIG 1g.18gb";
  EXPECT_EQ(history_id(identity), "GPU-1") << "instances share the serial number";
}

}  // namespace
}  // namespace egt
