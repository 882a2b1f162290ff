#include <fmt/format.h>

#include "egt/core/json_access.hpp"
#include "report/compare/comparison_parts.hpp"

namespace egt {
namespace {

constexpr int comparison_schema = 1;

Json configuration_json(const Comparison& comparison, std::size_t file, const Configuration& configuration) {
  return {{"file", comparison.files[file].label},
          {"configuration", to_text(configuration)},
          {"mode", configuration.mode.empty() ? Json() : Json(configuration.mode)},
          {"devices", configuration.devices},
          {"device_names", configuration.models}};
}

Json file_json(const ComparedFile& file) {
  const bool used = file.problem.empty();
  const Json& system = member(file.result, "system_info");
  return {{"path", file.path},
          {"label", file.label},
          {"compared", used},
          {"problem", used ? Json() : Json(file.problem)},
          {"command", member(file.result, "command")},
          {"program_version", member(file.result, "program_version")},
          {"verdict", member(file.result, "verdict")},
          {"hostnames", member(system, "hostnames")},
          {"device_names", used ? Json(device_models(file.result)) : Json()}};
}

Json value_json(const Comparison& comparison, const ComparedFigure& one) {
  Json json = configuration_json(comparison, one.file, one.configuration);
  json.update({{"value", or_null(one.value)},
               {"speedup", or_null(one.speedup)},
               {"efficiency", or_null(one.efficiency)},
               {"reference", one.reference ? Json(comparison.files[*one.reference].label) : Json()},
               {"change_percent", or_null(one.change_percent)},
               {"spread_percent", or_null(one.spread_percent)},
               {"ms_per_batch", or_null(one.ms_per_batch)},
               {"power_w", or_null(one.power_w)},
               {"success", one.success},
               {"failure", one.failure.empty() ? Json() : Json(one.failure)}});
  return json;
}

Json named(const ComparedTest& test) {
  return {{"test_name", test.test},
          {"figure", test.figure.empty() ? Json() : Json(test.figure)},
          {"unit", test.figure.empty() ? Json() : Json(test.unit)},
          {"better", test.better == Better::higher ? "higher" : "lower"}};
}

Json tests_json(const Comparison& comparison) {
  Json tests = Json::array();
  for (const ComparedTest& test : comparison.tests) {
    Json json = named(test);
    json["values"] = Json::array();
    for (const ComparedFigure& value : test.values) json["values"].push_back(value_json(comparison, value));
    tests.push_back(std::move(json));
  }
  return tests;
}

Json scaling_json(const Comparison& comparison) {
  Json rows = Json::array();
  for (const Scaling::Row& row : comparison.scaling.rows) {
    Json json = configuration_json(comparison, row.file, row.configuration);
    json["ms_per_batch"] = Json::object();
    for (std::size_t i = 0; i < row.ms.size(); ++i)
      json["ms_per_batch"][comparison.tests[comparison.scaling.columns[i].test].test] = or_null(row.ms[i]);
    json["speedup"] = or_null(row.speedup);
    rows.push_back(std::move(json));
  }
  return rows;
}

Json regressions_json(const Comparison& comparison) {
  Json regressions = Json::array();
  for (const Regression& regression : comparison.regressions) {
    const ComparedTest& test = comparison.tests[regression.test];
    const ComparedFigure& value = test.values[regression.value];
    Json json = named(test);
    json.update(configuration_json(comparison, value.file, value.configuration));
    json.update({{"reference", comparison.files[*value.reference].label},
                 {"reference_value", or_null(regression.reference_value)},
                 {"value", or_null(value.value)},
                 {"worse_percent", or_null(regression.worse_percent)},
                 {"failed", !value.success},
                 {"missing", value.is_missing}});
    regressions.push_back(std::move(json));
  }
  return regressions;
}

Json cost_json(const Comparison& comparison) {
  Json costs = Json::array();
  for (const Cost& cost : comparison.costs) {
    Json json = configuration_json(comparison, cost.file, cost.configuration);
    json.update({{"tests", cost.tests},
                 {"performance", or_null(cost.performance)},
                 {"scaling", or_null(cost.scaling)},
                 {"price_per_hour", or_null(cost.price_per_hour)},
                 {"performance_per_price", or_null(cost.performance_per_price)},
                 {"power_w", or_null(cost.power_w)},
                 {"performance_per_kilowatt", or_null(cost.performance_per_kilowatt)}});
    costs.push_back(std::move(json));
  }
  return costs;
}

}  // namespace

Json comparison_json(const Comparison& comparison) {
  Json files = Json::array();
  for (const ComparedFile& file : comparison.files) files.push_back(file_json(file));
  Json worse = Json::array();
  for (const std::size_t file : comparison.worse_verdicts) worse.push_back(comparison.files[file].label);
  return {{"schema", comparison_schema},
          {"command", "compare"},
          {"tolerance", comparison.options.tolerance},
          {"files", std::move(files)},
          {"notes", comparison.notes},
          {"scaling", scaling_json(comparison)},
          {"tests", tests_json(comparison)},
          {"cost", cost_json(comparison)},
          {"regressions", regressions_json(comparison)},
          {"worse_verdicts", std::move(worse)},
          {"judged", comparison.judged},
          {"verdict", comparison.verdict.empty() ? Json() : Json(comparison.verdict)},
          {"exit_code", comparison.exit_code},
          {"reasons", comparison.reasons}};
}

}  // namespace egt
