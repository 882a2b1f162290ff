#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "egt/core/json_access.hpp"
#include "egt/core/units.hpp"
#include "report/compare/comparison_parts.hpp"
#include "report/html/assets.hpp"
#include "report/html/charts.hpp"
#include "report/html/html_text.hpp"
#include "report/html/sections.hpp"

namespace egt {
namespace {

using Point = std::pair<double, double>;
using Series = std::vector<ChartSeries>;

Point point_of(const ComparedFigure& value) {
  return {static_cast<double>(value.configuration.devices), *value.speedup};
}

/// `begin` is the first point of a new line.
void add(Series& series, const std::string& name, const Point& begin, const Point& point) {
  auto one = std::find_if(series.begin(), series.end(), [&](auto& known) { return known.name == name; });
  if (one == series.end()) one = series.insert(one, {.name = name, .points = {begin}});
  if (point != begin) one->points.push_back(point);
}

/// One line per mode and file. It starts at the baseline's number of devices, with that file's value or the
/// baseline.
Series measured(const Comparison& comparison, const ComparedTest& test) {
  Series series;
  std::map<std::size_t, Point> begins;
  for (const ComparedFigure& value : test.values) {
    if (!value.speedup || *value.speedup <= 0) continue;
    if (value.configuration.devices == test.baseline().configuration.devices) {
      begins.try_emplace(value.file, point_of(value));
      continue;
    }
    const std::string file = comparison.files.size() > 1 ? comparison.files[value.file].label + ", " : "";
    const auto begin = begins.find(value.file);
    add(series, file + value.configuration.mode,
        begin == begins.end() ? point_of(test.baseline()) : begin->second, point_of(value));
  }
  return series;
}

/// Adds the ideal line: speed-up proportional to the number of devices.
std::string chart_of(const std::string& title, Series series, const ComparedTest& test) {
  if (series.empty()) return "";
  ChartSeries ideal = {.name = "ideal", .points = {}, .is_ideal = true};
  for (const ChartSeries& one : series)
    for (const Point& point : one.points)
      ideal.points.emplace_back(point.first,
                                point.first / static_cast<double>(test.baseline().configuration.devices));
  series.push_back(std::move(ideal));
  return line_chart({title, "devices", "speed-up", std::move(series)});
}

std::string files_table(const Comparison& comparison) {
  HtmlTable table("Files, the baseline first", {"file", "path", "command", "verdict", "version", "left out"},
                  true);
  for (const ComparedFile& file : comparison.files) {
    const auto reported = [&](const char* key) {
      const std::string text = text_at(file.result, key);
      return text.empty() ? "-" : text;
    };
    table.add({file.label, file.path, reported("command"), reported("verdict"), reported("program_version"),
               file.problem.empty() ? "-" : file.problem});
  }
  return table.html();
}

/// One bar per value: its speed-up over the test's baseline, which the marker shows.
std::string tests_table(const Comparison& comparison) {
  HtmlTable table("Each test; a bar is the speed-up, so longer is better, and its rule is the baseline",
                  {"test", "file and devices", "speed-up", "times", "value", "efficiency", "change"}, true);
  for (std::size_t at = 0; at < comparison.tests.size(); ++at) {
    const ComparedTest& test = comparison.tests[at];
    if (test.figure.empty()) continue;
    double longest = 1;
    for (const ComparedFigure& value : test.values) longest = std::max(longest, value.speedup.value_or(0));
    for (std::size_t of = 0; of < test.values.size(); ++of) {
      const ComparedFigure& value = test.values[of];
      const bool is_regression = std::any_of(
          comparison.regressions.begin(), comparison.regressions.end(),
          [&](const Regression& regression) { return regression.test == at && regression.value == of; });
      const bool is_worse = is_regression || !value.success;
      const std::string worse = is_worse ? "class=\"bad\"" : "";
      const std::string number = is_worse ? "class=\"bad short\"" : "class=\"short\"";
      table.add_html(
          {html_text(fmt::format("{} ({})", test.test, test.figure)),
           html_text(fmt::format("{}: {}{}", comparison.files[value.file].label, to_text(value.configuration),
                                 value.success ? "" : ", failed")),
           value.speedup ? bar(*value.speedup / longest, 1 / longest) : "-", times_text(value.speedup),
           html_text(value_text(test, value.value)),
           percent_text(value.efficiency ? std::optional(*value.efficiency * 100) : std::nullopt, false),
           percent_text(value.change_percent, true)},
          {worse, worse, "", number, number, number, number});
    }
  }
  return table.html();
}

}  // namespace

std::string page::scaling_charts(const Comparison& comparison) {
  std::string html;
  for (const ComparedTest& test : comparison.tests) {
    if (test.workload.empty() || test.better != Better::higher) continue;
    html += chart_of(test.test, measured(comparison, test), test);
  }
  if (html.empty()) return "";
  return "<p>Against the fewest devices; both axes are logarithmic.</p>\n<div class=\"figures\">" + html +
         "</div>\n";
}

std::string page::scaling_section(const Json& result) {
  if (text_at(result, "command") != "bench") return "";
  const auto alone = compare_results({{.path = "", .label = "", .result = result, .problem = ""}}, {});
  return alone.ok() ? scaling_charts(alone.value()) : "";
}

std::string comparison_page(const Comparison& comparison) {
  std::string notes;
  for (const std::string& note : comparison.notes) notes += "<li>" + html_text(note) + "</li>";
  if (!notes.empty()) notes = "<h2>Notes</h2><ul>" + notes + "</ul>\n";
  std::string scaling = page::scaling_charts(comparison), tests = tests_table(comparison);
  if (!scaling.empty()) scaling = "<h2>Scaling</h2>\n" + scaling;
  if (!tests.empty()) tests = "<h2>Tests</h2>\n" + tests;
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta "
      "http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; "
      "base-uri "
      "'none'; form-action 'none'\">\n<meta name=\"viewport\" content=\"width=device-width, "
      "initial-scale=1\">\n<meta name=\"color-scheme\" content=\"light dark\">\n<title>compare</title>\n"
      "<style>{}</style>\n</head>\n<body>\n<main>\n{}{}{}{}{}<h2>As the terminal shows it</h2>\n<pre "
      "tabindex=\"0\" role=\"region\" aria-label=\"The comparison as the terminal shows it\">{}</pre>\n"
      "</main>\n</body>\n</html>\n",
      page_css,
      page::verdict_header(comparison_json(comparison), counted(comparison.used().size(), "result"), ""),
      files_table(comparison), notes, scaling, tests, html_text(comparison_text(comparison)));
}

}  // namespace egt
