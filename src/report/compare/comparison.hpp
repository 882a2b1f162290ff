#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "egt/core/record.hpp"
#include "egt/core/status.hpp"

/// Compares result files: speed-up, efficiency, regressions and cost. Pure: texts and Json in, texts and Json
/// out.
namespace egt {

/// Price of one device per hour.
struct Price {
  std::string name;  ///< a file's label, or a device name or part of it, such as "H200"
  double per_hour = 0;
};

struct ComparisonOptions {
  double tolerance = 0.05;  ///< 0 to 1: decline allowed before it is a regression
  std::vector<Price> prices;
};

/// Parses the content of a result.json. On error (invalid_argument), returns one line without the file name:
/// why it cannot be compared, and what to do.
/// `needs_tests`: a result without any test cannot be compared.
Result<Json> parse_result(std::string_view text, bool needs_tests = true);

/// A short label per file: the run's directory for DIR/result.json, else the file name without its extension.
/// The whole path is used if the label would not be unique.
std::vector<std::string> labels_of(const std::vector<std::string>& paths);

/// An input file and its parsed result.
struct ComparedFile {
  std::string path;
  std::string label;
  Json result;          ///< from parse_result
  std::string problem;  ///< why it is excluded; empty: it is compared
};

enum class Better { higher, lower };
/// Reduction of a metric over the ranks of a test.
enum class OverRanks { sum, median };

/// A performance field of a test: a number, or an object with its "p50" or "median".
struct KnownFigure {
  std::string_view name;
  std::string_view title;  ///< for people; a prefix of the field's name precedes it
  std::string_view unit;
  Better better = Better::higher;
  OverRanks over_ranks = OverRanks::sum;
};

/// Metrics of a test's speed. Only the first one that an entry has is compared, since the others express the
/// same in other units.
inline constexpr KnownFigure work_figures[] = {
    {"items_per_second", "throughput", "items/s", Better::higher, OverRanks::sum},
    {"throughput_samples_per_second", "throughput", "samples/s", Better::higher, OverRanks::sum},
    {"samples_per_second", "throughput", "samples/s", Better::higher, OverRanks::sum},
    {"giga_turns_per_second", "iteration rate", "Giter/s", Better::higher, OverRanks::sum},
    {"tflops", "compute rate", "TFLOP/s", Better::higher, OverRanks::sum},
    {"step_ms", "step time", "ms", Better::lower, OverRanks::median},
    {"avg_iteration_time_ms", "iteration time", "ms", Better::lower, OverRanks::median},
};

/// Metrics of tests that have none of the above, matched by a suffix of the field name, which carries the
/// unit. Each field is compared separately, using the first row that matches. All ranks report the same value
/// for a collective, but separate values for memory and disk.
inline constexpr KnownFigure part_figures[] = {
    {"gemm_tflops", "GEMM rate", "TFLOP/s", Better::higher, OverRanks::sum},
    {"bus_gb_per_s", "bus bandwidth", "GB/s", Better::higher, OverRanks::median},
    {"bus_gb_per_second", "bus bandwidth", "GB/s", Better::higher, OverRanks::median},
    {"gb_per_s", "bandwidth", "GB/s", Better::higher, OverRanks::sum},
    {"gb_per_s_each_way", "bandwidth each way", "GB/s", Better::higher, OverRanks::sum},
    {"gb_per_second", "bandwidth", "GB/s", Better::higher, OverRanks::sum},
    {"gbps", "bandwidth", "Gb/s", Better::higher, OverRanks::sum},
    {"latency_us", "latency", "us", Better::lower, OverRanks::median},
    {"latency_ms", "latency", "ms", Better::lower, OverRanks::median},
};

/// The configuration a test ran on.
struct Configuration {
  std::string mode;  ///< "single", "p2p", ..; empty: not reported
  std::int64_t devices = 1;
  std::vector<std::string> models;  ///< one per device, sorted

