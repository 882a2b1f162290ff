#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "egt/core/record.hpp"
#include "egt/core/status.hpp"

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

enum class Better { higher, lower };
/// How the figures of a test's ranks become one.
enum class OverRanks { sum, median };

/// A field of a test that says how well it went: a number, or an object with its "p50" or "median".
struct KnownFigure {
  std::string_view name;
  std::string_view unit;
  Better better = Better::higher;
  OverRanks over_ranks = OverRanks::sum;
};

/// How fast a test did its work. The first of these that an entry has speaks for it, alone: the others would
/// say the same in other units.
inline constexpr KnownFigure work_figures[] = {
    {"items_per_second", "items/s", Better::higher, OverRanks::sum},
    {"throughput_samples_per_second", "samples/s", Better::higher, OverRanks::sum},
    {"samples_per_second", "samples/s", Better::higher, OverRanks::sum},
    {"giga_turns_per_second", "Gturns/s", Better::higher, OverRanks::sum},
    {"tflops", "TFLOP/s", Better::higher, OverRanks::sum},
    {"step_ms", "ms", Better::lower, OverRanks::median},
    {"avg_iteration_time_ms", "ms", Better::lower, OverRanks::median},
};

/// Those of a test that has none of the above, by what their names end with, which carry their unit: each
/// speaks for itself, by the first row that fits. What a collective moved all its ranks tell alike; what a
/// memory or a disk moved is each rank's own.
inline constexpr KnownFigure part_figures[] = {
    {"bus_gb_per_s", "GB/s", Better::higher, OverRanks::median},
    {"bus_gb_per_second", "GB/s", Better::higher, OverRanks::median},
    {"gb_per_s", "GB/s", Better::higher, OverRanks::sum},
    {"gb_per_s_each_way", "GB/s", Better::higher, OverRanks::sum},
    {"gb_per_second", "GB/s", Better::higher, OverRanks::sum},
    {"gbps", "Gb/s", Better::higher, OverRanks::sum},
    {"latency_us", "us", Better::lower, OverRanks::median},
    {"latency_ms", "ms", Better::lower, OverRanks::median},
};

/// On what a test ran.
struct Configuration {
  std::string mode;  ///< "single", "p2p", ..; empty: none told
  std::int64_t devices = 1;
  std::vector<std::string> models;  ///< one a device, sorted

  bool operator==(const Configuration&) const = default;
  /// Fewest devices first, then "single", "p2p", "collective", "hetero", others.
  bool operator<(const Configuration& other) const;
};
/// "2x NVIDIA H200 (p2p)", "1x NVIDIA H200" for the mode "single" or none.
std::string to_text(const Configuration& configuration);

/// A test's figure in one file and configuration, beside two others: the test's baseline, for the speed-up,
/// and its like in an earlier file (same mode, devices and models), for the change. Empty: there is none, or
/// it would divide by zero.
struct ComparedFigure {
  std::size_t file = 0;
  Configuration configuration;
  std::optional<double> value;           ///< 0 or above; nothing: not measured, or not on every rank
  std::optional<double> worst;           ///< of its ranks' own, where each has one
  std::optional<double> spread_percent;  ///< the largest of the ranks
  std::optional<double> power_w;         ///< of all its devices
  std::optional<double> ms_per_batch;    ///< of `bench` only
  bool success = true;                   ///< on every rank
  bool is_missing = false;               ///< an earlier file has it, this one not: it has no value
  std::string failure;                   ///< the first rank's; empty: none told
  std::optional<double> speedup;         ///< above 1: better than the baseline
  std::optional<double> efficiency;      ///< speedup over (devices / the baseline's devices)
  std::optional<std::size_t> reference;  ///< the earlier file
  std::optional<double> change_percent;  ///< of the figure itself: a time that grew is above 0
};

struct ComparedTest {
  std::string test;
  std::string figure;  ///< its field's name; empty: the test has no known figure, only `success`
  std::string unit;
  Better better = Better::higher;
  std::string workload;                ///< of `bench` only, as is the next
  std::optional<double> size;          ///< of a batch
  std::vector<ComparedFigure> values;  ///< the baseline first: of the first file, of fewest devices

  const ComparedFigure& baseline() const { return values.front(); }
};

/// The tests of the result of one file, in its order, and each one's values in theirs. Entries of equal
/// `test_name`: those that name `devices` are of that configuration, and several of one are repeats (each
/// device alone, say), of which the mean is taken; those of one `rank` each are parts of one whole, put
/// together as the tables say; others are of the ranks that they name, or of all the file's. What is marked
/// `forecast`, as older versions did, is left out.
std::vector<ComparedTest> tests_of(const Json& result, std::size_t file = 0);

/// Of all ranks, sorted; empty where the result names none.
std::vector<std::string> device_models(const Json& result);

/// The seed's table of `bench`: configurations down, workloads across.
struct Scaling {
  struct Column {
    std::string workload;
    std::size_t test = 0;  ///< into Comparison::tests
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
  bool is_of_one = false;               ///< the worst rank alone
};

struct Comparison {
  ComparisonOptions options;
  std::vector<ComparedFile> files;
  std::vector<ComparedTest> tests;
  Scaling scaling;
  std::vector<Cost> costs;
  std::vector<Regression> regressions;
  std::vector<std::size_t> worse_verdicts;  ///< candidates with a fault, incomplete, or worse than the baseline
  std::size_t judged = 0;                   ///< figures that had a reference to get worse than
  std::vector<std::string> notes;           ///< what to know when reading the figures
  std::string verdict;                      ///< "pass", "degraded", "incomplete"; empty with exit code 2
  int exit_code = 0;  ///< 0, 5 (a regression), 4 (nothing was compared), 2 (not all that was named could be)
  std::vector<std::string> reasons;

  std::vector<std::size_t> used() const;  ///< the files that are compared
};

/// invalid_argument: a price is for nothing that is there.
Result<Comparison> compare_results(std::vector<ComparedFile> files, ComparisonOptions options);

/// For people: the tables, regressions, notes and the verdict; ends with a newline.
std::string comparison_text(const Comparison& comparison);

/// For programs; names are the contract's, figures that are not there are null.
Json comparison_json(const Comparison& comparison);

/// One HTML file for people, which needs nothing else and no script.
std::string comparison_page(const Comparison& comparison);

}  // namespace egt
