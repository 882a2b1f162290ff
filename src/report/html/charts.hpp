#pragma once

#include <string>
#include <utility>
#include <vector>

/// HTML drawings without scripts: inline SVG. These functions escape all texts.
namespace egt {

struct ChartSeries {
  std::string name;
  std::vector<std::pair<double, double>> points;  ///< x and y, finite and above 0, in any order
  bool is_ideal = false;                          ///< dashed, without markers
};

struct LineChart {
  std::string title, x_title, y_title;
  std::vector<ChartSeries> series;
};

/// A figure with a legend and two logarithmic axes. Each point has a tooltip with its values. Empty if there
/// are fewer than two distinct x values.
std::string line_chart(const LineChart& chart);

/// A bar in a table cell: `share` of the cell's width, with a marker at `mark`; both 0 to 1.
std::string bar(double share, double mark);

}  // namespace egt
