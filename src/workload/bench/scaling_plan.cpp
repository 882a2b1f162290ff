#include "workload/bench/scaling_plan.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <fmt/format.h>

#include "egt/core/histogram.hpp"
#include "egt/core/units.hpp"
#include "workload/bench/task/task_trials.hpp"

namespace egt {

std::vector<int> first_ranks(int count) {
  std::vector<int> ranks(static_cast<std::size_t>(count));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

namespace {

constexpr double delivery_period_ms = 0.2;

/// Plans that divide a network among `ranks` by one dimension, and among all ranks also by two or three.
std::vector<ParallelPlan> splits(const BenchOptions& options, int ranks, bool all) {
  std::vector<ParallelPlan> plans;
  const bool tensor = options.measures(Parallel::tensor), pipeline = options.measures(Parallel::pipeline);
  const bool mixes = all && ranks > 2 && ranks % 2 == 0;
  if (tensor) plans.push_back({.tensor = ranks});
  if (tensor && mixes) plans.push_back({.data = ranks / 2, .tensor = 2});
  if (pipeline) plans.push_back({.pipeline = ranks});
  if (pipeline && mixes) plans.push_back({.data = ranks / 2, .pipeline = 2});
  if (tensor && pipeline && mixes && ranks % 4 == 0)
    plans.push_back({.data = ranks / 4, .tensor = 2, .pipeline = 2});
  return plans;
}

/// All configurations of one test.
void add_modes(const BenchTrial& test, const BenchOptions& options, int ranks,
               std::vector<BenchTrial>& plan) {
  const auto add = [&](BenchMode mode, std::vector<int> who) -> BenchTrial& {
    BenchTrial trial = test;
    trial.mode = mode;
    trial.ranks = std::move(who);
    trial.plan.data = trial.devices();
    return plan.emplace_back(std::move(trial));
  };
  const auto wanted = [&](BenchMode mode) {
    return options.measures(Parallel::data) &&
           std::find(options.modes.begin(), options.modes.end(), mode) != options.modes.end();
  };
  for (int rank = 0; rank < ranks; ++rank) add(BenchMode::single, {rank});
  const bool compares =
      wanted(BenchMode::collective) && options.compression.is_on() && test.workload == BenchWorkload::mlp;
  for (const BenchMode mode : {BenchMode::p2p, BenchMode::collective, BenchMode::compressed})
    if (mode == BenchMode::compressed ? compares : wanted(mode))
      for (const int count : device_counts(ranks)) {
        BenchTrial& trial = add(mode, first_ranks(count));
        if (mode == BenchMode::compressed) trial.compression = options.compression;
        if (compares && mode != BenchMode::p2p) trial.compared_steps = options.compared_steps;
      }
  if (wanted(BenchMode::hetero) && ranks > 1) add(BenchMode::hetero, first_ranks(ranks));
  if (wanted(BenchMode::strong) && test.workload == BenchWorkload::mlp)
    for (const int count : device_counts(ranks))
      if (count <= test.size) add(BenchMode::strong, first_ranks(count));
  if (test.workload != BenchWorkload::mlp) return;
  for (const int count : device_counts(ranks))
    for (const ParallelPlan& split : splits(options, count, count == ranks)) {
      BenchTrial& trial =
          add(split.pipeline > 1 ? BenchMode::pipeline : BenchMode::tensor, first_ranks(count));
      trial.plan = split;
      if (split.pipeline > 1)
        trial.micro_batches = options.micro_batches.value_or(micro_batches_a_stage * split.pipeline);
    }
}

/// Fusion followed by a network whose first stage uses its output: on one device, and as one pipeline.
void add_chains(const BenchOptions& options, std::vector<BenchTrial>& plan, int ranks) {
  if (!options.measures(Parallel::pipeline) ||
      std::find(options.workloads.begin(), options.workloads.end(), BenchWorkload::multimodal) ==
          options.workloads.end())
    return;
  std::vector<BenchTrial> chains;
  for (const BenchTrial& trial : plan)
    if (trial.workload == BenchWorkload::mlp && trial.plan.data == 1 && trial.plan.tensor == 1 &&
        (trial.mode == BenchMode::single || trial.plan.pipeline == ranks)) {
      BenchTrial& chain = chains.emplace_back(trial);
      chain.fuses = true;
      chain.name = "multimodal to " + trial.name;
    }
  plan.insert(plan.end(), chains.begin(), chains.end());
}

std::vector<BenchTrial> tests_of(BenchWorkload workload, const BenchOptions& options, std::int64_t mlp_batch,
                                 const std::vector<Precision>& precisions) {
  std::vector<BenchTrial> tests;
  const auto add = [&](std::int64_t size, std::string name) {
    tests.emplace_back().workload = workload;
    tests.back().size = size;
    tests.back().name = std::move(name);
  };
  switch (workload) {
    case BenchWorkload::mlp:
      for (const Precision precision : precisions) {
        const std::string which = precisions.size() > 1 ? fmt::format(" {}", to_string(precision)) : "";
        add(mlp_batch, fmt::format("mlp batch {}{}", mlp_batch, which));
        tests.back().precision = precision;
      }
      break;
    case BenchWorkload::multimodal:
      for (const std::int64_t batch : options.batches) add(batch, fmt::format("multimodal batch {}", batch));
      break;
    case BenchWorkload::voxelize:
      for (const std::int64_t points : options.points) add(points, fmt::format("voxelize {} points", points));
      break;
  }
  return tests;
}

}  // namespace

std::vector<int> device_counts(int ranks) {
  std::vector<int> counts;
  for (int count = 2; count < ranks; count *= 2) counts.push_back(count);
  if (ranks > 1) counts.push_back(ranks);
  return counts;
}

std::vector<BenchTrial> plan_trials(const BenchOptions& options, std::int64_t mlp_batch,
                                    const std::vector<Precision>& precisions, int ranks) {
  std::vector<BenchTrial> plan;
  for (const BenchWorkload workload : options.workloads) {
    // Only mlp has layers.
    if (workload != BenchWorkload::mlp && !options.measures(Parallel::data) &&
        !options.measures(Parallel::task))
      continue;
    for (const BenchTrial& test : tests_of(workload, options, mlp_batch, precisions))
      add_modes(test, options, ranks, plan);
  }
  add_chains(options, plan, ranks);
  // The max size of each workload whose batches need no data of other devices.
  std::vector<BenchTask> jobs;
  for (const BenchTrial& trial : plan)
    if (trial.workload != BenchWorkload::mlp && trial.mode == BenchMode::single &&
        options.measures(Parallel::task)) {
      if (jobs.empty() || jobs.back().workload != trial.workload) jobs.emplace_back();
      if (trial.size > jobs.back().size) jobs.back() = {trial.workload, trial.size, trial.name};
    }
  for (BenchTrial& trial : plan_tasks(jobs, ranks)) plan.push_back(std::move(trial));
  return plan;
}

std::string to_string(const GradientCompression& compression) {
  if (compression.top_k_share > 0) return fmt::format("topk:{:.15g}%", 100 * compression.top_k_share);
  return compression.is_on() ? "bf16" : "none";
}

std::optional<GradientCompression> parse_compression(std::string_view text) {
  constexpr std::string_view largest = "topk:";
  if (text == "none") return GradientCompression();
  if (text == "bf16") return GradientCompression{.type = ElementType::bf16};
  const auto share = parse_percent(text.substr(std::min(text.size(), largest.size())));
  if (!text.starts_with(largest) || !share.ok() || share.value() < 1e-7 || share.value() > 1) return {};
  return GradientCompression{.top_k_share = share.value()};
}

std::string mode_text(const BenchTrial& trial) {
  if (trial.tasks.size() == 1) return "sequence";
  if (trial.compression.is_on()) return fmt::format("collective {}", to_string(trial.compression));
  return trial.plan.is_split() ? to_string(trial.plan) : std::string(to_string(trial.mode));
}

std::string describe(const BenchTrial& trial) {
  if (trial.mode == BenchMode::single)
    return fmt::format("{}: rank {} alone", trial.name, trial.ranks.front());
  return fmt::format("{}: {} devices, {}", trial.name, trial.devices(), mode_text(trial));
}

std::string_view workload_text(const BenchTrial& trial) {
  return trial.tasks.size() > 1 ? "task" : to_string(trial.workload);
}

const char* items_of(const BenchTrial& trial) {
  return trial.tasks.size() > 1 ? "batches" : items_of(trial.workload);
}

const char* items_of(BenchWorkload workload) {
  return workload == BenchWorkload::voxelize ? "points" : "samples";
}

/// The remainder goes to the devices with the max loss by rounding down.
std::vector<std::int64_t> share_load(std::int64_t total, const std::vector<double>& speeds,
                                     std::int64_t unit) {
  total /= unit;
  const double sum = std::accumulate(speeds.begin(), speeds.end(), 0.0);
  const auto count = static_cast<std::int64_t>(speeds.size());
  const std::int64_t least = total >= count ? 1 : 0;
  std::vector<std::int64_t> shares;
  std::vector<double> lost;
  std::int64_t left = total;
  for (const double speed : speeds) {
    const double exact = static_cast<double>(total) * speed / sum;
    shares.push_back(std::max(least, static_cast<std::int64_t>(exact)));
    lost.push_back(exact - static_cast<double>(shares.back()));
    left -= shares.back();
  }
  for (; left > 0; --left) {
    const auto most = static_cast<std::size_t>(std::max_element(lost.begin(), lost.end()) - lost.begin());
    ++shares[most];
    lost[most] -= 1;
  }
  for (; left < 0; ++left) --*std::max_element(shares.begin(), shares.end());  // `least` exceeded the total
  for (std::int64_t& share : shares) share *= unit;
  return shares;
}

LoopPlan plan_loop(double step_ms, double trial_seconds, std::int64_t multiple) {
  step_ms = std::max(step_ms, 1e-6);  // the clock may be too coarse for one step
  const double trial_ms = trial_seconds * 1e3, burst_ms = burst_seconds * 1e3;
  const auto steps = static_cast<std::int64_t>(std::min(trial_ms / usual_chunks, burst_ms) / step_ms);
  LoopPlan plan;
  plan.per_chunk = std::max<std::int64_t>(1, (steps + multiple - 1) / multiple) * multiple;
  const double chunk_ms = static_cast<double>(plan.per_chunk) * step_ms;
  plan.chunks = static_cast<int>(std::max<double>(std::round(trial_ms / chunk_ms), fewest_chunks));
  plan.per_burst = static_cast<int>(std::clamp<double>(std::floor(burst_ms / chunk_ms), 1, usual_chunks));
  return plan;
}

ScalingTimes step_times(std::vector<double> ms) {
  std::sort(ms.begin(), ms.end());
  const std::size_t count = ms.size();
  const auto rank95 = static_cast<std::size_t>(std::ceil(0.95 * static_cast<double>(count)));
  return {.min = ms.front(),
          .p50 = median_of(ms),
          .p95 = ms[std::clamp<std::size_t>(rank95, 1, count) - 1],
          .max = ms.back()};
}

void WarmUp::add(double step_ms) {
  const std::int64_t made = iterations();
  const std::int64_t wanted = plan_loop(step_ms, trial_seconds_, multiple_).per_chunk;
  const bool full = 2 * made >= wanted;  // about as long as a chunk
  const bool agrees = std::abs(step_ms - step_ms_) <= agreement * step_ms_;
  ++rounds_;
  spent_ms_ += static_cast<double>(made) * step_ms;
  over_ = rounds_ >= fewest_rounds && ((full && agrees) || spent_ms_ >= max_seconds * 1e3);
  step_ms_ = step_ms;
  iterations_ = std::min(wanted, growth * made);
}

std::int64_t batches_per_delivery(double step_ms, std::size_t bytes_per_batch) {
  std::int64_t batches = 1;
  while (batches < max_batches_per_delivery && static_cast<double>(batches) * step_ms < delivery_period_ms &&
         2 * static_cast<std::size_t>(batches) * bytes_per_batch <= max_delivery_bytes)
    batches *= 2;
  return batches;
}

}  // namespace egt
