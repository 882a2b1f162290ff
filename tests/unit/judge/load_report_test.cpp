#include "judge/load_report.hpp"

#include <gtest/gtest.h>

namespace egt {
namespace {

PartReport part_with(const LoadFigures& load) {
  PartReport part;
  part.load = load;
  return part;
}

TEST(LoadReport, SharesAreTheSecondsThatThePartsWouldHaveTakenAlone) {
  LoadFigures train;
  train.extreme = 6;
  train.products = 1;
  train.alone = {{"giga_turns_per_second", 118.0}};
  train.mix = {{"led_by_products", 0.25}};
  LoadFigures memory;
  memory.products = 2;
  memory.memory = 4.5;
  memory.host_copies = 1.5;
  memory.alone = {{"verify_gb_per_s", 3840.0}};
  const Json telemetry = {{"power_w_mean", 690.0},
                          {"power_limit_w", 700.0},
                          {"mix", {{"control", "power"}, {"power_sensor", nullptr}}}};
  const PartReport load = load_report({part_with(train), PartReport(), part_with(memory)}, 10, telemetry);
  EXPECT_EQ(load.name, "load");
  EXPECT_TRUE(load.success);
  const Json& figures = load.figures;
  EXPECT_DOUBLE_EQ(figures["share_extreme"].get<double>(), 0.6);
  EXPECT_DOUBLE_EQ(figures["share_products"].get<double>(), 0.3) << "of training and of those over memory";
  EXPECT_DOUBLE_EQ(figures["share_memory"].get<double>(), 0.45);
  EXPECT_DOUBLE_EQ(figures["share_host_copies"].get<double>(), 0.15);
  EXPECT_DOUBLE_EQ(figures["work_index"].get<double>(), 1.5);
  EXPECT_TRUE(figures["share_collective"].is_null()) << "one rank has no links";
  EXPECT_TRUE(figures["share_files"].is_null());
  EXPECT_DOUBLE_EQ(figures["power_ratio"].get<double>(), 690.0 / 700);
  EXPECT_EQ(figures["mix"], Json({{"led_by_products", 0.25}, {"control", "power"}}));
  EXPECT_TRUE(figures["power_sensor"].is_null());
  EXPECT_EQ(figures["alone"], Json({{"giga_turns_per_second", 118.0}, {"verify_gb_per_s", 3840.0}}));
}

TEST(LoadReport, AShareAboveOneIsMarkedAndNotSummed) {
  LoadFigures part;
  part.extreme = 6;
  part.files = 20;
  part.alone = {{"ratio_long_chains", 12.8}, {"ratio_read_bandwidth", 0.9}};
  part.mix = Json::object();
  const Json figures = load_report({part_with(part)}, 10, Json::object()).figures;
  EXPECT_TRUE(figures["share_files"].is_null());
  EXPECT_DOUBLE_EQ(figures["share_extreme"].get<double>(), 0.6);
  EXPECT_DOUBLE_EQ(figures["work_index"].get<double>(), 0.6);
  EXPECT_TRUE(figures["alone"]["ratio_long_chains"].is_null());
  EXPECT_EQ(figures["alone"]["ratio_read_bandwidth"], 0.9);
  EXPECT_EQ(figures["mistrusted"], Json({{"share_files", 2.0}, {"ratio_long_chains", 12.8}}));
  part.files = 10;
  part.alone = Json::object();
  EXPECT_TRUE(load_report({part_with(part)}, 10, Json::object()).figures["mistrusted"].is_null());
}

TEST(LoadReport, ASensorThatCannotBeRightIsToldWithWhatIsWrong) {
  LoadFigures train;
  train.mix = Json::object();
  const Json telemetry = {{"mix", {{"control", "the power sensor is wrong"}, {"power_sensor", "1 W"}}}};
  const Json figures = load_report({part_with(train)}, 10, telemetry).figures;
  EXPECT_EQ(figures["power_sensor"], "1 W");
  EXPECT_EQ(figures["mix"]["control"], "the power sensor is wrong");
}

TEST(LoadReport, WhatIsNotMeasuredIsNull) {
  const Json figures = load_report({PartReport()}, 0, {{"power_w_mean", 690.0}}).figures;
  for (const char* name :
       {"work_index", "share_extreme", "share_products", "share_memory", "share_collective", "share_files",
        "share_host_copies", "share_peer_copies", "power_ratio", "power_limit_w", "power_sensor", "mix"})
    EXPECT_TRUE(figures.contains(name) && figures[name].is_null()) << name;
  EXPECT_EQ(figures["power_w_mean"], 690.0);
}

}  // namespace
}  // namespace egt
