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
            : "left out";
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

/// What `value` is compared with; null: nothing.
const ComparedFigure* base_of(const ComparedTest& test, const ComparedFigure& value) {
  for (const ComparedFigure& one : test.values)
    if (value.reference == one.file && one.configuration == value.configuration) return &one;
  return value.reference || &value == &test.baseline() ? nullptr : &test.baseline();
}

/// Whether another value's row shows it as the baseline.
bool is_base(const ComparedTest& test, const ComparedFigure& value) {
  return std::any_of(test.values.begin(), test.values.end(),
                     [&](const ComparedFigure& one) { return base_of(test, one) == &value; });
}

/// Sorts rows: regressions without a percentage, other regressions, judged values, other values.
using TestOrder = std::pair<int, double>;

std::pair<TestOrder, TestRow> row_of(const Comparison& comparison, const ComparedTest& test,
                                     const ComparedFigure& one, const Regression* regression) {
  const ComparedFigure* const base = base_of(test, one);
  const bool is_scaled = base && !one.reference && one.speedup, has_figure = !test.figure.empty();
  TestRow row;
  if (one.change_percent)
    row.gain_percent = test.better == Better::higher ? *one.change_percent : -*one.change_percent;
  else if (is_scaled)
    row.gain_percent = (*one.speedup - 1) * 100;
  row.is_worse = regression != nullptr;
  row.is_within = !regression && one.success && one.change_percent &&
                  *row.gain_percent <= comparison.options.tolerance * 100;
  row.cells = {test.name + (has_figure && test.better == Better::lower ? " (lower is better)" : ""),
               to_text(one.configuration),
               comparison.files[one.file].label,
               !base        ? not_measured
               : has_figure ? value_text(test, base->value)
                            : "passed",
               has_figure ? value_text(test, one.value) : not_measured,
               percent_text(one.change_percent, true),
               times_text(is_scaled ? one.speedup : std::nullopt),
               percent_text(is_scaled ? std::optional(*one.efficiency * 100) : std::nullopt, false),
               percent_text(one.spread_percent, false),
               !one.success     ? "failed"
               : one.is_missing ? "missing"
               : regression && regression->is_of_one
                   ? fmt::format("worst rank {:.1f} % worse", *regression->worse_percent)
               : regression         ? "worse"
               : row.is_within      ? "within tolerance"
               : one.change_percent ? "better"
                                    : not_measured};
  const bool has_percent = regression && regression->worse_percent;
  const int kind = has_percent ? 1 : regression || one.is_missing ? 0 : one.change_percent ? 2 : 3;
  const double gain = has_percent ? -*regression->worse_percent : kind == 2 ? *row.gain_percent : 0;
  return {{kind, gain}, std::move(row)};
}

/// Clears a column in which all rows are alike.
void clear_if_alike(std::vector<TestRow>& rows, std::size_t column) {
  const auto is_alike = [&](const TestRow& row) { return row.cells[column] == rows[1].cells[column]; };
  if (std::all_of(rows.begin() + 1, rows.end(), is_alike))
    for (auto row = rows.begin() + 1; row != rows.end(); ++row) row->cells[column] = not_measured;
}

}  // namespace

std::vector<TestRow> tests_table(const Comparison& comparison) {
  std::map<std::pair<std::size_t, std::size_t>, const Regression*> regressions;
  for (const Regression& one : comparison.regressions) regressions[{one.test, one.value}] = &one;
  std::vector<std::pair<TestOrder, TestRow>> sorted;
  for (std::size_t t = 0; t < comparison.tests.size(); ++t) {
    const ComparedTest& test = comparison.tests[t];
    for (std::size_t v = 0; v < test.values.size(); ++v) {
      const auto known = regressions.find({t, v});
      const Regression* const regression = known == regressions.end() ? nullptr : known->second;
      if (regression || (!test.figure.empty() && !is_base(test, test.values[v])))
        sorted.push_back(row_of(comparison, test, test.values[v], regression));
    }
  }
  if (sorted.empty()) return {};
  std::stable_sort(sorted.begin(), sorted.end(), [](auto& a, auto& b) { return a.first < b.first; });
  const char* const value = comparison.used().size() > 1 ? "New" : "Value";
  std::vector<TestRow> rows(1);
  rows[0].cells = {"Test",   "Devices", "File",       "Baseline", value,
                   "Change", "Speedup", "Efficiency", "Spread",   "Result"};
  for (auto& [order, row] : sorted) rows.push_back(std::move(row));
  clear_if_alike(rows, 1);
  if (comparison.used().size() <= 2) clear_if_alike(rows, 2);
  std::vector<Row> cells;
  for (TestRow& row : rows) cells.push_back(std::move(row.cells));
  cells = without_empty_columns(cells);
  for (std::size_t i = 0; i < rows.size(); ++i) rows[i].cells = std::move(cells[i]);
  return rows;
}

namespace {

bool has_column(const std::vector<TestRow>& table, const std::string& head) {
  return !table.empty() &&
         std::find(table[0].cells.begin(), table[0].cells.end(), head) != table[0].cells.end();
}

std::string tests_text(const std::vector<TestRow>& table) {
  if (table.empty()) return "";
  std::vector<Row> rows;
  for (const TestRow& row : table) rows.push_back(row.cells);
  std::string text =
      fmt::format("\nTests{}\n{}", has_column(table, "Change") ? ", the worst first" : "", table_text(rows));
  if (has_column(table, "Baseline"))
    text += "baseline: the same devices in an earlier file, else the test's fewest devices in the first\n";
  if (has_column(table, "Speedup")) text += "speedup, efficiency: against the baseline\n";
  return text;
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

std::string verdict_text(const Comparison& comparison) {
  std::string text =
      comparison.verdict.empty()
          ? fmt::format("\nNot all could be compared (exit code {})\n", comparison.exit_code)
          : fmt::format("\nVerdict: {} (exit code {})\n", comparison.verdict, comparison.exit_code);
  for (const std::string& reason : comparison.reasons) text += fmt::format("  {}\n", reason);
  return text;
}

}  // namespace

std::string problems_text(const std::vector<ComparedFile>& files) {
  std::string text;
  for (const ComparedFile& file : files)
    if (!file.problem.empty()) text += printable(fmt::format("{}: {}", file.path, file.problem)) + "\n";
  return text;
}

std::string comparison_text(const Comparison& comparison) {
  const std::size_t used = comparison.used().size();
  if (used == 0) return "";
  const std::vector<TestRow> tests = tests_table(comparison);
  std::string text;
  if (used == 1 && !has_column(tests, "Baseline")) text += "nothing to compare with: only one result\n";
  text += "Results, the baseline first:\n" + files_text(comparison);
  for (const std::string& note : comparison.notes) text += fmt::format("Note: {}\n", note);
  text += scaling_text(comparison);
  for (const ComparedFile& file : comparison.files)
    text += parallel_text(file.result, printable(fmt::format("Parallel, {}", file.label)));
  text += cost_text(comparison);
  text += tests_text(tests);
  text += verdict_text(comparison);
  return text;
}

}  // namespace egt
