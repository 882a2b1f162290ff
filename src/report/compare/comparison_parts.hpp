#pragma once

#include <optional>
#include <string>
#include <vector>

#include "report/compare/comparison.hpp"

/// Parts of the comparison that several of its files use.
namespace egt {

/// " (the result's first reason)"; empty if there is none.
std::string first_reason(const Json& result);

/// Hints for the interpretation of the metrics: results that are not `pass`, different versions, hardware,
/// drivers or options, tests in only one file, and failed tests.
std::vector<std::string> notes_of(const Comparison& comparison);

/// "1.73x", "+5.0 %" (`sign`), "12.35 k samples/s"; a dash for an empty value, "not measured" for value_text.
std::string times_text(std::optional<double> times);
std::string percent_text(std::optional<double> percent, bool sign);
std::string value_text(const ComparedTest& test, const std::optional<double>& value);

/// A row of the table of tests: a value next to the one that it is compared with, which is the same
/// configuration in an earlier file, else the test's baseline.
struct TestRow {
  std::vector<std::string> cells;
  std::optional<double> gain_percent;  ///< above 0: better, whichever direction that is
  bool is_worse = false;               ///< a regression
  bool is_within = false;              ///< within the tolerance
};
/// The header, then regressions, then the other values, the largest decline first, then those that are not
/// judged. Columns without values are left out. Empty without tests.
std::vector<TestRow> tests_table(const Comparison& comparison);

/// The `bench` table with a title; empty if there is none.
std::string scaling_text(const Comparison& comparison);

/// "a, b, c and 5 more"
std::string list_text(const std::vector<std::string>& names, std::size_t most = 8);

}  // namespace egt
