#include "workload/ceilings/ceiling_plan.hpp"

#include <algorithm>
#include <set>

#include <gtest/gtest.h>

#include "model/mlp_config.hpp"
#include "workload/ceilings/ceiling_entry.hpp"
#include "workload/common/measurement_workload.hpp"

namespace egt::test {
namespace {

CeilingScope two_ranks() {
  return {.ranks = 2,
          .layers = {8, 6, 4},
          .batch = 32,
          .precisions = {Precision::fp32, Precision::bf16},
          .products_over_memory = {Precision::fp32, Precision::int8},
          .sums = {8, 1 << 20}};
}

std::vector<std::string> names(const CeilingScope& scope) {
  std::vector<std::string> all;
  for (const CeilingTrial& trial : plan_ceilings(scope))
    for (const CeilingRow& row : trial.rows) all.push_back(row.name);
  return all;
}

bool has(const std::vector<std::string>& all, const std::string& name) {
  return std::find(all.begin(), all.end(), name) != all.end();
}

TEST(CeilingPlan, ProductsOfAStepAreThoseOfTheNetwork) {
  const auto products = products_of_step({8, 6, 4}, 32);
  std::vector<std::string> texts;
  double flops = 0;
  for (const StepGemm& product : products) {
    texts.push_back(describe(product));
    flops += product.flops();
  }
  EXPECT_EQ(texts,
            (std::vector<std::string>{"forward 1, 32x6x8", "forward 2, 32x4x6", "input gradient 2, 32x6x4",
                                      "weight gradient 2, 4x6x32", "weight gradient 1, 6x8x32"}));
  EXPECT_EQ(flops, 32 * flops_per_sample({8, 6, 4}));
}

TEST(CeilingPlan, EveryPartHasItsRow) {
  const auto all = names(two_ranks());
  EXPECT_EQ(std::set<std::string>(all.begin(), all.end()).size(), all.size()) << "a name stands for one test";
  for (const char* name : {"fp32 forward 2, 32x4x6", "bf16 weight gradient 1, 6x8x32", "bf16 step, batch 32",
                           "fp32 step, batch 32, with sums of 2 ranks", "int8 product over memory, digested",
                           "fill", "digest", "verify", "verify and refill", "patrol, at rest",
                           "update of weights", "extreme term", "host copies, verified", "all-reduce of 8 B",
                           "all-reduce of 1.05 MB, verified", "file write", "file read, verified"})
    EXPECT_TRUE(has(all, name)) << name;
}

TEST(CeilingPlan, WhatThereIsNotHasNoRow) {
  CeilingScope scope = two_ranks();
  scope.ranks = 1;
  scope.extreme = scope.files = false;
  for (const std::string& name : names(scope))
    for (const char* part : {"all-reduce", "ranks", "extreme", "file"})
      EXPECT_EQ(name.find(part), std::string::npos) << name;
}

TEST(CeilingPlan, AGpuIsWarmedUntilItsClocksAreSustained) {
  EXPECT_EQ(pace_of(2, true, true).warm_up, 3);
  EXPECT_LT(pace_of(2, true, false).warm_up, 1);
  EXPECT_LT(pace_of(2, false, true).warm_up, 1);
  const CeilingPace usual = pace_of(2, true, false), brief = pace_of(0.05, false, false);
  EXPECT_EQ(usual.burst, 0.1);
  EXPECT_EQ(usual.rounds, 10);
  EXPECT_EQ(brief.rounds, 5);
  EXPECT_EQ(brief.burst, 0.005);
}

TEST(CeilingPlan, BurstsGrowToTheirLength) {
  EXPECT_EQ(next_count(1, 0.001, 0.1), 8) << "no more than 8 times";
  EXPECT_EQ(next_count(8, 40, 0.1), 20);
  EXPECT_EQ(next_count(100, 1000, 0.1), 10);
  EXPECT_EQ(next_count(1, 1e6, 0.1), 1);
  EXPECT_EQ(next_count(1 << 16, 0, 0.1), 1 << 16);
}

CeilingEntry measured() {
  CeilingEntry entry;
  entry.row = {"verify", "memory", CeilingUnit::gb_per_s, "read_bandwidth"};
  entry.ours = {8e9, 9e9, 5e9};
  entry.limit = {10e9, 10e9, 10e9};
  entry.power_w = 690;
  entry.facts = {{"direct_io", true}};
  return entry;
}

TEST(CeilingEntry, RatiosAreThoseOfARound) {
  const PartReport report = report_of(measured());
  EXPECT_EQ(report.figures.at("gb_per_s"), 8.0);
  EXPECT_EQ(report.figures.at("limit_gb_per_s"), 10.0);
  EXPECT_EQ(report.figures.at("ratio_read_bandwidth"), 0.8);
  EXPECT_DOUBLE_EQ(report.figures.at("ratio_spread_percent").get<double>(), 50.0);
  EXPECT_EQ(report.figures.at("power_w"), 690.0);
  EXPECT_TRUE(report.figures.at("sm_clock_mhz").is_null()) << "no sensor told it";
  EXPECT_TRUE(report.figures.at("direct_io").get<bool>());
  EXPECT_FALSE(report.of_all_ranks);
  EXPECT_TRUE(report.success);
  EXPECT_EQ(line_of(measured()), "verify: 8 GB/s, 0.800 of the read bandwidth (10), spread 50.0 %");
}

TEST(CeilingEntry, WhatFailedHasNoFigures) {
  CeilingEntry entry;
  entry.row = measured().row;
  entry.failure = "rank 1: out_of_memory";
  const PartReport report = report_of(entry);
  EXPECT_FALSE(report.success);
  EXPECT_EQ(report.failure, "rank 1: out_of_memory");
  for (const char* name : {"gb_per_s", "limit_gb_per_s", "ratio_read_bandwidth", "ratio_spread_percent"})
    EXPECT_TRUE(report.figures.at(name).is_null()) << name;
  EXPECT_EQ(line_of(entry), "verify: failed: rank 1: out_of_memory");
}

}  // namespace
}  // namespace egt::test
