#include "report/compare/comparison.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <map>
#include <numeric>
#include <set>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "egt/core/exit_code.hpp"
#include "egt/core/json_access.hpp"
#include "egt/core/text.hpp"
#include "egt/core/units.hpp"
#include "judge/result.hpp"
#include "report/compare/comparison_parts.hpp"

namespace egt {
namespace {

/// Tolerance for the worst rank, as a multiple of the tolerance for the metric over all ranks.
constexpr double slack_of_one = 4;
constexpr double rounding = 1e-9;  // so that a decline of exactly 5 % does not exceed 5 %
constexpr int max_depth = 64;      // nesting limit, since readers of Json recurse

Status no_result(std::string why) {
  return {StatusCode::invalid_argument, std::move(why)};
}

/// Speed-up of `value` over `base`; empty if it would divide by zero or is not finite.
std::optional<double> times_better(std::optional<double> value, std::optional<double> base, Better better) {
  if (better == Better::lower) std::swap(value, base);
  if (!value || !base || *base <= 0) return std::nullopt;
  const double times = *value / *base;
  return std::isfinite(times) ? std::optional(times) : std::nullopt;
}

/// Empty if there are no values.
std::optional<double> geometric_mean(const std::vector<double>& values) {
  if (values.empty()) return std::nullopt;
  double logs = 0;
  for (const double value : values) logs += std::log(value);
  return std::exp(logs / static_cast<double>(values.size()));
}

/// Whether `a` is a better baseline than `b`.
bool is_before(const ComparedFigure& a, const ComparedFigure& b) {
  if (a.file != b.file) return a.file < b.file;
  return a.configuration < b.configuration;
}

/// Joins tests that have no metric in one file, for example after a failure, with their metrics in others.
void join_those_without_figure(std::vector<ComparedTest>& tests) {
  for (ComparedTest& test : tests) {
    if (!test.figure.empty()) continue;
    const auto measured = std::find_if(tests.begin(), tests.end(), [&](const ComparedTest& other) {
      return other.test == test.test && !other.figure.empty();
    });
    if (measured == tests.end()) continue;
    std::move(test.values.begin(), test.values.end(), std::back_inserter(measured->values));
    test.values.clear();
  }
  std::erase_if(tests, [](const ComparedTest& test) { return test.values.empty(); });
}

/// Whether both files ran some test in this configuration, or in any if null.
bool has_in_common(const std::vector<ComparedTest>& tests, std::size_t a, std::size_t b,
                   const Configuration* configuration) {
  const auto has = [&](const ComparedTest& test, std::size_t file) {
    return std::any_of(test.values.begin(), test.values.end(), [&](const ComparedFigure& value) {
      return value.file == file && (!configuration || value.configuration == *configuration);
    });
  };
  return std::any_of(tests.begin(), tests.end(),
                     [&](const ComparedTest& test) { return has(test, a) && has(test, b); });
}

/// Whether both files have the same command and device models. If so, a test without a mode that is in one
/// file must also be in the other.
bool are_alike(const ComparedFile& a, const ComparedFile& b) {
  return text_at(a.result, "command") == text_at(b.result, "command") &&
         device_models(a.result) == device_models(b.result);
}

/// Adds a value with `is_missing` to a later file for each metric that an earlier file measured in a
/// configuration of both. Omitted or unmeasured tests must not count as passed.
void add_missing(const Comparison& comparison, std::vector<ComparedTest>& tests) {
  const std::vector<ComparedTest> found = tests;
  for (ComparedTest& test : tests)
    for (const std::size_t file : comparison.used()) {
      for (std::size_t v = 0; v < test.values.size(); ++v) {
        const ComparedFigure base = test.values[v];
        if (base.file >= file || (!base.value && !test.figure.empty())) continue;
        const auto own = std::find_if(test.values.begin(), test.values.end(), [&](const ComparedFigure& one) {
          return one.file == file && one.configuration == base.configuration;
        });
        if (own != test.values.end()) {
          own->is_missing = base.value && !own->value;
        } else if (has_in_common(found, base.file, file, &base.configuration) ||
                   (base.configuration.mode.empty() &&
                    are_alike(comparison.files[base.file], comparison.files[file]) &&
                    has_in_common(found, base.file, file, nullptr))) {
          ComparedFigure& missing = test.values.emplace_back();
          missing.file = file;
          missing.configuration = base.configuration;
          missing.is_missing = true;
        }
      }
    }
}

/// All files' tests by name and metric, in order of first appearance.
std::vector<ComparedTest> aligned(const Comparison& comparison) {
  std::vector<ComparedTest> tests;
  std::map<std::pair<std::string, std::string>, std::size_t> places;
  for (const std::size_t file : comparison.used())
    for (ComparedTest& one : tests_of(comparison.files[file].result, file)) {
      const auto [place, is_new] = places.try_emplace({one.test, one.figure}, tests.size());
      if (is_new)
        tests.push_back(std::move(one));
      else
        std::move(one.values.begin(), one.values.end(), std::back_inserter(tests[place->second].values));
    }
  join_those_without_figure(tests);
  add_missing(comparison, tests);
  for (ComparedTest& test : tests) std::stable_sort(test.values.begin(), test.values.end(), is_before);
  return tests;
}

/// The value of the first earlier file with the same configuration.
const ComparedFigure* reference_of(const ComparedTest& test, const ComparedFigure& value) {
  for (const ComparedFigure& one : test.values)
    if (one.file < value.file && one.configuration == value.configuration) return &one;
  return nullptr;
}

void compare_with_others(ComparedTest& test) {
  const ComparedFigure base = test.baseline();
  for (ComparedFigure& value : test.values) {
    value.speedup = times_better(value.value, base.value, test.better);
    if (value.speedup)
      value.efficiency = *value.speedup * static_cast<double>(base.configuration.devices) /
                         static_cast<double>(value.configuration.devices);
    const ComparedFigure* reference = reference_of(test, value);
    if (!reference) continue;
    value.reference = reference->file;
    // Change of the value itself, whichever direction is better.
    if (const auto ratio = times_better(value.value, reference->value, Better::higher))
      value.change_percent = (*ratio - 1) * 100;
  }
}

/// Compares `value` with its reference in an earlier file.
std::optional<Regression> judge(const ComparedTest& test, const ComparedFigure& value, double tolerance) {
  const ComparedFigure* reference = reference_of(test, value);
  if (!reference) return std::nullopt;
  Regression regression;
  regression.reference_value = reference->value;
  if (value.change_percent) {
    const double worse = test.better == Better::higher ? -*value.change_percent : *value.change_percent;
    if (worse > tolerance * 100 + rounding) {
      regression.worse_percent = worse;
      return regression;
    }
  }
  // One much slower device hardly changes the sum or median of many.
  if (const auto times = times_better(value.worst, reference->worst, test.better);
      times && (1 - *times) > slack_of_one * tolerance + rounding) {
    regression.worse_percent = (1 - *times) * 100;
    regression.is_of_one = true;
    return regression;
  }
  if (reference->success && !value.success) return regression;
  if (value.is_missing) return regression;
  return std::nullopt;
}

/// A failed test is reported once, however many metrics it has.
bool is_told(const Comparison& comparison, const ComparedTest& test, const ComparedFigure& value) {
  return std::any_of(comparison.regressions.begin(), comparison.regressions.end(),
                     [&](const Regression& known) {
                       const ComparedFigure& other = comparison.tests[known.test].values[known.value];
                       return !known.worse_percent && comparison.tests[known.test].test == test.test &&
                              other.file == value.file && other.configuration == value.configuration;
                     });
}

void find_regressions(Comparison& comparison) {
  for (std::size_t t = 0; t < comparison.tests.size(); ++t) {
    const ComparedTest& test = comparison.tests[t];
    for (std::size_t v = 0; v < test.values.size(); ++v) {
      const ComparedFigure& value = test.values[v];
      if (value.change_percent || (value.reference && test.figure.empty())) ++comparison.judged;
      auto regression = judge(test, value, comparison.options.tolerance);
      if (!regression || (!regression->worse_percent && is_told(comparison, test, value))) continue;
      regression->test = t;
      regression->value = v;
      comparison.regressions.push_back(*regression);
    }
  }
}

/// Severity of a run's verdict. An interrupted run has no detected problem. A missing verdict is unknown.
int weight_of(const ComparedFile& file) {
  const std::string verdict = text_at(file.result, "verdict");
  if (verdict == "pass" || verdict == "interrupted") return 0;
  return verdict == "degraded" ? 1 : verdict == "fault" ? 3 : 2;
}

/// Finds candidates with a fault or an incomplete run, whatever the baseline's verdict, and others whose
/// verdict is worse than the baseline's. The first file is the baseline. A single file is a candidate; its
/// baseline is a pass.
void find_worse_verdicts(Comparison& comparison) {
  const std::vector<std::size_t> used = comparison.used();
  const bool is_alone = used.size() == 1;
  const int baseline = is_alone || used.empty() ? 0 : weight_of(comparison.files[used.front()]);
  for (std::size_t at = is_alone ? 0 : 1; at < used.size(); ++at)
    if (const int weight = weight_of(comparison.files[used[at]]); weight > std::min(baseline, 1))
      comparison.worse_verdicts.push_back(used[at]);
}

std::string verdict_reason(const ComparedFile& file) {
  const std::string verdict = text_at(file.result, "verdict");
  return fmt::format("{}: its verdict is {}{}", file.label, verdict.empty() ? "missing" : verdict,
                     first_reason(file.result));
}

/// Counts; the table of tests has each of them.
void add_regressions(Comparison& comparison) {
  std::uint64_t worse = 0, of_one = 0, failed = 0, missing = 0;
  for (const Regression& regression : comparison.regressions) {
    const ComparedFigure& value = comparison.tests[regression.test].values[regression.value];
    ++(regression.is_of_one                ? of_one
       : regression.worse_percent          ? worse
       : value.is_missing && value.success ? missing
                                           : failed);
  }
  const double percent = comparison.options.tolerance * 100;
  const auto add = [&](std::uint64_t count, const std::string& what, const std::string& counts) {
    if (count > 0) comparison.reasons.push_back(what + ": " + counts);
  };
  add(worse, fmt::format("worse than the baseline by more than {:.4g} %", percent),
      fmt::format("{} of {}", worse, counted(comparison.judged, "metric")));
  add(of_one, fmt::format("worse by more than {:.4g} % on the worst rank alone", slack_of_one * percent),
      counted(of_one, "metric"));
  add(failed, "failed, but passed in the baseline", counted(failed, "test"));
  add(missing, "missing, but not in the baseline", counted(missing, "value"));
}

bool any_in_common(const std::vector<ComparedTest>& tests) {
  return std::any_of(tests.begin(), tests.end(), [](const ComparedTest& test) {
    return test.values.front().file != test.values.back().file;
  });
}

/// Whether any value has a speed-up over another.
bool any_compared(const std::vector<ComparedTest>& tests) {
  return std::any_of(tests.begin(), tests.end(), [](const ComparedTest& test) {
    return std::any_of(test.values.begin() + 1, test.values.end(),
                       [](const ComparedFigure& value) { return value.speedup.has_value(); });
  });
}

/// Whether some test ran in the same configuration in two files, but no metric is in both.
bool nothing_measured(const Comparison& comparison) {
  if (comparison.judged > 0 || !comparison.regressions.empty() || !comparison.worse_verdicts.empty())
    return false;
  for (const ComparedTest& test : comparison.tests)
    for (const ComparedFigure& value : test.values)
      if (value.reference) return true;
  return false;
}

/// Files that are not judged, since they ran on a different number of devices than the first. `bench`
/// measures the speed-up on more devices.
std::vector<std::string> other_device_counts(const Comparison& comparison) {
  std::vector<std::string> reasons;
  const std::vector<std::size_t> used = comparison.used();
  for (const std::size_t file : used) {
    const ComparedFile &first = comparison.files[used.front()], &own = comparison.files[file];
    const std::size_t base = device_models(first.result).size(), devices = device_models(own.result).size();
    const bool is_judged =
        std::any_of(comparison.tests.begin(), comparison.tests.end(), [&](const ComparedTest& test) {
          return std::any_of(test.values.begin(), test.values.end(), [&](const ComparedFigure& value) {
            return value.file == file && value.reference;
          });
        });
    if (devices == base || is_judged || text_at(own.result, "command") == "bench") continue;
    reasons.push_back(fmt::format("{} ran on {}, {} on {}: compare results of as many devices", own.label,
                                  counted(devices, "device"), first.label, base));
  }
  return reasons;
}

std::string pass_reason(const Comparison& comparison, std::size_t used) {
  if (used == 1) return "a single file: nothing to judge for regressions";
  if (comparison.judged == 0)
    return "nothing to judge for regressions: no test ran in two files in the same mode on as many of the "
           "same devices";
  return fmt::format("none of {} is worse than the baseline by more than {:.4g} %",
                     counted(comparison.judged, "metric"), comparison.options.tolerance * 100);
}

void conclude(Comparison& comparison) {
  const std::size_t used = comparison.used().size();
  std::vector<std::string> left_out;
  for (const ComparedFile& file : comparison.files)
    if (!file.problem.empty()) left_out.push_back(file.path);
  if (!left_out.empty())
    comparison.reasons.push_back(fmt::format("left out: {} of {}: {}", left_out.size(),
                                             counted(comparison.files.size(), "file"), list_text(left_out)));
  if (used > 1 && !any_in_common(comparison.tests))
    comparison.reasons.push_back("the files have no test in common; compare results of the same command");
  if (nothing_measured(comparison))
    comparison.reasons.push_back("no metric was measured in two files; compare results of complete runs");
  for (std::string& reason : other_device_counts(comparison)) comparison.reasons.push_back(std::move(reason));
  if (!comparison.reasons.empty()) comparison.exit_code = exit_code::wrong_usage;
  for (const std::size_t file : comparison.worse_verdicts)
    comparison.reasons.push_back(verdict_reason(comparison.files[file]));
  add_regressions(comparison);
  for (std::string& reason : comparison.reasons) reason = printable(reason);
  if (comparison.exit_code != exit_code::pass) return;
  if (!comparison.reasons.empty()) {
    comparison.exit_code = exit_code::degraded;
    comparison.verdict = "degraded";
    return;
  }
  const bool is_any = comparison.judged > 0 || any_compared(comparison.tests);
  comparison.exit_code = is_any ? exit_code::pass : exit_code::incomplete;
  comparison.verdict = is_any ? "pass" : "incomplete";
  comparison.reasons.push_back(
      is_any ? pass_reason(comparison, used)
             : "nothing was compared: name results of the same tests, of two runs or more");
}

/// Workloads of `bench` in column order, with the representative size of each.
struct KnownWorkload {
  std::string_view name;
  double size;
};
constexpr KnownWorkload known_workloads[] = {{"multimodal", 32}, {"voxelize", 1'000'000}, {"mlp", 8192}};

std::size_t workload_order(std::string_view workload) {
  const auto is_it = [&](const KnownWorkload& known) { return known.name == workload; };
  return static_cast<std::size_t>(
      std::find_if(std::begin(known_workloads), std::end(known_workloads), is_it) -
      std::begin(known_workloads));
}

double size_that_stands_for(std::string_view workload) {
  const std::size_t known = workload_order(workload);
  return known < std::size(known_workloads) ? known_workloads[known].size : 0;
}

/// For each workload, the size that most configurations ran. Among several: the known size, else the max.
std::vector<Scaling::Column> columns_of(const std::vector<ComparedTest>& tests) {
  using Choice = std::tuple<std::ptrdiff_t, bool, double>;
  std::map<std::pair<std::size_t, std::string>, std::pair<Choice, Scaling::Column>> chosen;
  for (std::size_t i = 0; i < tests.size(); ++i) {
    const ComparedTest& test = tests[i];
    const auto ran = std::count_if(test.values.begin(), test.values.end(), [](const ComparedFigure& value) {
      return value.ms_per_batch.has_value();
    });
    if (test.workload.empty() || !test.size || ran == 0) continue;
    const Choice choice(ran, *test.size == size_that_stands_for(test.workload), *test.size);
    auto& best = chosen[{workload_order(test.workload), test.workload}];
    if (choice > best.first) best = {choice, {test.workload, i}};
  }
  std::vector<Scaling::Column> columns;
  for (const auto& [key, best] : chosen) columns.push_back(best.second);
  return columns;
}

std::set<std::string> distinct_models(const Configuration& configuration) {
  return {configuration.models.begin(), configuration.models.end()};
}

/// The result of a single device, from the first file that has it.
std::optional<double> alone(const ComparedTest& test, const std::string& model) {
  for (const ComparedFigure& value : test.values) {
    const Configuration& configuration = value.configuration;
    if (configuration.devices == 1 && configuration.models.front() == model && value.value)
      return value.value;
  }
  return std::nullopt;
}

/// Baseline of a configuration's speed-up: the mean of the results that devices of its models have alone. If
/// a model was not measured alone, the result of the smallest configuration with the same models.
std::optional<double> base_of(const ComparedTest& test, const Configuration& configuration) {
  double sum = 0;
  std::size_t reported = 0;
  for (const std::string& model : configuration.models)
    if (const auto one = alone(test, model)) {
      sum += *one;
      ++reported;
    }
  if (reported == configuration.models.size()) return sum / static_cast<double>(reported);
  const ComparedFigure* fewest = nullptr;
  for (const ComparedFigure& value : test.values)
    if (distinct_models(value.configuration) == distinct_models(configuration) &&
        (!fewest || value.configuration < fewest->configuration))
      fewest = &value;
  return fewest ? fewest->value : std::nullopt;
}

/// Adds the row's value in one column, if it ran there.
void fill(Scaling::Row& row, const ComparedTest& test, std::vector<double>& speedups) {
  row.ms.emplace_back();
  for (const ComparedFigure& value : test.values) {
    if (value.file != row.file || value.configuration != row.configuration) continue;
    row.ms.back() = value.ms_per_batch;
    const auto base = base_of(test, row.configuration);
    // The step time is unsuitable, since more devices do more work per step.
    if (test.better == Better::higher)
      if (const auto speedup = times_better(value.value, base, test.better)) speedups.push_back(*speedup);
  }
}

/// One row per file and configuration, grouped by device kind in order of first appearance. Strong scaling,
/// in which devices share one batch, has no row, since the other rows have one batch per device.
std::vector<Scaling::Row> empty_rows(const std::vector<ComparedTest>& tests,
                                     const std::vector<Scaling::Column>& columns) {
  std::map<std::set<std::string>, std::size_t> kinds;
  std::set<std::tuple<std::size_t, Configuration, std::size_t>> keys;
  for (const Scaling::Column& column : columns)
    for (const ComparedFigure& value : tests[column.test].values) {
      const Configuration& configuration = value.configuration;
      if (configuration.mode == "strong") continue;
      const auto kind = kinds.try_emplace(distinct_models(configuration), kinds.size()).first->second;
      keys.emplace(kind, configuration, value.file);
    }
  std::vector<Scaling::Row> rows;
  for (const auto& [kind, configuration, file] : keys) {
    Scaling::Row& row = rows.emplace_back();
    row.file = file;
    row.configuration = configuration;
  }
  return rows;
}

/// The `bench` table, from the tests of all files.
Scaling scaling_of(const std::vector<ComparedTest>& tests) {
  Scaling scaling;
  scaling.columns = columns_of(tests);
  scaling.rows = empty_rows(tests, scaling.columns);
  for (Scaling::Row& row : scaling.rows) {
    std::vector<double> speedups;
    for (const Scaling::Column& column : scaling.columns) fill(row, tests[column.test], speedups);
    row.speedup = geometric_mean(speedups);
    row.counted = speedups.size();
  }
  return scaling;
}

bool is_part_of_word(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0;
}

/// "H100" matches "NVIDIA H100 PCIe"; "A10" does not match "NVIDIA A100". Case-insensitive.
bool names_device(const std::string& part, const std::string& model) {
  const std::string name = to_lower(part), whole = to_lower(model);
  for (std::size_t at = whole.find(name); at != std::string::npos; at = whole.find(name, at + 1)) {
    const std::size_t end = at + name.size();
    const bool starts = at == 0 || !is_part_of_word(whole[at - 1]);
    if (starts && (end == whole.size() || !is_part_of_word(whole[end]))) return true;
  }
  return false;
}

/// Price of one device. A price for the file precedes one for the device; among these the longest name is
/// used.
std::optional<double> price_of(const std::string& label, const std::string& model,
                               const std::vector<Price>& prices) {
  const Price* best = nullptr;
  for (const Price& price : prices) {
    if (price.name == label) return price.per_hour;
    if (names_device(price.name, model) && (!best || price.name.size() > best->name.size())) best = &price;
  }
  return best ? std::optional(best->per_hour) : std::nullopt;
}

std::optional<double> price_of(const std::string& label, const Configuration& configuration,
                               const std::vector<Price>& prices) {
  double sum = 0;
  for (const std::string& model : configuration.models) {
    const auto one = price_of(label, model, prices);
    if (!one) return std::nullopt;
    sum += *one;
  }
  return sum;
}

/// Mean power of all ranks together from their energy counters, or from averaged samples without a counter.
/// Empty if a rank has neither.
std::optional<double> telemetry_power(const Json& result) {
  double sum = 0;
  const Json& ranks = member(result, "telemetry");
  if (!ranks.is_object() || ranks.empty()) return std::nullopt;
  for (const Json& rank : ranks) {
    auto power = value_at<double>(rank, "power_w_mean");
    if (!power || *power <= 0) power = value_at<double>(member(rank, "power_w"), "avg");
    if (!power || *power <= 0) return std::nullopt;
    sum += *power;
  }
  return sum;
}

/// One file's test data for one configuration.
struct Found {
  bool has_figure = false;
  std::map<std::string, std::vector<double>> speedups;  ///< by test, relative to the first file
  std::vector<double> powers;                           ///< watts, of tests that report power
};
using FoundByFile = std::map<std::pair<std::size_t, Configuration>, Found>;

/// A test counts once, however many metrics it has, and only relative to the first file.
FoundByFile found_in(const Comparison& comparison) {
  FoundByFile all;
  const std::vector<std::size_t> used = comparison.used();
  for (const ComparedTest& test : comparison.tests)
    for (const ComparedFigure& value : test.values) {
      Found& found = all[{value.file, value.configuration}];
      found.has_figure = found.has_figure || !test.figure.empty();
      if (value.power_w.value_or(0) > 0) found.powers.push_back(*value.power_w);
      if (test.baseline().file == used.front() && value.speedup && value.success)
        found.speedups[test.test].push_back(*value.speedup);
    }
  return all;
}

/// Mean of the tests' power. If none has a value: the run's mean power, if the run had only these devices.
std::optional<double> power_of(const std::vector<double>& powers, const Json& result, std::int64_t devices) {
  const double sum = std::accumulate(powers.begin(), powers.end(), 0.0);
  if (!powers.empty() && std::isfinite(sum)) return sum / static_cast<double>(powers.size());
  const bool all = device_models(result).size() == static_cast<std::size_t>(devices);
  return all ? telemetry_power(result) : std::nullopt;
}

Cost cost_of(const Comparison& comparison, std::size_t file, const Configuration& configuration,
             const Found& found) {
  Cost cost;
  cost.file = file;
  cost.configuration = configuration;
  std::vector<double> speedups;
  for (const auto& [test, figures] : found.speedups) speedups.push_back(*geometric_mean(figures));
  cost.tests = speedups.size();
  cost.performance = geometric_mean(speedups);
  for (const Scaling::Row& row : comparison.scaling.rows)
    if (row.file == file && row.configuration == configuration) cost.scaling = row.speedup;
  const ComparedFile& result = comparison.files[file];
  cost.price_per_hour = price_of(result.label, configuration, comparison.options.prices);
  cost.performance_per_price = times_better(cost.performance, cost.price_per_hour, Better::higher);
  cost.power_w = power_of(found.powers, result.result, configuration.devices);
  cost.performance_per_kilowatt = times_better(cost.performance, cost.power_w, Better::higher);
  if (cost.performance_per_kilowatt) *cost.performance_per_kilowatt *= 1000;
  return cost;
}

/// invalid_argument: a price matches no file and no device.
Status check_prices(const std::vector<ComparedFile>& files, const std::vector<Price>& prices) {
  std::set<std::string> labels, models;
  for (const ComparedFile& file : files) {
    labels.insert(file.label);
    for (const std::string& model : device_models(file.result)) models.insert(model);
  }
  for (const Price& price : prices) {
    const auto is_named = [&](const std::string& model) { return names_device(price.name, model); };
    if (labels.contains(price.name) || std::any_of(models.begin(), models.end(), is_named)) continue;
    labels.merge(models);
    return {StatusCode::invalid_argument,
            printable(fmt::format("--price {}: no file or device has that name; use one of: {}", price.name,
                                  fmt::join(labels, ", ")))};
  }
  return {};
}

std::vector<Cost> costs_of(const Comparison& comparison) {
  const bool is_one_file = comparison.used().size() == 1;
  std::vector<Cost> costs;
  for (const auto& [key, found] : found_in(comparison)) {
    if (!found.has_figure) continue;
    Cost cost = cost_of(comparison, key.first, key.second, found);
    if (is_one_file || costs.empty() || costs.back().file != cost.file)
      costs.push_back(std::move(cost));
    else if (cost.performance.value_or(-1) > costs.back().performance.value_or(-1))
      costs.back() = std::move(cost);
  }
  const bool any_power = std::any_of(costs.begin(), costs.end(), [](auto& cost) { return cost.power_w; });
  return any_power || !comparison.options.prices.empty() ? costs : std::vector<Cost>();
}

}  // namespace

std::string list_text(const std::vector<std::string>& names, std::size_t most) {
  const std::size_t shown = std::min(names.size(), most);
  const auto end = names.begin() + static_cast<std::ptrdiff_t>(shown);
  const std::string text = fmt::format("{}", fmt::join(names.begin(), end, ", "));
  return shown == names.size() ? text : fmt::format("{} and {} more", text, names.size() - shown);
}

std::string first_reason(const Json& result) {
  const Json& reasons = member(result, "reasons");
  const bool reported = reasons.is_array() && !reasons.empty() && reasons[0].is_string();
  return reported ? fmt::format(" ({})", reasons[0].get<std::string>()) : "";
}

std::vector<std::size_t> Comparison::used() const {
  std::vector<std::size_t> used;
  for (std::size_t i = 0; i < files.size(); ++i)
    if (files[i].problem.empty()) used.push_back(i);
  return used;
}

Result<Json> parse_result(std::string_view text, bool needs_tests) {
  if (text.find_first_not_of(" \t\r\n") == std::string_view::npos)
    return no_result("is empty; name a result.json or the directory of a run");
  Json result;
  int depth = 0;
  const auto is_shallow = [&](int at, Json::parse_event_t, Json&) {
    depth = std::max(depth, at);
    return at < max_depth;
  };
  try {
    result = Json::parse(text, is_shallow);
  } catch (const Json::parse_error& error) {
    return no_result(
        fmt::format("is damaged: no JSON at byte {}; `report DIR` rebuilds a run's result", error.byte));
  } catch (const Json::exception&) {  // a number that exceeds the range of double
    return no_result("is damaged: holds a number that is too large; `report DIR` rebuilds a run's result");
  }
  if (depth >= max_depth) return no_result("is damaged: nests too deep for a result");
  const auto version = value_at<std::int64_t>(result, "schema");
  if (!version) return no_result("is JSON, but no result of this program; name a result.json");
  if (*version != result_schema)
    return no_result(
        fmt::format("is of schema {}, this program reads {}; compare it with version {} of the program",
                    *version, result_schema, printable(text_at(result, "program_version"))));
  if (text_at(result, "command").starts_with("compare"))
    return no_result("is what a comparison came to; name the results themselves");
  const Json& tests = member(result, "results");
  const auto is_named = [](const Json& test) { return !text_at(test, "test_name").empty(); };
  if (needs_tests && (!tests.is_array() || std::none_of(tests.begin(), tests.end(), is_named)))
    return no_result("holds no test: nothing was measured there; name another run's result");
  return result;
}

std::vector<std::string> labels_of(const std::vector<std::string>& paths) {
  std::vector<std::string> labels;
  std::map<std::string, int> uses;
  for (const std::string& text : paths) {
    std::filesystem::path path = std::filesystem::path(text).lexically_normal();
    if (!path.has_filename()) path = path.parent_path();  // "run/"
    if (path.filename() == "result.json" && path.has_parent_path()) path = path.parent_path();
    const std::string label = path.extension() == ".json" ? path.stem().string() : path.filename().string();
    ++uses[labels.emplace_back(printable(label))];
  }
  for (std::size_t i = 0; i < labels.size(); ++i)
    if (uses[labels[i]] > 1 || labels[i].empty()) labels[i] = printable(paths[i]);
  return labels;
}

Result<Comparison> compare_results(std::vector<ComparedFile> files, ComparisonOptions options) {
  EGT_TRY(check_prices(files, options.prices));
  Comparison comparison;
  comparison.options = std::move(options);
  comparison.files = std::move(files);
  comparison.tests = aligned(comparison);
  for (ComparedTest& test : comparison.tests) compare_with_others(test);
  find_regressions(comparison);
  find_worse_verdicts(comparison);
  comparison.scaling = scaling_of(comparison.tests);
  comparison.costs = costs_of(comparison);
  comparison.notes = notes_of(comparison);
  conclude(comparison);
  return comparison;
}

}  // namespace egt
