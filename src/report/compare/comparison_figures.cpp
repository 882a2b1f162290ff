#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <map>
#include <numeric>
#include <set>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "egt/core/histogram.hpp"
#include "egt/core/json_access.hpp"
#include "report/compare/comparison.hpp"

namespace egt {
namespace {

constexpr std::int64_t max_devices = 100'000;

using Entries = std::vector<const Json*>;

/// Entries of one test in one configuration.
struct Group {
  Configuration configuration;
  Entries entries;
  bool of_ranks = false;  ///< one entry per rank of the same measurement
};

int mode_order(std::string_view mode) {
  constexpr std::array<std::string_view, 5> modes = {"single", "", "p2p", "collective", "hetero"};
  return static_cast<int>(std::find(modes.begin(), modes.end(), mode) - modes.begin());
}

/// The field's number, or the median of its distribution. Empty if it is missing or negative.
std::optional<double> figure_at(const Json& entry, std::string_view name) {
  const std::string key(name);
  const Json& field = member(entry, key);
  auto value = value_at<double>(entry, key);
  if (!value) value = value_at<double>(field, "p50");
  if (!value) value = value_at<double>(field, "median");
  return value && *value >= 0 ? value : std::nullopt;
}

/// One value per rank, or one for all ranks together: the mean of the entries. Empty if any entry lacks it.
std::vector<double> by_rank(const Group& group, const std::string& name) {
  std::map<std::int64_t, std::vector<double>> repeats;
  for (const Json* entry : group.entries) {
    const auto value = figure_at(*entry, name);
    if (!value) return {};
    repeats[group.of_ranks ? value_at<std::int64_t>(*entry, "rank").value_or(0) : 0].push_back(*value);
  }
  std::vector<double> values;
  for (const auto& [rank, of_rank] : repeats)
    values.push_back(std::accumulate(of_rank.begin(), of_rank.end(), 0.0) /
                     static_cast<double>(of_rank.size()));
  return values;
}

/// Reduction over all entries; empty if one lacks the metric or the sum overflows.
std::optional<double> combined(const Group& group, const std::string& name, OverRanks over_ranks) {
  const std::vector<double> values = by_rank(group, name);
  if (values.empty()) return std::nullopt;
  const double one = over_ranks == OverRanks::median ? median_of(values)
                                                     : std::accumulate(values.begin(), values.end(), 0.0);
  return std::isfinite(one) ? std::optional(one) : std::nullopt;
}

/// The worst rank; empty for fewer than two ranks.
std::optional<double> worst_of(const Group& group, const std::string& name, Better better) {
  const std::vector<double> values = by_rank(group, name);
  if (values.size() < 2) return std::nullopt;
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  return better == Better::higher ? *least : *most;
}

std::optional<double> largest(const Group& group, const char* name) {
  std::optional<double> most;
  for (const Json* entry : group.entries)
    if (const auto value = figure_at(*entry, name)) most = std::max(most.value_or(0), *value);
  return most;
}

bool any_has(const Entries& entries, std::string_view name) {
  return std::any_of(entries.begin(), entries.end(),
                     [&](const Json* entry) { return figure_at(*entry, name).has_value(); });
}

/// Prefixes of fields that are not compared: reference values, and duplicates of other fields.
constexpr std::string_view left_out[] = {"expected_", "warn_", "line_rate_", "algorithm_"};

/// "write_gb_per_s" matches "gb_per_s".
bool fits(const KnownFigure& known, std::string_view name) {
  if (name == known.name) return true;
  for (const std::string_view beginning : left_out)
    if (name.starts_with(beginning)) return false;
  return name.size() > known.name.size() && name.ends_with(known.name) &&
         name[name.size() - known.name.size() - 1] == '_';
}

/// The metrics to compare, by field name. A test without any gets one metric without a name.
std::map<std::string, const KnownFigure*> chosen_figures(const Entries& entries) {
  static constexpr KnownFigure none{};
  for (const KnownFigure& known : work_figures)
    if (any_has(entries, known.name)) return {{std::string(known.name), &known}};
  std::map<std::string, const KnownFigure*> parts;
  for (const Json* entry : entries)
    for (const auto& [name, value] : entry->items())
      for (const KnownFigure& known : part_figures)
        if (fits(known, name) && figure_at(*entry, name)) {
          parts.try_emplace(name, &known);
          break;
        }
  return parts.empty() ? std::map<std::string, const KnownFigure*>{{"", &none}} : parts;
}

std::optional<std::int64_t> device_count(const Json& entry) {
  const auto count = value_at<std::int64_t>(entry, "devices");
  return count && *count > 0 && *count <= max_devices ? count : std::nullopt;
}

std::map<std::int64_t, std::string> models_by_rank(const Json& result) {
  std::map<std::int64_t, std::string> models;
  const Json& ranks = member(result, "ranks");
  if (!ranks.is_array()) return models;
  for (const Json& rank : ranks) {
    const std::string name = text_at(member(rank, "device"), "name");
    if (const auto number = value_at<std::int64_t>(rank, "rank"))
      models[*number] = name.empty() ? "device" : name;
  }
  return models;
}

/// Models of `ranks`, one per device. If the count differs from `devices`, uses the models of all ranks of
/// the file.
std::vector<std::string> models_of(const std::set<std::int64_t>& ranks, std::int64_t devices,
                                   const std::map<std::int64_t, std::string>& by_rank) {
  std::vector<std::string> models;
  for (const std::int64_t rank : ranks)
    if (const auto found = by_rank.find(rank); found != by_rank.end()) models.push_back(found->second);
  std::sort(models.begin(), models.end());
  if (models.size() == static_cast<std::size_t>(devices)) return models;
  std::set<std::string> distinct;
  for (const auto& [rank, model] : by_rank) distinct.insert(model);
  const std::string any = distinct.empty() ? "device" : fmt::format("{}", fmt::join(distinct, " or "));
  return std::vector<std::string>(static_cast<std::size_t>(devices), any);
}

std::set<std::int64_t> ranks_of(const Json& entry) {
  std::set<std::int64_t> numbers;
  const Json& ranks = member(entry, "ranks");
  if (ranks.is_array())
    for (const Json& rank : ranks)
      if (rank.is_number_integer()) numbers.insert(rank.get<std::int64_t>());
  for (const char* name : {"rank", "from", "to"})  // a pair of `links` has two
    if (const auto rank = value_at<std::int64_t>(entry, name)) numbers.insert(*rank);
  return numbers;
}

/// Groups entries with one rank each by mode. Their devices are these ranks.
std::vector<Group> rank_groups(const Entries& entries, const std::map<std::int64_t, std::string>& by_rank) {
  std::map<std::string, Group> groups;
  std::map<std::string, std::set<std::int64_t>> ranks;
  for (const Json* entry : entries) {
    const std::string mode = text_at(*entry, "mode");
    groups[mode].entries.push_back(entry);
    ranks[mode].merge(ranks_of(*entry));
  }
  std::vector<Group> all;
  for (auto& [mode, group] : groups) {
    const auto devices = static_cast<std::int64_t>(ranks[mode].size());
    group.configuration = {mode, devices, models_of(ranks[mode], devices, by_rank)};
    group.of_ranks = true;
    all.push_back(std::move(group));
  }
  return all;
}

void add_whole(const Json& entry, const std::map<std::int64_t, std::string>& by_rank,
               std::vector<Group>& groups) {
  const std::set<std::int64_t> ranks = ranks_of(entry);
  const std::size_t reported = ranks.empty() ? by_rank.size() : ranks.size();
  const auto devices =
      device_count(entry).value_or(std::max<std::int64_t>(static_cast<std::int64_t>(reported), 1));
  const Configuration configuration{text_at(entry, "mode"), devices, models_of(ranks, devices, by_rank)};
  auto group = std::find_if(groups.begin(), groups.end(), [&](const Group& one) {
    return !one.of_ranks && one.configuration == configuration;
  });
  if (group == groups.end())
    group = groups.insert(groups.end(), {.configuration = configuration, .entries = {}});
  group->entries.push_back(&entry);
}

std::vector<Group> groups_of(const Entries& entries, const std::map<std::int64_t, std::string>& by_rank) {
  Entries of_ranks, others;
  for (const Json* entry : entries) {
    const bool is_part = value_at<std::int64_t>(*entry, "rank") && !device_count(*entry);
    (is_part ? of_ranks : others).push_back(entry);
  }
  std::vector<Group> groups = rank_groups(of_ranks, by_rank);
  for (const Json* entry : others) add_whole(*entry, by_rank, groups);
  return groups;
}

/// Fills the fields that are equal for all metrics of the group, such as power and success.
ComparedFigure describe(std::size_t file, const Group& group) {
  ComparedFigure common;
  common.file = file;
  common.configuration = group.configuration;
  common.spread_percent = largest(group, "spread_percent");
  common.power_w = combined(group, "power_w", OverRanks::sum);
  common.ms_per_batch = combined(group, "ms_per_batch", OverRanks::median);
  for (const Json* entry : group.entries) {
    if (value_at<bool>(*entry, "success").value_or(false)) continue;
    common.success = false;
    if (common.failure.empty()) common.failure = text_at(*entry, "failure");
    if (common.failure.empty() && !entry->contains("success")) common.failure = "success is missing";
  }
  return common;
}

std::string unit_of(const std::string& figure, const KnownFigure& known, const Json& entry) {
  const std::string items = text_at(entry, "items");
  return figure == "items_per_second" && !items.empty() ? items + "/s" : std::string(known.unit);
}

/// "train throughput", "collective all-reduce bus bandwidth", "memory bandwidth"
std::string name_of(const std::string& test, const std::string& figure, const KnownFigure& known) {
  if (figure.empty()) return test;
  std::string prefix = figure.substr(0, figure.size() - known.name.size());
  for (const std::string_view collective : {"all_", "reduce_scatter"})  // as NCCL's documentation writes them
    if (prefix.starts_with(collective)) prefix[prefix.find('_')] = '-';
  std::replace(prefix.begin(), prefix.end(), '_', ' ');
  const std::string title = prefix + std::string(known.title);
  return title.starts_with(test + " ") ? title : fmt::format("{} {}", test, title);
}

/// One test per metric.
void add_tests(const std::string& name, const Entries& entries, std::size_t file,
               const std::map<std::int64_t, std::string>& by_rank, std::vector<ComparedTest>& tests) {
  const std::vector<Group> groups = groups_of(entries, by_rank);
  for (const auto& [figure, known] : chosen_figures(entries)) {
    ComparedTest& test = tests.emplace_back();
    test.test = name;
    test.figure = figure;
    test.name = name_of(name, figure, *known);
    test.unit = unit_of(figure, *known, *groups.front().entries.front());
    test.better = known->better;
    test.workload = text_at(*entries.front(), "workload");
    test.size = figure_at(*entries.front(), "size");
    for (const Group& group : groups) {
      ComparedFigure& value = test.values.emplace_back(describe(file, group));
      value.value = combined(group, figure, known->over_ranks);
      value.worst = worst_of(group, figure, known->better);
    }
  }
}

}  // namespace

bool Configuration::operator<(const Configuration& other) const {
  const auto key = [](const Configuration& one) {
    return std::tuple(one.devices, mode_order(one.mode), one.mode, one.models);
  };
  return key(*this) < key(other);
}

std::string to_text(const Configuration& configuration) {
  std::map<std::string, int> counts;
  for (const std::string& model : configuration.models) ++counts[model];
  std::string text;
  for (const auto& [model, count] : counts)
    text += fmt::format("{}{}x {}", text.empty() ? "" : " + ", count, model);
  const bool reported = !configuration.mode.empty() && configuration.mode != "single";
  return reported ? fmt::format("{} ({})", text, configuration.mode) : text;
}

std::vector<ComparedTest> tests_of(const Json& result, std::size_t file) {
  const std::map<std::int64_t, std::string> by_rank = models_by_rank(result);
  std::vector<std::string> names;
  std::map<std::string, Entries> by_name;
  for (const Json& entry : member(result, "results")) {
    const std::string name = text_at(entry, "test_name");
    if (name.empty() || value_at<bool>(entry, "forecast").value_or(false)) continue;  // from older versions
    Entries& entries = by_name[name];
    if (entries.empty()) names.push_back(name);
    entries.push_back(&entry);
  }
  std::vector<ComparedTest> tests;
  for (const std::string& name : names) add_tests(name, by_name[name], file, by_rank, tests);
  return tests;
}

std::vector<std::string> device_models(const Json& result) {
  std::vector<std::string> models;
  for (const auto& [rank, model] : models_by_rank(result)) models.push_back(model);
  std::sort(models.begin(), models.end());
  return models;
}

}  // namespace egt