  bool operator==(const Configuration&) const = default;
  /// Fewest devices first, then "single", "p2p", "collective", "hetero" and other modes.
  bool operator<(const Configuration& other) const;
};
/// "2x NVIDIA H200 (p2p)"; "1x NVIDIA H200" for mode "single" or an empty mode.
std::string to_text(const Configuration& configuration);

/// A test's metric in one file and configuration. `speedup` refers to the test's baseline. `change_percent`
/// refers to an earlier file with the same mode, devices and models. Both are empty without a reference or if
/// the ratio would divide by zero.
struct ComparedFigure {
  std::size_t file = 0;
  Configuration configuration;
  std::optional<double> value;           ///< at least 0; empty: not measured on every rank
  std::optional<double> worst;           ///< value of the worst rank, if ranks have own values
  std::optional<double> spread_percent;  ///< max over the ranks
  std::optional<double> power_w;         ///< sum over its devices
  std::optional<double> ms_per_batch;    ///< only for `bench`
  bool success = true;                   ///< on every rank
  bool is_missing = false;               ///< present in an earlier file only, so it has no value
  std::string failure;                   ///< of the first rank; empty: not reported
  std::optional<double> speedup;         ///< above 1: better than the baseline
  std::optional<double> efficiency;      ///< speedup divided by (devices / baseline devices)
  std::optional<std::size_t> reference;  ///< index of the earlier file
  std::optional<double> change_percent;  ///< change of the value itself; positive if a time grew
};

struct ComparedTest {
  std::string test;
  std::string figure;  ///< field name; empty: no known metric, only `success`
  std::string name;    ///< of the test and its metric, for people: "memory verify bandwidth"
  std::string unit;
  Better better = Better::higher;
  std::string workload;                ///< only for `bench`, as is the next field
  std::optional<double> size;          ///< batch size
  std::vector<ComparedFigure> values;  ///< the baseline first: first file, fewest devices

  const ComparedFigure& baseline() const { return values.front(); }
};

/// The tests of one file's result, in file order, with their values. Entries with the same `test_name` are
/// combined as follows. Entries that name `devices` belong to that configuration, and several of them are
/// repeats, which are averaged. Entries with a `rank` are reduced over ranks as in the tables above. Other
/// entries belong to the ranks that they name, or to all ranks. Entries marked `forecast` by older versions
/// are skipped.
std::vector<ComparedTest> tests_of(const Json& result, std::size_t file = 0);

/// Device models of all ranks, sorted; empty if the result has none.
std::vector<std::string> device_models(const Json& result);

/// The seed's `bench` table: one row per configuration, one column per workload.
struct Scaling {
  struct Column {
    std::string workload;
    std::size_t test = 0;  ///< index into Comparison::tests
  };
  struct Row {
    std::size_t file = 0;
    Configuration configuration;
    std::vector<std::optional<double>> ms;  ///< per column, for one device's batch
    std::optional<double> speedup;  ///< geometric mean over its columns, relative to one of its devices
    std::size_t counted = 0;        ///< number of columns in that mean
  };
  std::vector<Column> columns;
  std::vector<Row> rows;
};

/// Performance and cost of a file's fastest configuration; for a single file, of each configuration.
struct Cost {
  std::size_t file = 0;
  Configuration configuration;
  std::size_t tests = 0;              ///< number of tests in `performance`
  std::optional<double> performance;  ///< geometric mean of the speed-ups over the first file's baselines
  std::optional<double> scaling;      ///< speed-up over one GPU, as in its row of the `bench` table
  std::optional<double> price_per_hour, performance_per_price, power_w, performance_per_kilowatt;
};

/// A value that declined by more than the tolerance, or a test that passed before and failed now.
struct Regression {
  std::size_t test = 0;   ///< index into Comparison::tests
  std::size_t value = 0;  ///< index into the values of that test
  std::optional<double> reference_value;
  std::optional<double> worse_percent;  ///< empty: the test failed
  bool is_of_one = false;               ///< only the worst rank declined
};

struct Comparison {
  ComparisonOptions options;
  std::vector<ComparedFile> files;
  std::vector<ComparedTest> tests;
  Scaling scaling;
  std::vector<Cost> costs;
  std::vector<Regression> regressions;
  std::vector<std::size_t> worse_verdicts;  ///< candidates: fault, incomplete, or worse than the baseline
  std::size_t judged = 0;                   ///< metrics that had a reference value
  std::vector<std::string> notes;           ///< hints for the interpretation of the metrics
  std::string verdict;                      ///< "pass", "degraded", "incomplete"; empty with exit code 2
  int exit_code = 0;  ///< 0, 5 (regression), 4 (nothing compared), 2 (not all inputs could be compared)
  std::vector<std::string> reasons;

  std::vector<std::size_t> used() const;  ///< indices of the compared files
};

/// invalid_argument: a price matches no file and no device.
Result<Comparison> compare_results(std::vector<ComparedFile> files, ComparisonOptions options);

/// Why files are left out, one line per file.
std::string problems_text(const std::vector<ComparedFile>& files);

/// The comparison as printed: tables, notes and verdict. Ends with a newline; empty if no file is compared.
std::string comparison_text(const Comparison& comparison);

/// The comparison as JSON with the contract's names. Missing values are null.
Json comparison_json(const Comparison& comparison);

/// One self-contained HTML file; without scripts it shows the text.
std::string comparison_page(const Comparison& comparison);

}  // namespace egt
