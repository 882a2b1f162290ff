#include "judge/history.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "egt/core/histogram.hpp"
#include "egt/core/json_access.hpp"
#include "judge/peer_review.hpp"

namespace egt {
namespace {

constexpr std::size_t max_reference = 20;  ///< first runs that later ones are compared with
constexpr std::array<std::size_t, 4> recent_runs = {1, 2, 4, 8};
constexpr double full_evidence = 4;  ///< number of last runs for which `least` is enough
constexpr double standard_errors = 4;
constexpr double min_variation = 0.002, pooled_runs = 8, few_runs = 4;  ///< see variation_of
// For a normal distribution: variance of a Hodges-Lehmann estimate over that of a mean; standard deviation
// over median absolute deviation.
constexpr double estimate_per_mean = 1.1, deviation_per_mad = 1.4826;
constexpr std::size_t max_trend_runs = 200;  ///< for the trend, which needs time by the square of the runs
constexpr double growth_least = 20, growth_ratio = 5;  ///< of corrected errors

/// A comparable run of a GPU.
struct Point {
  std::string run;
  double value = 0;  ///< of the rate
  double log = 0;    ///< ln of it, or that without the change that other GPUs share
};
using Series = std::vector<Point>;
using SeriesByGpu = std::map<std::string, Series>;

double median_over(const Series& series, std::size_t count) {
  std::vector<double> logs;
  for (std::size_t i = 0; i < std::min(count, series.size()); ++i) logs.push_back(series[i].log);
  return median_of(std::move(logs));
}

/// Each GPU's change in each run, against its first runs; omits GPUs with too few runs.
using Changes = std::map<std::string, std::map<std::string, double>>;  ///< by run and GPU
Changes changes_of(const SeriesByGpu& gpus) {
  Changes changes;
  for (const auto& [id, series] : gpus) {
    if (series.size() <= min_past_runs) continue;
    const double usual = median_over(series, min_past_runs);
    for (const Point& point : series) changes[point.run][id] = point.log - usual;
  }
  return changes;
}

/// `series` of the GPU `id`, without the median change of all GPUs of a run. For two GPUs, it is that of the
/// other one.
Series without_shared_changes(Series series, const std::string& id, const Changes& changes) {
  for (Point& point : series) {
    const auto found = changes.find(point.run);
    if (found == changes.end()) continue;
    std::vector<double> all;
    for (const auto& [gpu, change] : found->second)
      if (gpu != id || found->second.size() > 2) all.push_back(change);
    if (!all.empty()) point.log -= median_of(std::move(all));
  }
  return series;
}

/// Standard deviation of a run, from the differences of successive ones: a trend or a step hardly adds to it.
/// `series` has more than `min_past_runs` runs.
double variation(const Series& series) {
  std::vector<double> differences;
  for (std::size_t i = 1; i < series.size(); ++i) differences.push_back(series[i].log - series[i - 1].log);
  const double middle = median_of(differences);
  for (double& one : differences) one = std::abs(one - middle);
  return deviation_per_mad * median_of(std::move(differences)) / std::sqrt(2.0);
}

/// Median of the differences between each of the first `reference` runs and each of the last `now`.
double decline_of(const Series& series, std::size_t reference, std::size_t now) {
  std::vector<double> differences;
  for (std::size_t i = 0; i < reference; ++i)
    for (std::size_t j = series.size() - now; j < series.size(); ++j)
      differences.push_back(series[i].log - series[j].log);
  return median_of(std::move(differences));
}

/// The decline of a series at the scale that exceeds its threshold most.
struct Decline {
  double value = 0, threshold = 0;  ///< ln(past / now)
  std::size_t now = 0;              ///< number of last runs

