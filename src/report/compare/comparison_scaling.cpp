#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <set>
#include <tuple>

#include "report/compare/comparison_parts.hpp"

namespace egt {
namespace {

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
/// where devices share one batch, has no row, since the other rows have one batch per device.
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

}  // namespace

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

}  // namespace egt
