#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>

#include <fmt/format.h>

#include "egt/core/json_access.hpp"
#include "egt/core/text.hpp"
#include "report/compare/comparison_parts.hpp"
#include "report/tables/summary.hpp"
#include "report/tables/text_table.hpp"

namespace egt {
namespace {

/// "1.234", "12.35 k", "83.33 M"
std::string amount_text(double value) {
  constexpr std::array<const char*, 6> powers = {"", " k", " M", " G", " T", " P"};
  std::size_t power = 0;
  for (; value >= (power == 0 ? 1e4 : 1e3) && power + 1 < powers.size(); ++power) value /= 1000;
  return fmt::format("{:.4g}{}", value, powers[power]);
}

std::string ms_text(std::optional<double> ms) {
  if (!ms) return not_measured;
  if (*ms >= 1e6 || (*ms < 0.01 && *ms > 0)) return fmt::format("{:.3g}", *ms);
  return fmt::format("{:.{}f}", *ms, *ms < 10 ? 3 : *ms < 100 ? 2 : 1);
}

std::string devices_text(const Json& result) {
  const std::vector<std::string> models = device_models(result);
  if (models.empty()) return "unknown devices";
  return to_text({.mode = "", .devices = static_cast<std::int64_t>(models.size()), .models = models});
}

std::string files_text(const Comparison& comparison) {
  std::string text;
  for (const ComparedFile& file : comparison.files) {
    const Json& result = file.result;
    const std::string what =
        file.problem.empty()
            ? fmt::format("{}, {}, {}, version {}", text_at(result, "command"), devices_text(result),
                          text_at(result, "verdict"), text_at(result, "program_version"))
            : fmt::format("left out: {}", file.problem);
    text += fmt::format("  {}\n", printable(fmt::format("{} ({}): {}", file.label, file.path, what)));
  }
  return text;
}

/// "2x NVIDIA H200 (p2p)", with the file's label if another file has the same configuration.
std::string row_name(const Comparison& comparison, const Scaling::Row& row) {
  const auto same =
      std::count_if(comparison.scaling.rows.begin(), comparison.scaling.rows.end(),
                    [&](const Scaling::Row& one) { return one.configuration == row.configuration; });
  const std::string text = to_text(row.configuration);
  return same > 1 ? fmt::format("{}, {}", text, comparison.files[row.file].label) : text;
}

std::string title_of(const std::string& workload) {
  if (workload == "mlp") return "MLP (ms)";
  std::string title = workload;
  if (title[0] >= 'a' && title[0] <= 'z') title[0] = static_cast<char>(title[0] - 'a' + 'A');
  return title + " (ms)";
}

}  // namespace

std::string times_text(std::optional<double> times) {
  if (!times) return not_measured;
  return *times < 1e4 ? fmt::format("{:.2f}x", *times) : fmt::format("{:.3g}x", *times);
}

std::string percent_text(std::optional<double> percent, bool sign) {
  if (!percent) return not_measured;
  if (std::abs(*percent) >= 1e5)
    return sign ? fmt::format("{:+.2g} %", *percent) : fmt::format("{:.2g} %", *percent);
  return sign ? fmt::format("{:+.1f} %", *percent) : fmt::format("{:.1f} %", *percent);
}

std::string value_text(const ComparedTest& test, const std::optional<double>& value) {
  return value ? fmt::format("{} {}", amount_text(*value), test.unit) : "not measured";
}

std::string scaling_text(const Comparison& comparison) {
  const Scaling& scaling = comparison.scaling;
  if (scaling.rows.empty()) return "";
  Row head = {"Configuration"};
  std::vector<std::string> tests;
  for (const Scaling::Column& column : scaling.columns) {
    head.push_back(title_of(column.workload));
    tests.push_back(comparison.tests[column.test].test);
  }
  head.push_back("Speedup");
  std::vector<Row> rows = {head};
  for (const Scaling::Row& row : scaling.rows) {
    Row cells = {row_name(comparison, row)};
    for (const auto& ms : row.ms) cells.push_back(ms_text(ms));
    const bool all = !row.speedup || row.counted == scaling.columns.size();
    cells.push_back(times_text(row.speedup) +
                    (all ? "" : fmt::format(" ({} of {})", row.counted, scaling.columns.size())));
    rows.push_back(std::move(cells));
  }
  return fmt::format(
      "\nScaling\n{}ms: for one device's batch of {}; speedup: geometric mean, against its devices alone\n",
      table_text(rows), printable(fmt::format("{}", fmt::join(tests, ", "))));
}

namespace {

Row row_of(const Comparison& comparison, const ComparedTest& test, const ComparedFigure& one) {
  return {fmt::format("  {}: {}{}", comparison.files[one.file].label, to_text(one.configuration),
                      one.success ? "" : ", failed"),
          value_text(test, one.value),
          times_text(one.speedup),
          percent_text(one.efficiency ? std::optional(*one.efficiency * 100) : std::nullopt, false),
          percent_text(one.change_percent, true),
          percent_text(one.spread_percent, false)};
}

/// The metric's name distinguishes several metrics of one test.
std::string tests_text(const Comparison& comparison) {
  std::vector<Row> rows = {{"Test", "Value", "Speedup", "Efficiency", "Change", "Spread"}};
  for (const ComparedTest& test : comparison.tests) {
    if (test.figure.empty()) continue;
    rows.push_back({fmt::format("{} ({}{})", test.test, test.figure,
                                test.better == Better::lower ? ", lower is better" : ""),
                    "", "", "", "", ""});
    for (const ComparedFigure& value : test.values) rows.push_back(row_of(comparison, test, value));
  }
  if (rows.size() == 1) return "";
  return fmt::format(
      "\nTests\n{}speedup, efficiency: against the test's first line; change: against the same configuration "
      "in an earlier file\n",
      table_text(rows));
}

/// One line of the cost table.
struct CostLine {
  const char* name;
  std::optional<double> Cost::*figure;
  bool more_is_better;
  std::string (*text)(double);
};

const CostLine performance_line = {"Performance", &Cost::performance, true,
                                   [](double value) { return times_text(value); }};
const CostLine scaling_line = {"Scaling", &Cost::scaling, true,
                               [](double value) { return times_text(value); }};
const CostLine price_line = {"Price", &Cost::price_per_hour, false,
                             [](double value) { return fmt::format("${:.2f}/hr", value); }};
const CostLine per_price_line = {"Performance/$", &Cost::performance_per_price, true,
                                 [](double value) { return fmt::format("{:.3g}x/$", value); }};
const CostLine power_line = {"Power", &Cost::power_w, false,
                             [](double value) { return fmt::format("{:.0f} W", value); }};
const CostLine per_power_line = {"Performance/kW", &Cost::performance_per_kilowatt, true,
                                 [](double value) { return fmt::format("{:.3g}x/kW", value); }};

/// Null if fewer than two have the metric, or if the best two are displayed alike.
const Cost* winner_of(const std::vector<Cost>& costs, const CostLine& line) {
  std::vector<const Cost*> having;
  for (const Cost& cost : costs)
    if (cost.*line.figure) having.push_back(&cost);
  std::stable_sort(having.begin(), having.end(), [&](const Cost* a, const Cost* b) {
    return line.more_is_better ? *(a->*line.figure) > *(b->*line.figure)
                               : *(a->*line.figure) < *(b->*line.figure);
  });
  if (having.size() < 2) return nullptr;
  const bool alike = line.text(*(having[0]->*line.figure)) == line.text(*(having[1]->*line.figure));
  return alike ? nullptr : having[0];
}

std::string column_name(const Comparison& comparison, const Cost& cost) {
  const std::string& label = comparison.files[cost.file].label;
  const auto& costs = comparison.costs;
  const bool alone =
      std::count_if(costs.begin(), costs.end(), [&](auto& one) { return one.file == cost.file; }) == 1;
  return alone ? label : to_text(cost.configuration);
}

Row cost_row(const Comparison& comparison, const CostLine& line) {
  Row cells = {line.name};
  for (const Cost& cost : comparison.costs)
    cells.push_back(cost.*line.figure ? line.text(*(cost.*line.figure)) : not_measured);
  const Cost* winner = winner_of(comparison.costs, line);
  cells.push_back(winner ? column_name(comparison, *winner) : not_measured);
  return cells;
}

bool any_has(const std::vector<Cost>& costs, const CostLine& line) {
  return std::any_of(costs.begin(), costs.end(),
                     [&](const Cost& cost) { return (cost.*line.figure).has_value(); });
}

bool of_unlike_devices(const std::vector<Cost>& costs) {
  return std::any_of(costs.begin(), costs.end(), [&](const Cost& cost) {
    return cost.configuration.models.front() != costs.front().configuration.models.front() ||
           cost.configuration.models.front() != cost.configuration.models.back();
  });
}

std::string recommendation(const Comparison& comparison) {
  std::vector<std::string> parts;
  const auto add = [&](const CostLine& line, const char* what) {
    if (const Cost* best = winner_of(comparison.costs, line))
      parts.push_back(
          fmt::format("{} {} ({})", column_name(comparison, *best), what, line.text(*(best->*line.figure))));
  };
  add(performance_line, "for the best performance");
  add(per_price_line, "for the most per price");
  if (parts.size() < 2) add(per_power_line, "for the most per watt");
  return parts.empty() ? "" : printable(fmt::format("Recommendation: {}.", fmt::join(parts, ", "))) + "\n";
}

std::string cost_text(const Comparison& comparison) {
  const std::vector<Cost>& costs = comparison.costs;
  if (costs.empty()) return "";
  Row head = {"Metric"}, configurations = {"Configuration"}, tests = {"Tests"};
  for (const Cost& cost : costs) {
    head.push_back(column_name(comparison, cost));
    configurations.push_back(to_text(cost.configuration));
    tests.push_back(std::to_string(cost.tests));
  }
  head.push_back("Winner");
  configurations.push_back("");
  tests.push_back("");
  std::vector<Row> rows = {head, configurations, tests, cost_row(comparison, performance_line)};
  if (of_unlike_devices(costs) && any_has(costs, scaling_line))
    rows.push_back(cost_row(comparison, scaling_line));
  if (!comparison.options.prices.empty())
    for (const CostLine* line : {&price_line, &per_price_line}) rows.push_back(cost_row(comparison, *line));
  for (const CostLine* line : {&power_line, &per_power_line}) rows.push_back(cost_row(comparison, *line));
  return fmt::format(
      "\nCost and performance\n{}performance: geometric mean of the tests' speedups, against the first "
      "file's "
      "fewest devices\n{}",
      table_text(rows), recommendation(comparison));
}

std::string regressions_text(const Comparison& comparison) {
  if (comparison.regressions.empty()) return "";
  std::vector<Row> rows = {{"Regression", "Figure", "Was", "Is", "Worse by"}};
  for (const Regression& regression : comparison.regressions) {
    const ComparedTest& test = comparison.tests[regression.test];
    const ComparedFigure& value = test.values[regression.value];
    rows.push_back({fmt::format("{}, {}: {} against {}", test.test, to_text(value.configuration),
                                comparison.files[value.file].label, comparison.files[*value.reference].label),
                    test.figure.empty() ? not_measured : test.figure,
                    regression.worse_percent ? value_text(test, regression.reference_value) : "passed",
                    regression.worse_percent ? value_text(test, value.value)
                    : value.success          ? "missing"
                                             : "failed",
                    percent_text(regression.worse_percent, false)});
  }
  return fmt::format("\nRegressions beyond {:.4g} %\n{}", comparison.options.tolerance * 100,
                     table_text(rows));
}

std::string verdict_text(const Comparison& comparison) {
  std::string text =
      comparison.verdict.empty()
          ? fmt::format("\nNot all could be compared (exit code {})\n", comparison.exit_code)
          : fmt::format("\nVerdict: {} (exit code {})\n", comparison.verdict, comparison.exit_code);
  for (const std::string& reason : comparison.reasons) text += fmt::format("  {}\n", reason);
  return text;
}

}  // namespace

std::string comparison_text(const Comparison& comparison) {
  std::string text = "Results, the baseline first:\n" + files_text(comparison);
  for (const std::string& note : comparison.notes) text += fmt::format("Note: {}\n", note);
  text += scaling_text(comparison);
  for (const ComparedFile& file : comparison.files)
    text += parallel_text(file.result, printable(fmt::format("Parallel, {}", file.label)));
  text += tests_text(comparison);
  text += cost_text(comparison);
  text += regressions_text(comparison);
  text += verdict_text(comparison);
  return text;
}

}  // namespace egt
