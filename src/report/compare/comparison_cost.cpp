#include <algorithm>
#include <cctype>
#include <cmath>
#include <map>
#include <set>

#include <fmt/format.h>

#include "egt/core/json_access.hpp"
#include "egt/core/printable.hpp"
#include "report/compare/comparison_parts.hpp"

namespace egt {
namespace {

bool is_part_of_word(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0;
}

std::string lowered(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

/// "H100" is in "NVIDIA H100 PCIe"; "A10" is not in "NVIDIA A100". Upper and lower case are one.
bool names_device(const std::string& part, const std::string& model) {
  const std::string name = lowered(part), whole = lowered(model);
  for (std::size_t at = whole.find(name); at != std::string::npos; at = whole.find(name, at + 1)) {
    const std::size_t end = at + name.size();
    const bool starts = at == 0 || !is_part_of_word(whole[at - 1]);
    if (starts && (end == whole.size() || !is_part_of_word(whole[end]))) return true;
  }
  return false;
}

/// Of one device: a price for the file goes before one for the device; of these the longest name's.
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

/// The average power of all the file's ranks together; nothing where one does not tell.
std::optional<double> telemetry_power(const Json& result) {
  double sum = 0;
  const Json& ranks = member(result, "telemetry");
  if (!ranks.is_object() || ranks.empty()) return std::nullopt;
  for (const Json& rank : ranks) {
    const auto power = value_at<double>(member(rank, "power_w"), "avg");
    if (!power || *power <= 0) return std::nullopt;
    sum += *power;
  }
  return sum;
}

/// The mean of its tests' own; where they have none, of the run if all its devices took part.
std::optional<double> power_of(const Comparison& comparison, std::size_t file,
                               const Configuration& configuration) {
  double sum = 0, count = 0;
  for (const ComparedTest& test : comparison.tests)
    for (const ComparedFigure& value : test.values)
      if (value.file == file && value.measured.configuration == configuration &&
          value.measured.power_w.value_or(0) > 0) {
        sum += *value.measured.power_w;
        ++count;
      }
  if (count > 0 && std::isfinite(sum)) return sum / count;
  const Json& result = comparison.files[file].result;
  const bool all = device_models(result).size() == static_cast<std::size_t>(configuration.devices);
  return all ? telemetry_power(result) : std::nullopt;
}

std::optional<std::size_t> first_used(const std::vector<ComparedFile>& files) {
  for (std::size_t i = 0; i < files.size(); ++i)
    if (files[i].problem.empty()) return i;
  return std::nullopt;
}

/// A test counts once, however many figures it has, and only against the first file.
std::vector<double> speedups_of(const Comparison& comparison, const Cost& cost) {
  std::map<std::string, std::vector<double>> by_test;
  for (const ComparedTest& test : comparison.tests) {
    if (test.values.front().file != first_used(comparison.files)) continue;
    for (const ComparedFigure& value : test.values)
      if (value.file == cost.file && value.measured.configuration == cost.configuration && value.speedup &&
          value.measured.success)
        by_test[test.test].push_back(*value.speedup);
  }
  std::vector<double> means;
  for (const auto& [test, speedups] : by_test) means.push_back(*geometric_mean(speedups));
  return means;
}

std::optional<double> over(std::optional<double> value, std::optional<double> divisor) {
  return times_better(value, divisor, Better::higher);
}

Cost cost_of(const Comparison& comparison, std::size_t file, const Configuration& configuration) {
  Cost cost;
  cost.file = file;
  cost.configuration = configuration;
  const std::vector<double> speedups = speedups_of(comparison, cost);
  cost.tests = speedups.size();
  cost.performance = geometric_mean(speedups);
  for (const Scaling::Row& row : comparison.scaling.rows)
    if (row.file == file && row.configuration == configuration) cost.scaling = row.speedup;
  cost.price_per_hour = price_of(comparison.files[file].label, configuration, comparison.options.prices);
  cost.performance_per_price = over(cost.performance, cost.price_per_hour);
  cost.power_w = power_of(comparison, file, configuration);
  cost.performance_per_kilowatt = over(cost.performance, cost.power_w);
  if (cost.performance_per_kilowatt) *cost.performance_per_kilowatt *= 1000;
  return cost;
}

/// Each file's configurations, the fewest devices first.
std::vector<std::set<Configuration>> configurations_of(const Comparison& comparison) {
  std::vector<std::set<Configuration>> all(comparison.files.size());
  for (const ComparedTest& test : comparison.tests)
    for (const ComparedFigure& value : test.values)
      if (!test.figure.empty()) all[value.file].insert(value.measured.configuration);
  return all;
}

}  // namespace

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
  const auto configurations = configurations_of(comparison);
  const auto used = std::count_if(comparison.files.begin(), comparison.files.end(),
                                  [](const ComparedFile& file) { return file.problem.empty(); });
  std::vector<Cost> costs;
  for (std::size_t file = 0; file < comparison.files.size(); ++file) {
    std::vector<Cost> own;
    for (const Configuration& configuration : configurations[file])
      own.push_back(cost_of(comparison, file, configuration));
    if (used > 1 && !own.empty())
      own = {*std::max_element(own.begin(), own.end(), [](const Cost& a, const Cost& b) {
        return a.performance.value_or(-1) < b.performance.value_or(-1);
      })};
    costs.insert(costs.end(), own.begin(), own.end());
  }
  const bool any_power = std::any_of(costs.begin(), costs.end(), [](auto& cost) { return cost.power_w; });
  return any_power || !comparison.options.prices.empty() ? costs : std::vector<Cost>();
}

}  // namespace egt