  double excess() const { return value - threshold; }
};

/// `series` has more than `min_past_runs` runs.
Decline strongest_decline(const Series& series, double deviation, double least) {
  const std::size_t runs = series.size(), reference = std::clamp(runs / 2, min_past_runs, max_reference);
  std::optional<Decline> strongest;
  for (const std::size_t now : recent_runs) {
    if (reference + now > runs) break;
    const double error = deviation * std::sqrt(estimate_per_mean * (1.0 / static_cast<double>(reference) +
                                                                    1.0 / static_cast<double>(now)));
    const double few = std::max(1.0, full_evidence / static_cast<double>(now));
    const Decline one{.value = decline_of(series, reference, now),
                      .threshold = std::max(few * std::log1p(least), standard_errors * error),
                      .now = now};
    if (!strongest || one.excess() > strongest->excess()) strongest = one;
  }
  return *strongest;
}

/// The variation of one GPU. Few runs estimate it badly, so that of all GPUs of the configuration counts,
/// too, as much as `pooled_runs` own ones. One GPU alone gets a reserve instead.
double variation_of(const Series& series, const std::vector<double>& all) {
  const double own = variation(series), runs = static_cast<double>(series.size());
  const double reserve = 1 + few_runs / (runs * static_cast<double>(all.size()));
  const double usual = median_of(all);
  return std::max(min_variation, reserve * std::sqrt((pooled_runs * usual * usual + runs * own * own) /
                                                     (pooled_runs + runs)));
}

/// Theil-Sen slope, in percent per run.
double trend_percent(const Series& series) {
  std::vector<double> slopes;
  const std::size_t first = series.size() - std::min(series.size(), max_trend_runs);
  for (std::size_t i = first; i < series.size(); ++i)
    for (std::size_t j = i + 1; j < series.size(); ++j)
      slopes.push_back(std::log(series[j].value / series[i].value) / static_cast<double>(j - i));
  return slopes.empty() ? 0 : 100 * std::expm1(median_of(std::move(slopes)));
}

/// All but the decline. `series` is not empty.
RateHistory summary_of(const Series& series, const HistoryRate& rate) {
  RateHistory history;
  history.rate = &rate;
  history.runs = series.size();
  std::vector<double> values;
  for (const Point& point : series) values.push_back(point.value);
  history.first = values.front();
  history.last = values.back();
  history.median = median_of(std::move(values));
  history.trend_percent = trend_percent(series);
  return history;
}

/// The rate of a line whose run shows what the GPU can do.
std::optional<double> rate_in(const Json& line, const HistoryRate& rate) {
  const std::string verdict = text_at(line, "verdict");
  if ((verdict != "pass" && verdict != "degraded") || value_at<bool>(line, "injected").value_or(true))
    return std::nullopt;
  const Json& values = member(line, "values");
  const auto ms = value_at<double>(values, "compute_ms");
  if (&rate == &history_rates[0] && ms && *ms < shortest_pass_ms) return std::nullopt;
  const auto value = value_at<double>(values, rate.name);
  return value && *value > 0 ? value : std::nullopt;
}

/// Values of a line for people: "71 C, 690 W, 1755 MHz".
std::string conditions(const Json& line) {
  std::vector<std::string> texts;
  for (const auto& [name, unit] :
       {std::pair("temperature_c", "C"), {"power_w", "W"}, {"sm_clock_mhz", "MHz"}})
    if (const auto value = value_at<double>(member(line, "values"), name))
      texts.push_back(fmt::format("{:.0f} {}", *value, unit));
  return fmt::format("{}", fmt::join(texts, ", "));
}

Finding finding_on(const Json& line) {
  Finding finding;
  finding.kind = "history";
  finding.rank = value_at<int>(line, "rank").value_or(-1);
  finding.hostname = text_at(line, "hostname");
  finding.device_uuid = text_at(member(line, "device"), "uuid");
  return finding;
}

Finding slower(const RateHistory& rate, const Json& line, const Json& first) {
  Finding finding = finding_on(line);
  finding.where = fmt::format("{} compared with its past", rate.rate->text);
  finding.actual = rate.last;
  finding.expected = rate.last * std::exp(*rate.decline);
  finding.text = fmt::format(
      "{} {:.1f} % below its own past in its last {}: {:.4g} {}, not {:.4g} {}; {:+.2f} % per run over {} "
      "runs",
      rate.rate->text, -100 * std::expm1(-*rate.decline),
      rate.now == 1 ? "run" : fmt::format("{} runs", rate.now), *finding.actual, rate.rate->unit,
      *finding.expected, rate.rate->unit, rate.trend_percent, rate.runs);
  const std::string now = conditions(line), then = conditions(first);
  if (!now.empty() && !then.empty()) finding.text += fmt::format(" ({}; in the first run {})", now, then);
  return finding;
}

/// Corrected memory errors per hour; empty: not counted, or counted during an injection.
std::optional<double> corrected_per_hour(const Json& line) {
  const auto count = value_at<double>(member(line, "errors"), "ecc_corrected"),
             seconds = value_at<double>(line, "seconds");
  if (value_at<bool>(line, "injected").value_or(true) || !count || !seconds || *seconds <= 0)
    return std::nullopt;
  return *count * 3600 / *seconds;
}

std::optional<Finding> growing_errors(const std::vector<const Json*>& lines) {
  const Json& last = *lines.back();
  const auto now = corrected_per_hour(last);
  if (!now || value_at<double>(member(last, "errors"), "ecc_corrected").value_or(0) < growth_least)
    return std::nullopt;
  std::vector<double> past;
  for (std::size_t i = 0; i + 1 < lines.size(); ++i)
    if (const auto one = corrected_per_hour(*lines[i])) past.push_back(*one);
  if (past.size() < min_past_runs) return std::nullopt;
  const std::size_t runs = past.size();
  const double usual = median_of(std::move(past));
  if (*now < growth_ratio * usual) return std::nullopt;
  Finding finding = finding_on(last);
  finding.where = "corrected memory errors compared with its past";
  finding.actual = *now;
  finding.expected = usual;
  finding.text =
      fmt::format("corrected memory errors (ECC) grow: {:.3g} per hour, {:.3g} in its {} earlier runs", *now,
                  usual, runs);
  return finding;
}

/// Each GPU's lines. The last line of a run replaces its earlier ones.
std::map<std::string, std::vector<const Json*>> by_gpu(const std::vector<Json>& lines) {
  std::map<std::string, std::vector<const Json*>> all;
  std::set<std::pair<std::string, std::string>> seen;
  for (auto line = lines.rbegin(); line != lines.rend(); ++line) {
    const std::string id = text_at(*line, "id");
    if (seen.emplace(id, text_at(*line, "run_id")).second) all[id].push_back(&*line);
  }
  for (auto& [id, own] : all) std::reverse(own.begin(), own.end());
  return all;
}

}  // namespace

std::string history_id(const Json& identity) {
  const Json& device = member(identity, "device");
  const bool is_instance = text_at(device, "name").find("MIG") != std::string::npos;
  if (const std::string serial = text_at(device, "serial"); !serial.empty() && !is_instance) return serial;
  if (const std::string uuid = text_at(device, "uuid"); !uuid.empty()) return uuid;
  return fmt::format("{}-{}-{}", text_at(identity, "hostname"), text_at(identity, "backend"),
                     value_at<int>(device, "index").value_or(0));
}

Json options_with_effect(const Json& options) {
  Json with_effect = options;
  for (const char* name : {"command", "devices", "seed", "io-dir"})
    if (with_effect.is_object()) with_effect.erase(name);
  return with_effect;
}

std::vector<Json> history_lines(const Json& result) {
  std::vector<Json> lines;
  const Json& ranks = member(result, "ranks");
  for (const Json& identity : ranks) {
    const std::string number = std::to_string(value_at<int>(identity, "rank").value_or(-1));
    const Json& device = member(identity, "device");
    Json values = Json::object(), errors = Json::object();
    for (const auto& [name, one] : member(member(result, "peers"), number).items())
      values[name] = member(one, "value");
    for (const char* name :
         {"ecc_corrected", "ecc_uncorrected", "remapped_rows", "pcie_replay", "nvlink_crc"})
      errors[name] = or_null(new_errors(member(member(result, "counters"), number), name));
    const auto is_accused = [&](const Json& fault) {
      return member(fault, "rank") == member(identity, "rank");
    };
    const Json& faults = member(result, "faults");
    errors["faults"] = std::count_if(faults.begin(), faults.end(), is_accused);
    lines.push_back({{"schema", history_schema},
                     {"id", history_id(identity)},
                     {"run_id", member(result, "run_id")},
                     {"ended_at", member(member(result, "system_info"), "ended_at")},
                     {"verdict", member(result, "verdict")},
                     {"injected", member(result, "injected")},
                     {"rank", member(identity, "rank")},
                     {"hostname", member(identity, "hostname")},
                     {"device", device},
                     {"driver_version", member(member(result, "system_info"), "driver_version")},
                     {"seconds", member(member(result, "test_summary"), "actual_duration_seconds")},
                     {"values", values},
                     {"errors", errors},
                     {"configuration",
                      {{"command", member(result, "command")},
                       {"program_version", member(result, "program_version")},
                       {"gpu", member(device, "name")},
                       {"power_limit_w", member(device, "power_limit_w")},
                       {"ranks", ranks.size()},
                       {"layers", member(result, "layers")},
                       {"global_batch", member(result, "global_batch")},
                       {"precisions", member(result, "precisions")},
                       {"options", options_with_effect(member(result, "options"))}}}});
  }
  return lines;
}

namespace {

/// One rate of the GPUs that have runs of one configuration.
SeriesByGpu series_of(const std::map<std::string, std::vector<const Json*>>& gpus, const Json& configuration,
                      const HistoryRate& rate) {
  SeriesByGpu all;
  for (const auto& [id, lines] : gpus)
    for (const Json* line : lines)
      if (const auto value = rate_in(*line, rate); value && member(*line, "configuration") == configuration)
        all[id].push_back({text_at(*line, "run_id"), *value, std::log(*value)});
  return all;
}

}  // namespace

std::vector<GpuHistory> review_history(const std::vector<Json>& lines) {
  const auto gpus = by_gpu(lines);
  std::map<std::string, GpuHistory> all;
  std::map<std::string, std::set<std::string>> judged;  // GPUs by the configuration of their last run
  for (const auto& [id, own] : gpus) {
    all[id] = {.id = id, .last = *own.back(), .runs = own.size(), .rates = {}, .findings = {}};
    judged[one_line(member(*own.back(), "configuration"))].insert(id);
  }
  for (const auto& [text, ids] : judged)
    for (const HistoryRate& rate : history_rates) {
      const SeriesByGpu series =
          series_of(gpus, member(*gpus.at(*ids.begin()).back(), "configuration"), rate);
      const Changes changes = changes_of(series);
      std::map<std::string, Series> corrected;
      std::vector<double> variations, own_variations;
      for (const auto& [id, own] : series)
        if (own.size() > min_past_runs) {
          corrected[id] = without_shared_changes(own, id, changes);
          variations.push_back(variation(corrected[id]));
          own_variations.push_back(variation(own));
        }
      for (const std::string& id : ids) {
        const auto found = series.find(id);
        if (found == series.end()) continue;
        const Series& own = found->second;
        GpuHistory& gpu = all[id];
        RateHistory& history = gpu.rates.emplace_back(summary_of(own, rate));
        if (own.back().run == text_at(gpu.last, "run_id") && corrected.contains(id)) {
          const Series& relative = corrected.at(id);
          Decline decline = strongest_decline(relative, variation_of(relative, variations), rate.least);
          // Of two GPUs, the other may have become faster.
          if (changes.at(own.back().run).size() == 2)
            decline = std::min(decline, strongest_decline(own, variation_of(own, own_variations), rate.least),
                               [](const Decline& a, const Decline& b) { return a.excess() < b.excess(); });
          history.decline = decline.value;
          history.threshold = decline.threshold;
          history.now = decline.now;
        }
        const auto first = std::find_if(gpus.at(id).begin(), gpus.at(id).end(), [&](const Json* line) {
          return text_at(*line, "run_id") == own.front().run;
        });
        if (history.is_slower()) gpu.findings.push_back(slower(history, gpu.last, **first));
      }
    }
  std::vector<GpuHistory> sorted;
  for (auto& [id, gpu] : all) {
    if (auto finding = growing_errors(gpus.at(id))) gpu.findings.push_back(std::move(*finding));
    sorted.push_back(std::move(gpu));
  }
  return sorted;
}

std::vector<Finding> compare_with_past(std::vector<Json> past, const Json& result) {
  const std::vector<Json> own = history_lines(result);
  past.insert(past.end(), own.begin(), own.end());
  std::vector<Finding> findings;
  for (GpuHistory& gpu : review_history(past))
    if (member(gpu.last, "run_id") == member(result, "run_id"))
      for (Finding& finding : gpu.findings) findings.push_back(std::move(finding));
  return findings;
}

}  // namespace egt
