#include "report/html/charts.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include <fmt/format.h>

#include "report/html/html_text.hpp"

namespace egt {
namespace {

// Size of the drawing in its own units, about the pixels of a phone.
constexpr double width = 400, height = 250, left = 48, right = 12, top = 10, bottom = 42;
constexpr std::size_t max_ticks = 8, colours = 6;

/// Logarithmic axis: equal ratios have equal distances.
struct Axis {
  double least, most, begin, end;  ///< data range, and its position in the drawing
  std::vector<double> ticks;       ///< every n-th value of `all`

  Axis(const std::set<double>& all, double from, double to)
      : least(*all.begin()), most(*all.rbegin()), begin(from), end(to) {
    const std::size_t stride = (all.size() + max_ticks - 1) / max_ticks;
    std::size_t at = 0;
    for (const double value : all)
      if (at++ % stride == 0) ticks.push_back(value);
  }
  double of(double value) const {
    return begin + (end - begin) * std::log2(value / least) / std::log2(most / least);
  }
};

/// Series differ by marker shape as well as by colour.
std::string mark_svg(std::size_t kind, double x, double y, const std::string& title) {
  constexpr std::array<const char*, 4> shapes = {"M-4,0a4,4 0 1,0 8,0a4,4 0 1,0 -8,0Z", "M-3.5,-3.5h7v7h-7Z",
                                                 "M0,-4.5L4.5,3.5H-4.5Z", "M0,-5L5,0L0,5L-5,0Z"};
  return fmt::format("<path class=\"mark\" d=\"{}\" transform=\"translate({:.1f},{:.1f})\">{}</path>",
                     shapes[kind % shapes.size()], x, y,
                     title.empty() ? "" : "<title>" + html_text(title) + "</title>");
}

std::string series_svg(const ChartSeries& series, std::size_t kind, const Axis& x, const Axis& y) {
  auto points = series.points;
  std::sort(points.begin(), points.end());
  std::string line, marks;
  for (const auto& [at, value] : points) {
    line += fmt::format("{:.1f},{:.1f} ", x.of(at), y.of(value));
    if (!series.is_ideal)
      marks +=
          mark_svg(kind, x.of(at), y.of(value), fmt::format("{}, {:.4g}: {:.4g}", series.name, at, value));
  }
  return fmt::format("<g class=\"{}\"><polyline points=\"{}\"/>{}</g>",
                     series.is_ideal ? "ideal" : fmt::format("of-{}", kind % colours), line, marks);
}

std::string axes_svg(const LineChart& chart, const Axis& x, const Axis& y) {
  std::string svg;
  for (const double tick : y.ticks)
    svg += fmt::format(
        "<line x1=\"{0}\" x2=\"{1}\" y1=\"{2:.1f}\" y2=\"{2:.1f}\"/><text x=\"{3}\" y=\"{4:.1f}\" "
        "text-anchor=\"end\">{5:.4g}</text>",
        left, width - right, y.of(tick), left - 6, y.of(tick) + 4, tick);
  for (const double tick : x.ticks)
    svg += fmt::format("<text x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">{:.4g}</text>", x.of(tick),
                       height - bottom + 16, tick);
  return svg +
         fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>", (left + width) / 2,
                     height - 6, html_text(chart.x_title)) +
         fmt::format("<text transform=\"translate(11,{}) rotate(-90)\" text-anchor=\"middle\">{}</text>",
                     (height - bottom + top) / 2, html_text(chart.y_title));
}

}  // namespace

std::string line_chart(const LineChart& chart) {
  std::set<double> at, powers;
  for (const ChartSeries& series : chart.series)
    for (const auto& [x, y] : series.points) {
      at.insert(x);
      powers.insert({std::floor(std::log2(y)), std::ceil(std::log2(y))});
    }
  if (at.size() < 2) return "";
  std::set<double> values;
  for (double power = *powers.begin(); power <= std::max(*powers.rbegin(), *powers.begin() + 1); ++power)
    values.insert(std::exp2(power));
  const Axis x(at, left + 8, width - right), y(values, height - bottom, top);
  std::string drawn = axes_svg(chart, x, y), legend;
  for (std::size_t kind = 0; kind < chart.series.size(); ++kind) {
    const ChartSeries& series = chart.series[kind];
    drawn += series_svg(series, kind, x, y);
    legend += fmt::format(
        "<li><svg viewBox=\"0 0 28 12\" aria-hidden=\"true\"><g class=\"{}\"><polyline points=\"0,6 "
        "28,6\"/>{}"
        "</g></svg>{}</li>",
        series.is_ideal ? "ideal" : fmt::format("of-{}", kind % colours),
        series.is_ideal ? "" : mark_svg(kind, 14, 6, ""), html_text(series.name));
  }
  return fmt::format(
      "<figure class=\"lines\"><figcaption>{0}</figcaption><svg viewBox=\"0 0 {1} {2}\" role=\"img\" "
      "aria-label=\"{0}\">{3}</svg><ul>{4}</ul></figure>\n",
      html_text(chart.title), width, height, drawn, legend);
}

std::string bar(double share, double mark) {
  return fmt::format(
      "<svg class=\"bar\" viewBox=\"0 0 100 10\" preserveAspectRatio=\"none\" aria-hidden=\"true\"><rect "
      "width=\"{:.1f}\" height=\"10\"/><line x1=\"{:.1f}\" x2=\"{:.1f}\" y1=\"0\" y2=\"10\"/></svg>",
      100 * share, 100 * mark, 100 * mark);
}

}  // namespace egt
