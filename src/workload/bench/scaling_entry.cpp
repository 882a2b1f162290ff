#include "workload/bench/scaling_entry.hpp"

#include <algorithm>
#include <cstddef>
#include <map>
#include <numeric>

#include <fmt/format.h>

#include "egt/core/histogram.hpp"
#include "egt/core/json_access.hpp"
#include "egt/core/units.hpp"
#include "workload/bench/task/task_trials.hpp"

namespace egt {
namespace {

/// Mean over the single-device entries.
template <typename Figure>
double mean(const std::vector<const BenchEntry*>& alone, const Figure& figure) {
  double sum = 0;
  for (const BenchEntry* one : alone) sum += figure(*one);
  return sum / static_cast<double>(alone.size());
}

Json step_json(const BenchEntry& entry) {
  if (!entry.step) return nullptr;
  const ScalingTimes& step = *entry.step;
  return {{"min", step.min}, {"p50", step.p50}, {"p95", step.p95}, {"max", step.max}};
}

/// Time for one device's batch.
std::optional<double> ms_per_batch(const BenchEntry& entry) {
  if (!entry.step) return std::nullopt;
  return entry.step->p50 * static_cast<double>(entry.trial.size) / static_cast<double>(entry.items());
}

Json sums_json(const std::vector<AllReduceTime>& sums) {
  Json all = Json::array();
  for (const AllReduceTime& sum : sums) all.push_back({{"bytes", sum.bytes}, {"ms", sum.ms}});
  return all;
}

Json parallel_json(const BenchTrial& trial) {
  return {{"data", trial.plan.data}, {"tensor", trial.plan.tensor}, {"pipeline", trial.plan.pipeline}};
}

Json tasks_json(const std::vector<BenchTask>& tasks) {
  Json all = Json::array();
  for (const BenchTask& task : tasks)
    all.push_back({{"workload", to_string(task.workload)},
                   {"size", task.size},
                   {"test_name", task.name},
                   {"ranks", task.ranks}});
  return all;
}

/// Layer numbers in the report start at 1.
Json stages_json(const std::vector<LayerRange>& stages) {
  Json all = Json::array();
  for (const LayerRange& stage : stages) all.push_back({stage.first + 1, stage.end});
  return all;
}

}  // namespace

std::int64_t BenchEntry::items() const {
  return std::accumulate(shares.begin(), shares.end(), std::int64_t{0});
}

std::optional<double> BenchEntry::items_per_second() const {
  return step ? std::optional(static_cast<double>(items()) / step->p50 * 1e3) : std::nullopt;
}

std::optional<double> BenchEntry::efficiency() const {
  return speedup ? std::optional(*speedup / trial.devices()) : std::nullopt;
}

std::optional<double> BenchEntry::exposed_communication_share() const {
  return step && exposed_communication_ms ? std::optional(*exposed_communication_ms / step->p50)
                                          : std::nullopt;
}

std::optional<double> BenchEntry::sequence_speedup() const {
  return step && sequence_ms ? std::optional(*sequence_ms / step->p50) : std::nullopt;
}

std::optional<double> BenchEntry::loss_excess_percent() const {
  return loss && whole_loss ? std::optional(100 * (*loss / *whole_loss - 1)) : std::nullopt;
}

std::vector<const BenchEntry*> each_alone(const std::vector<BenchEntry>& entries, const BenchTrial& trial) {
  std::vector<const BenchEntry*> alone;
  for (const int rank : trial.ranks)
    for (const BenchEntry& one : entries)
      if (one.tells_of_one() && one.trial.name == trial.name && one.trial.has(rank)) alone.push_back(&one);
  if (alone.size() != trial.ranks.size()) alone.clear();
  return alone;
}

std::optional<double> slowness(const std::vector<BenchEntry>& entries, int rank,
                               const std::vector<int>& models, int fewest_tests) {
  const auto model_of = [&](int one) { return models[static_cast<std::size_t>(one)]; };
  std::map<std::string, double> own;
  std::map<std::string, std::vector<double>> others;
  for (const BenchEntry& one : entries) {
    if (!one.tells_of_one()) continue;
    if (one.trial.has(rank))
      own[one.trial.name] = one.own_ms;
    else if (model_of(one.trial.ranks.front()) == model_of(rank))
      others[one.trial.name].push_back(one.own_ms);
  }
  std::optional<double> least;
  int tests = 0;
  for (const auto& [test, ms] : own) {
    if (!others.contains(test)) continue;
    const double times = ms / median_of(others.at(test));
    least = std::min(least.value_or(times), times);
    ++tests;
  }
  return tests >= fewest_tests ? least : std::nullopt;
}

void complete(BenchEntry& entry, const std::vector<BenchEntry>& entries) {
  if (!entry.step) return;
  if (entry.trial.mode == BenchMode::single) {
    entry.speedup = 1;
    return;
  }
  if (entry.trial.tasks.size() > 1) return complete_tasks(entry, entries);
  for (const BenchEntry& whole : entries)
    if (entry.trial.mode == BenchMode::compressed && whole.trial.mode == BenchMode::collective &&
        whole.trial.name == entry.trial.name && whole.trial.ranks == entry.trial.ranks && whole.step) {
      entry.whole_step_ms = whole.step->p50;
      entry.whole_sent_bytes = whole.sent_bytes;
      entry.whole_loss = whole.loss;
    }
  const auto alone = each_alone(entries, entry.trial);
  if (alone.empty()) return;
  entry.speedup =
      *entry.items_per_second() / mean(alone, [](const BenchEntry& one) { return *one.items_per_second(); });
  if (entry.trial.mode == BenchMode::hetero) return;
  double slowest = *alone.front()->items_per_second();
  for (const BenchEntry* one : alone) slowest = std::min(slowest, *one->items_per_second());
  entry.efficiency_slowest = *entry.items_per_second() / (slowest * entry.trial.devices());
  if (entry.trial.mode != BenchMode::strong && entry.trial.tasks.empty() && !entry.trial.plan.is_split())
    entry.exposed_communication_ms =
        std::max(0.0, entry.step->p50 - mean(alone, [](const BenchEntry& one) { return one.step->p50; }));
}

PartReport report_of(const BenchEntry& entry) {
  const BenchTrial& trial = entry.trial;
  PartReport report;
  report.name = trial.name;
  report.description = describe(trial);
  report.success = entry.success();
  report.failure = entry.failure;
  report.of_all_ranks = true;
  const bool is_mlp = trial.workload == BenchWorkload::mlp, is_pipeline = trial.plan.pipeline > 1;
  report.figures = {
      {"workload", workload_text(trial)},
      {"size", trial.size},
      {"mode", mode_text(trial)},
      {"parallel", parallel_json(trial)},
      {"devices", trial.devices()},
      {"ranks", trial.ranks},
      {"precision", is_mlp ? Json(to_string(trial.precision)) : Json()},
      {"not_possible", entry.not_possible.empty() ? Json() : Json(entry.not_possible)},
      {"shares", entry.shares},
      {"step_ms", step_json(entry)},
      {"spread_percent", entry.step ? Json(entry.step->spread_percent()) : Json()},
      {"ms_per_batch", or_null(ms_per_batch(entry))},
      {"items", items_of(trial)},
      {"items_per_second", or_null(entry.items_per_second())},
      {"speedup", or_null(entry.speedup)},
      {"efficiency", or_null(entry.efficiency())},
      {"exposed_communication_ms", or_null(entry.exposed_communication_ms)},
      {"exposed_communication_share", or_null(entry.exposed_communication_share())},
      {"micro_batches", is_pipeline ? Json(trial.micro_batches) : Json()},
      {"stages", is_pipeline ? stages_json(entry.stages) : Json()},
      {"bubble_share", or_null(entry.bubble_share)},
      {"bubble_share_formula",
       is_pipeline ? Json(bubble_share(trial.plan.pipeline, trial.micro_batches)) : Json()},
      {"state_bytes", or_null(entry.state_bytes)},
      {"recommendation", entry.recommendation.empty() ? Json() : Json(entry.recommendation)},
      {"verified_against", entry.verified_against.empty() ? Json() : Json(entry.verified_against)},
      {"gradient_compression", is_mlp ? Json(to_string(trial.compression)) : Json()},
      {"sent_bytes", or_null(entry.sent_bytes)},
      {"whole_sent_bytes", or_null(entry.whole_sent_bytes)},
      {"whole_step_ms", or_null(entry.whole_step_ms)},
      {"loss", or_null(entry.loss)},
      {"whole_loss", or_null(entry.whole_loss)},
      {"loss_excess_percent", or_null(entry.loss_excess_percent())},
      {"tasks", trial.tasks.empty() ? Json() : tasks_json(trial.tasks)},
      {"sequence_ms", or_null(entry.sequence_ms)},
      {"sequence_speedup", or_null(entry.sequence_speedup())},
      {"moved_bytes", or_null(entry.moved_bytes)},
      {"memory_bytes", or_null(entry.memory_bytes)},
      {"gpu_utilization_percent", or_null(entry.gpu_utilization_percent)},
      {"power_w", or_null(entry.power_w)},
      {"sm_clock_mhz", or_null(entry.sm_clock_mhz)},
      {"tflops", or_null(entry.tflops)},
      {"gb_per_second", or_null(entry.gb_per_second)},
      {"ratio_copy_bandwidth", or_null(entry.ratio_copy_bandwidth)},
      {"even_items_per_second", or_null(entry.even_items_per_second)},
      {"efficiency_slowest", or_null(entry.efficiency_slowest)},
      {"compute_ms", or_null(entry.compute_ms)},
      {"sigma_ms", or_null(entry.sigma_ms)},
      {"all_reduce", entry.sums.empty() ? Json() : sums_json(entry.sums)},
  };
  return report;
}

std::string line_of(const BenchEntry& entry) {
  const std::string what = describe(entry.trial);
  if (!entry.not_possible.empty()) return fmt::format("{}: not possible: {}", what, entry.not_possible);
  if (!entry.step) return fmt::format("{}: failed: {}", what, entry.failure);
  std::string text = fmt::format("{}: {:.4g} ms per step, relative range {:.1f} %, {} {}/s", what,
                                 entry.step->p50, entry.step->spread_percent(),
                                 format_amount(*entry.items_per_second()), items_of(entry.trial));
  if (entry.trial.mode != BenchMode::single && entry.speedup)
    text += fmt::format(", speed-up {:.2f}", *entry.speedup);
  if (const auto speedup = entry.sequence_speedup())
    text += fmt::format(", {:.2f} over one job after the other", *speedup);
  if (entry.ratio_copy_bandwidth)
    text += fmt::format(", {:.0f} % of the copy bandwidth", 100 * *entry.ratio_copy_bandwidth);
  if (entry.even_items_per_second)
    text += fmt::format(", {} {}/s in equal shares", format_amount(*entry.even_items_per_second),
                        items_of(entry.trial));
  return entry.failure.empty() ? text : fmt::format("{}; failed: {}", text, entry.failure);
}

}  // namespace egt
