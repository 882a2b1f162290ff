#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "egt/core/histogram.hpp"
#include "egt/core/json_access.hpp"
#include "egt/core/text.hpp"
#include "report/tables/summary.hpp"
#include "report/tables/text_table.hpp"

namespace egt {
namespace {

/// A test's entries, one per rank.
struct Test {
  std::string name;
  std::vector<const Json*> ranks;
};
struct Group {
  std::string name;
  std::vector<Test> tests;
};

/// Values of the ranks that report the metric.
std::vector<double> figures(const Test& test, const std::string& name) {
  std::vector<double> values;
  for (const Json* entry : test.ranks)
    if (const auto value = value_at<double>(*entry, name.c_str())) values.push_back(*value);
  return values;
}

std::optional<double> median(const std::vector<double>& values) {
  return values.empty() ? std::nullopt : std::optional(median_of(values));
}

/// The part of `list` with that name, appended if missing.
template <typename Part>
Part& part_of(std::vector<Part>& list, const std::string& name) {
  const auto found =
      std::find_if(list.begin(), list.end(), [&](const Part& one) { return one.name == name; });
  if (found != list.end()) return *found;
  list.emplace_back().name = name;
  return list.back();
}

std::vector<Group> groups_of(const Json& result) {
  std::vector<Group> groups;
  for (const Json& entry : member(result, "results")) {
    const std::string group = text_at(entry, "ceiling");
    if (group.empty()) continue;
    part_of(part_of(groups, group).tests, text_at(entry, "test_name")).ranks.push_back(&entry);
  }
  return groups;
}

std::string unit_text(const std::string& unit) {
  if (unit == "tflops") return "TFLOP/s";
  if (unit == "giga_turns_per_second") return "Giter/s";
  return unit == "bus_gb_per_s" ? "bus GB/s" : "GB/s";
}

/// The median over ranks, the min ratio with its rank, and the max relative range.
Row row_of(const Test& test) {
  const Json& first = *test.ranks.front();
  const std::string unit = text_at(first, "unit"), limit = text_at(first, "limit");
  const std::string ratio = "ratio_" + limit;
  std::optional<double> lowest;
  std::string lowest_text = not_measured;
  for (const Json* entry : test.ranks)
    if (const auto own = value_at<double>(*entry, ratio.c_str()); own && (!lowest || *own < *lowest)) {
      lowest = own;
      lowest_text = fmt::format("{:.3f} (rank {})", *own, value_at<std::int64_t>(*entry, "rank").value_or(0));
    }
  const std::vector<double> spreads = figures(test, "ratio_spread_percent");
  const double widest = spreads.empty() ? 0 : *std::max_element(spreads.begin(), spreads.end());
  const bool is_unstable = widest > unstable_percent;
  std::string limit_text = limit;
  std::replace(limit_text.begin(), limit_text.end(), '_', ' ');
  return {test.name,
          cell(median(figures(test, unit)), "{:.4g}"),
          cell(median(figures(test, "limit_" + unit)), "{:.4g}"),
          unit_text(unit),
          is_unstable ? "unstable" : cell(median(figures(test, ratio)), "{:.3f}"),
          is_unstable ? not_measured : lowest_text,
          spreads.empty() ? not_measured : fmt::format("{:.1f} %", widest),
          cell(median(figures(test, "sm_clock_mhz")), "{:.0f} MHz"),
          cell(median(figures(test, "power_w")), "{:.0f} W"),
          limit_text};
}

std::string failures_of(const Test& test) {
  std::string text;
  for (const Json* entry : test.ranks)
    if (!value_at<bool>(*entry, "success").value_or(false))
      text += printable(fmt::format("  {} (rank {}): failed: {}", test.name,
                                    value_at<std::int64_t>(*entry, "rank").value_or(0),
                                    text_at(*entry, "failure"))) +
              "\n";
  return text;
}

}  // namespace

std::string ceilings_text(const Json& result) {
  std::string text;
  for (const Group& group : groups_of(result)) {
    std::vector<Row> rows = {
        {"Part", "Ours", "Limit", "Unit", "Ratio", "Lowest", "Spread", "Clock", "Power", "Beside"}};
    std::string failures;
    for (const Test& test : group.tests) {
      rows.push_back(row_of(test));
      failures += failures_of(test);
    }
    text += titled_table(printable("Ceilings: " + group.name), std::move(rows)) + failures;
  }
  if (text.empty()) return text;
  text += fmt::format(
      "\nRatio: the median over rounds of ours / limit of the same round, so not the quotient of the two "
      "medians.\n"
      "unstable: the ratios of the rounds differ by more than {:.0f} % of their median; measure again on an "
      "idle "
      "node.\n",
      unstable_percent);
  if (text.front() == '\n') text.erase(0, 1);
  return text;
}

}  // namespace egt
