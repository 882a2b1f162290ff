#include "workload/ceilings/ceiling_entry.hpp"

#include <algorithm>
#include <cstddef>

#include <fmt/format.h>

#include "egt/core/histogram.hpp"
#include "egt/core/json_access.hpp"

namespace egt {
namespace {

Json median_or_null(const std::vector<double>& values, double scale) {
  return values.empty() ? Json() : Json(median_of(values) / scale);
}

}  // namespace

std::vector<double> CeilingEntry::ratios() const {
  std::vector<double> ratios;
  for (std::size_t i = 0; i < std::min(ours.size(), limit.size()); ++i)
    if (limit[i] > 0) ratios.push_back(ours[i] / limit[i]);
  return ratios;
}

PartReport report_of(const CeilingEntry& entry) {
  const CeilingRow& row = entry.row;
  const std::string unit(to_string(row.unit));
  const std::vector<double> ratios = entry.ratios();
  PartReport report;
  report.name = row.name;
  std::string limit = row.limit;
  std::replace(limit.begin(), limit.end(), '_', ' ');
  report.description = fmt::format("{}, beside the machine's {}", row.name, limit);
  report.success = entry.failure.empty();
  report.failure = entry.failure;
  report.figures = entry.facts;
  report.figures.update(
      {{"ceiling", row.group},
       {"unit", unit},
       {"limit", row.limit},
       {unit, median_or_null(entry.ours, scale_of(row.unit))},
       {"limit_" + unit, median_or_null(entry.limit, scale_of(row.unit))},
       {"ratio_" + row.limit, median_or_null(ratios, 1)},
       {"ratio_spread_percent", ratios.empty() ? Json() : Json(step_times(ratios).spread_percent())},
       {"rounds", ratios.size()},
       {"sm_clock_mhz", or_null(entry.sm_clock_mhz)},
       {"power_w", or_null(entry.power_w)}});
  return report;
}

std::string line_of(const CeilingEntry& entry) {
  const std::vector<double> ratios = entry.ratios();
  if (ratios.empty()) return fmt::format("{}: failed: {}", entry.row.name, entry.failure);
  constexpr const char* units[] = {"TFLOP/s", "GB/s", "GB/s (bus)", "Giter/s"};
  const double scale = scale_of(entry.row.unit);
  std::string limit = entry.row.limit;
  std::replace(limit.begin(), limit.end(), '_', ' ');
  const std::string text =
      fmt::format("{}: {:.4g} {}, {:.3f} of the {} ({:.4g}), spread {:.1f} %", entry.row.name,
                  median_of(entry.ours) / scale, units[static_cast<int>(entry.row.unit)], median_of(ratios),
                  limit, median_of(entry.limit) / scale, step_times(ratios).spread_percent());
  return entry.failure.empty() ? text : fmt::format("{}; failed: {}", text, entry.failure);
}

}  // namespace egt
