#include <algorithm>
#include <cctype>
#include <cmath>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "egt/core/json_access.hpp"
#include "egt/core/text.hpp"
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

/// "H100" matches "NVIDIA H100 PCIe"; "A10" does not match "NVIDIA A100". Case-insensitive.
bool names_device(const std::string& part, const std::string& model) {
  const std::string name = lowered(part), whole = lowered(model);
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

}  // namespace egt
