#include "judge/expectations.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "egt/core/json_access.hpp"

namespace egt {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

Json healthy_gpu(int index) {
  return {{"index", index},
          {"model", "NVIDIA H200"},
          {"uuid", fmt::format("GPU-{}", index)},
          {"serial", "1650"},
          {"pci", "00000000:17:00.0"},
          {"memory_gb", 150.754},
          {"vbios", "96.00"},
          {"nvlinks", 18},
          {"nvlinks_of", 18},
          {"pcie_generation", 5},
          {"pcie_width", 16},
          {"pcie_max_width", 16},
          {"ecc", true},
          {"mig", false},
          {"persistence", true},
          {"fabric", "completed"},
          {"processes", 0},
          {"idle_temperature_c", 35},
          {"power_limit_w", 700},
          {"error", nullptr}};
}

Json healthy_node() {
  Json node = {{"hostname", "node7"}, {"driver", "580.95"},         {"gpus", 8},   {"gpus_on_bus", 8},
               {"network_ports", 9},  {"not_shown", Json::array()}, {"drives", 8}, {"gpu", Json::array()}};
  for (int i = 0; i < 8; ++i) node["gpu"].push_back(healthy_gpu(i));
  return node;
}

Json expectations(const std::string& text) {
  Json expected = Json::object();
  for (std::size_t from = 0; from < text.size();) {
    const std::size_t end = text.find('\n', from), equal = text.find(" = ", from);
    std::string value = text.substr(equal + 3, text.find("  #", equal) - equal - 3);
    if (text[from] != '#') {
      std::erase(value, '"');
      EXPECT_EQ(add_expectation(expected, text.substr(from, equal - from), value), "");
    }
    from = end + 1;
  }
  return expected;
}

std::vector<std::string> keys_of(const std::vector<Deviation>& deviations) {
  std::vector<std::string> keys;
  for (const Deviation& one : deviations) keys.push_back((one.is_usual ? "usual " : "") + one.key);
  return keys;
}

TEST(Expectations, AGoodNodePassesItsOwnFile) {
  const Json node = healthy_node();
  const std::string text = expectations_text(node, {{"bf16_tflops", 792}, {"tolerance", 0.05}});
  const Json expected = expectations(text);
  EXPECT_THAT(check_inventory(expected, node), IsEmpty());
  EXPECT_EQ(expected["gpus"], 8);
  EXPECT_EQ(expected["nvlinks"], 18);
  EXPECT_EQ(expected["memory_gb"], 150.7);
  EXPECT_EQ(expected["mig"], false);
  EXPECT_EQ(expected["bf16_tflops"], 792);
  EXPECT_FALSE(expected.contains("processes"));
  EXPECT_THAT(check_inventory(Json::object(), node), IsEmpty());
}

TEST(Expectations, GpusThatDifferAreNoExpectation) {
  Json node = healthy_node();
  node["gpu"][2]["vbios"] = "97.00";
  EXPECT_THAT(expectations_text(node, nullptr),
              HasSubstr("\n# vbios: the GPUs differ: [\"96.00\",\"97.00\"]\n"));
}

/// Each property of a GPU or node, worse than in the file.
TEST(Expectations, EveryDeviationIsAViolationWithItsAction) {
  const Json expected = expectations(expectations_text(healthy_node(), nullptr));
  const std::vector<std::pair<std::string, Json>> worse = {
      {"nvlinks", 17},      {"pcie_width", 8},      {"pcie_generation", 4},    {"ecc", false},
      {"mig", true},        {"persistence", false}, {"fabric", "in progress"}, {"model", "NVIDIA H100"},
      {"memory_gb", 141.0}, {"vbios", "95.00"},     {"power_limit_w", 600},    {"nvlinks", nullptr}};
  for (const auto& [key, value] : worse) {
    Json node = healthy_node();
    node["gpu"][3][key] = value;
    const auto found = check_inventory(expected, node);
    EXPECT_THAT(keys_of(found), ElementsAre(key));
    ASSERT_EQ(found.size(), 1u) << key;
    EXPECT_THAT(found[0].text,
                HasSubstr(fmt::format("GPU 3, GPU-3, 00000000:17:00.0, serial number 1650: {} is ", key)));
    EXPECT_THAT(found[0].text, HasSubstr(": " + text_at(to_json(*action_of_expectation(key), -1), "text")));
  }
  Json node = healthy_node();
  node["driver"] = "570.10";
  node["network_ports"] = 8;
  node["drives"] = 7;
  EXPECT_THAT(keys_of(check_inventory(expected, node)), ElementsAre("driver", "network_ports", "drives"));
}

TEST(Expectations, WithoutAFileWhatAnyNodeShouldHaveIsChecked) {
  Json node = healthy_node();
  node["gpus_on_bus"] = 9;
  node["not_shown"] = {"0000:65:00.0"};
  Json& gpu = node["gpu"][1];
  gpu.update({{"nvlinks", 17},
              {"fabric", "not started"},
              {"pcie_width", 8},
              {"ecc", false},
              {"mig", true},
              {"persistence", false},
              {"processes", 2},
              {"idle_temperature_c", 71}});
  const auto found = check_inventory(Json::object(), node);
  EXPECT_THAT(keys_of(found),
              ElementsAre("usual gpus", "usual nvlinks", "usual fabric", "usual pcie_width", "usual ecc",
                          "usual mig", "usual persistence", "usual processes", "usual idle_temperature_c"));
  EXPECT_EQ(found[0].text,
            "gpus is 8, expected min 9 (0000:65:00.0 on the PCI bus without an answer): reboot the node and "
            "repeat; the same GPU again: RMA");
}

TEST(Expectations, ValuesThatADeviceDoesNotReportAreNotUsual) {
  Json node = healthy_node();
  for (const char* key :
       {"nvlinks", "fabric", "ecc", "mig", "persistence", "processes", "idle_temperature_c"})
    node["gpu"][0][key] = nullptr;
  EXPECT_THAT(check_inventory(Json::object(), node), IsEmpty());
}

TEST(Expectations, AGpuThatDoesNotRespondIsAViolationOfTheirNumber) {
  Json node = healthy_node();
  node["gpu"][5] = {{"index", 5}, {"error", "GPU is lost"}};
  EXPECT_THAT(keys_of(check_inventory(Json::object(), node)), ElementsAre("usual gpus"));
  EXPECT_THAT(keys_of(check_inventory({{"gpus", 8}}, node)), ElementsAre("gpus"));
}

TEST(Expectations, WithoutADriverTheReasonIsGiven) {
  Json node = healthy_node();
  node.update({{"gpus", 0}, {"gpu", Json::array()}, {"driver_error", "no NVML: install the NVIDIA driver"}});
  const auto found = check_inventory({{"gpus", 8}}, node);
  ASSERT_EQ(keys_of(found), std::vector<std::string>{"gpus"});
  EXPECT_THAT(found[0].text, HasSubstr("gpus is 0, expected 8 (no NVML: install the NVIDIA driver): "));
}

TEST(Expectations, BadFilesAreRefused) {
  Json expected;
  EXPECT_THAT(add_expectation(expected, "nvlink", "18"),
              HasSubstr("nvlink: unknown key; use all_reduce_gb_per_s, "));
  for (const char* text : {"", "x", "-1", "nan", "inf", "18x"})
    EXPECT_THAT(add_expectation(expected, "nvlinks", text), HasSubstr("use a number of at least 0")) << text;
  EXPECT_EQ(add_expectation(expected, "ecc", "on"), "ecc = on: use true or false");
  EXPECT_EQ(add_expectation(expected, "model", ""), "model = : use a text");
  EXPECT_THAT(add_expectation(expected, "tolerance", "1"), HasSubstr("a share of 0 to below 1"));
  EXPECT_TRUE(expected.empty());
}

Json end_of_burn() {
  return {{"telemetry", {{"sm_clock_mhz", {{"avg", 1440.0}}}}},
          {"counters", {{"pcie_width", {{"under_load", 16}}}, {"pcie_generation", {{"under_load", 5}}}}},
          {"parts",
           {{{"name", "load"},
             {"figures", {{"power_ratio", 0.97}, {"alone", {{"product_tflops", {{"bf16", 770.0}}}}}}}}}}};
}

TEST(Expectations, RatesUnderLoadHaveATolerance) {
  Json not_run = Json::array(), expected = {{"bf16_tflops", 800}, {"tolerance", 0.05}};
  EXPECT_THAT(check_under_load(expected, end_of_burn(), "", not_run), IsEmpty());
  expected["tolerance"] = 0.03;
  const auto found = check_under_load(expected, end_of_burn(), "", not_run);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_THAT(found[0].text, HasSubstr("bf16_tflops is 770 TFLOP/s, expected min 776 TFLOP/s: isolate"));
  EXPECT_EQ(found[0].expected, 776);
  EXPECT_EQ(found[0].actual, 770);
  EXPECT_TRUE(not_run.empty());
}

TEST(Expectations, ALinkThatIsNarrowUnderLoadIsAViolation) {
  Json not_run = Json::array(), end = end_of_burn();
  const Json expected = {
      {"pcie_width", 16}, {"pcie_generation", 5}, {"power_share", 0.96}, {"sm_clock_mhz", 1400}};
  EXPECT_THAT(check_under_load(expected, end, "", not_run), IsEmpty());
  end["counters"]["pcie_width"]["under_load"] = 8;
  end["parts"][0]["figures"]["power_ratio"] = 0.9;
  end["telemetry"]["sm_clock_mhz"]["avg"] = 1300;
  EXPECT_THAT(keys_of(check_under_load(expected, end, "", not_run)),
              ElementsAre("power_share", "sm_clock_mhz", "pcie_width"));
}

TEST(Expectations, WhatACommandDoesNotMeasureIsNotRun) {
  Json not_run = Json::array();
  const Json expected = {{"pair_gb_per_s", 390}, {"bf16_tflops", 1}, {"gpus", 8}};
  EXPECT_THAT(check_under_load(expected, end_of_burn(), "", not_run), IsEmpty());
  ASSERT_EQ(not_run.size(), 1u);
  EXPECT_EQ(not_run[0]["check"], "--expect pair_gb_per_s under load");
}

TEST(Expectations, TheSlowestPairIsReported) {
  Json not_run = Json::array(), end = {{"parts", Json::array()}};
  for (const double rate : {395.0, 380.0, 385.0})
    end["parts"].push_back(
        {{"name", fmt::format("pair 0-{} by NCCL", rate)}, {"figures", {{"one_way_gb_per_second", rate}}}});
  const auto found = check_under_load({{"pair_gb_per_s", 390}}, end, "", not_run);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_THAT(found[0].text,
              HasSubstr("pair 0-380 by NCCL: pair_gb_per_s is 380 GB/s, expected min 390 GB/s: reseat"));
}

TEST(Expectations, APairIsAsFastAsItsFastestMethod) {
  Json not_run = Json::array(), end = {{"parts", Json::array()}};
  const auto add = [&](const char* name, double rate) {
    end["parts"].push_back({{"name", name}, {"figures", {{"one_way_gb_per_second", rate}}}});
  };
  add("pair 0-1 by NCCL", 368.6);
  add("pair 0-2 by peer copies", 396);
  add("pair 0-1 by peer copies", 396);
  add("pair 0-2 by NCCL", 368.6);
  EXPECT_THAT(check_under_load({{"pair_gb_per_s", 390}}, end, "", not_run), IsEmpty());
  const auto found = check_under_load({{"pair_gb_per_s", 397}}, end, "", not_run);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].actual, 396);
}

TEST(Expectations, ThePowerOfALightLoadIsNotJudged) {
  Json not_run = Json::array();
  const Json expected = {{"power_share", 0.99}, {"sm_clock_mhz", 2000}};
  EXPECT_THAT(keys_of(check_under_load(expected, end_of_burn(), "pulse", not_run)),
              ElementsAre("sm_clock_mhz"));
  ASSERT_EQ(not_run.size(), 1u);
  EXPECT_EQ(not_run[0]["check"], "--expect power_share under load");
  EXPECT_EQ(not_run[0]["reason"], "pulse");
}

}  // namespace
}  // namespace egt
