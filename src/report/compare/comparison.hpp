#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "egt/core/record.hpp"
#include "egt/core/status.hpp"
#include "report/compare/comparison_figures.hpp"

/// Result files side by side: speed-up, efficiency, regressions and cost. Pure: texts and Json in, texts and
/// Json out.
namespace egt {

/// What one device costs an hour.
struct Price {
  std::string name;  ///< a file's label, or a device's name or a part of it, as "H200"
  double per_hour = 0;
};

struct ComparisonOptions {
  double tolerance = 0.05;  ///< 0 to 1: what may be worse before it is a regression
  std::vector<Price> prices;
};

/// The content of a result.json, or why it is none that could be compared and what to do: in one line,
/// without the file's name (invalid_argument).
Result<Json> parse_result(std::string_view text);

/// A short name for every file: the run's directory for DIR/result.json, else the file's name without its
/// ending; the whole path where that would not be unique.
std::vector<std::string> labels_of(const std::vector<std::string>& paths);

/// A file that was named, and what came of reading it.
struct ComparedFile {
  std::string path;
  std::string label;
  Json result;          ///< as parse_result gave it
  std::string problem;  ///< why it is left out; empty: it is compared
};

/// A figure of one file beside two others: the test's baseline, for the speed-up, and its like in an earlier
/// file (same mode, devices and models), for the change. Empty: there is none, or it would divide by zero.
struct ComparedFigure {
  std::size_t file = 0;
  TestFigure measured;
  std::optional<double> speedup;         ///< above 1: better than the baseline
  std::optional<double> efficiency;      ///< speedup over (devices / the baseline's devices)
  std::optional<std::size_t> reference;  ///< the earlier file
  std::optional<double> change_percent;  ///< of the figure itself: a time that grew is above 0
};

struct ComparedTest {
  std::string test, figure, unit;
  Better better = Better::higher;
  std::vector<ComparedFigure> values;  ///< the baseline first: of the first file, of fewest devices

  const TestFigure& baseline() const { return values.front().measured; }
};

/// The seed's table of `bench`: configurations down, workloads across.
struct Scaling {
  struct Column {
    std::string workload;
    double size = 0;
    std::string test;
  };
  struct Row {
    std::size_t file = 0;
    Configuration configuration;
    std::vector<std::optional<double>> ms;  ///< a column: one device's batch
    std::optional<double> speedup;  ///< geometric mean over its columns, against one of its own devices
    std::size_t counted = 0;        ///< columns in that mean
  };
  std::vector<Column> columns;
  std::vector<Row> rows;
};

/// What a file's fastest configuration gives and costs; of a single file, each of its configurations.
struct Cost {
  std::size_t file = 0;
  Configuration configuration;
  std::size_t tests = 0;              ///< in the mean below
  std::optional<double> performance;  ///< geometric mean of the speed-ups against the first file's baselines
  std::optional<double> scaling;      ///< of its row in the table of `bench`
  std::optional<double> price_per_hour, performance_per_price, power_w, performance_per_kilowatt;
};

/// One that got worse by more than the tolerance, or passed once and failed now.
struct Regression {
  std::size_t test = 0;   ///< into Comparison::tests
  std::size_t value = 0;  ///< into its values
  std::optional<double> reference_value;
  std::optional<double> worse_percent;  ///< nothing: it failed
};

struct Comparison {
  ComparisonOptions options;
  std::vector<ComparedFile> files;
  std::vector<ComparedTest> tests;
  Scaling scaling;
  std::vector<Cost> costs;
  std::vector<Regression> regressions;
  std::vector<std::size_t> worse_verdicts;  ///< files whose verdict is worse than the baseline's
  std::size_t judged = 0;                   ///< figures that had a reference to get worse than
  std::vector<std::string> notes;           ///< what to know when reading the figures
  std::string verdict;                      ///< "pass", "degraded", "incomplete"; empty with exit code 2
  int exit_code = 0;  ///< 0, 5 (a regression), 4 (nothing was compared), 2 (not all that was named could be)
  std::vector<std::string> reasons;
};

/// invalid_argument: a price is for nothing that is there.
Result<Comparison> compare_results(std::vector<ComparedFile> files, ComparisonOptions options);

/// For people: the tables, regressions, notes and the verdict; ends with a newline.
std::string comparison_text(const Comparison& comparison);

/// For programs; names are the contract's, figures that are not there are null.
Json comparison_json(const Comparison& comparison);

}  // namespace egt
