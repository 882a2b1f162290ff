#pragma once

#include <string>
#include <utility>
#include <vector>

/// Drawings as HTML that need no script: inline SVG, whose words are escaped here.
namespace egt {

struct ChartSeries {
  std::string name;
  std::vector<std::pair<double, double>> points;  ///< x and y, finite and above 0, in any order
  bool is_ideal = false;                          ///< dashed, and without marks
};

struct LineChart {
  std::string title, x_title, y_title;
  std::vector<ChartSeries> series;
};

/// A figure with its legend, both axes logarithmic; each point tells its values. Empty where less than two
/// values of x are there.
std::string line_chart(const LineChart& chart);

/// A bar for the cell of a table: `share` of the cell's width, with a rule at `mark` of it; both 0 to 1.
std::string bar(double share, double mark);

}  // namespace egt
