#include <algorithm>

#include <fmt/format.h>

#include "egt/core/units.hpp"
#include "workload/bench/bench_workload.hpp"
#include "workload/bench/parallel/fused_input.hpp"
#include "workload/bench/parallel/split_job.hpp"

/// BenchSuite's trials of networks that are divided among devices.
namespace egt {
namespace {

/// Max state bytes over the devices that share these layers.
std::uint64_t largest_state(const MlpConfig& network, const ParallelPlan& plan, const LayerRange& layers) {
  std::uint64_t most = 0;
  for (int part = 0; part < plan.tensor; ++part) {
    const NetworkPart one{.neurons = network.neurons, .layers = layers, .tensor = plan.tensor, .part = part};
    most = std::max(most, state_bytes(one.local_neurons(), network.precisions.front(), network.optimizer,
                                      network.gradient_type));
  }
  return most;
}

/// Adds the fusion time to the first and the last layer, because both stages fuse the streams of a step.
Status add_fusion(Environment& environment, const MlpConfig& network, int micro_batches,
                  std::vector<double>& layer_ms) {
  EGT_TRY_ASSIGN(const auto fused, FusedInput::create(environment.device, environment.seed, network));
  EGT_TRY_ASSIGN(const double ms, fused->measure());
  layer_ms.front() += ms / micro_batches;
  layer_ms.back() += ms / micro_batches;
  return {};
}

}  // namespace

MlpConfig BenchSuite::network_of(const BenchEntry& entry) const {
  const TrainOptions& train = parts_.train;
  const std::int64_t global = entry.items();
  return {.neurons = train.layers,
          .batch = {.global = global},
          .precisions = {entry.trial.precision},
          .optimizer = train.optimizer,
          .learning_rate =
              train.learning_rate.value_or(default_learning_rate(train.layers, train.optimizer, global)),
          .gradient_type = train.gradient_type,
          .extreme_iterations = train.extreme_iterations,
          .seed = environment().seed};
}

/// Computes the state bytes per device, or why the trial is not possible.
Status BenchSuite::plan_network(BenchEntry& entry) {
  const BenchTrial& trial = entry.trial;
  if (trial.workload != BenchWorkload::mlp || !entry.not_possible.empty()) return {};
  const MlpConfig network = network_of(entry);
  const int layers = static_cast<int>(network.neurons.size()) - 1;
  entry.stages = {{0, layers}};
  if (trial.is_divided()) {
    entry.not_possible = SplitMlp::why_not(network, trial.plan);
    if (entry.not_possible.empty())
      entry.not_possible = why_not(trial.plan, network.neurons, entry.items(), trial.micro_batches);
    if (!entry.not_possible.empty()) return {};
    EGT_TRY(cut_network(entry, network));
    if (!entry.failure.empty() || !entry.not_possible.empty()) return {};
  }
  std::uint64_t most = 0;
  for (const LayerRange& stage : entry.stages)
    most = std::max(most, largest_state(network, trial.plan, stage));
  entry.state_bytes = static_cast<double>(most);
  const auto limit = parts_.bench.max_state_bytes;
  if (limit && most > *limit)
    entry.not_possible =
        fmt::format("{} of weights, moments and gradients on a device are more than --memory {}",
                    format_bytes(most), format_bytes(*limit));
  return {};
}

/// Divides the layers into stages by the layer times of the slowest device.
Status BenchSuite::cut_network(BenchEntry& entry, const MlpConfig& network) {
  const BenchTrial& trial = entry.trial;
  const std::size_t layers = network.neurons.size() - 1;
  if (trial.plan.pipeline == 1) return {};
  std::vector<double> ms(layers, 0);
  Status measured;
  if (trial.has(rank())) {
    const std::int64_t rows =
        std::max<std::int64_t>(1, network.batch.global / trial.plan.data / trial.micro_batches);
    auto own = measure_layers(environment().device, network, rows, environment().peer_timeout_seconds);
    measured = own.status();
    if (measured.ok()) ms = std::move(own.value());
    if (measured.ok() && trial.fuses) measured = add_fusion(environment(), network, trial.micro_batches, ms);
  }
  EGT_TRY(meet(measured, ms, "bench: measures layers"));
  if (!met_.failure.empty()) {
    entry.failure = fmt::format("its layers could not be measured: {}", met_.failure);
    return {};
  }
  for (std::size_t layer = 0; layer < layers; ++layer) ms[layer] = met_.max(layer);
  std::vector<std::uint64_t> bytes;
  for (int l = 0; l < static_cast<int>(layers); ++l)
    bytes.push_back(largest_state(network, trial.plan, {l, l + 1}));
  const auto cut = cut_stages(trial.plan, ms, bytes, parts_.bench.max_state_bytes);
  if (cut.ok())
    entry.stages = cut.value();
  else
    entry.not_possible = cut.status().what();
  return {};
}

Result<std::unique_ptr<BenchJob>> BenchSuite::make_split(const BenchEntry& entry) {
  const BenchTrial& trial = entry.trial;
  return make_split_job(environment(), *resources_.groups,
                        {.split = {.network = network_of(entry),
                                   .plan = trial.plan,
                                   .rank = rank() - trial.ranks.front(),
                                   .stages = entry.stages,
                                   .micro_batches = trial.micro_batches},
                         .trial = this->trial(),
                         .fuses = trial.fuses,
                         .max_state_bytes = parts_.bench.max_state_bytes},
                        reporter_);
}

/// The bubble is the share of a step outside a device's own work, minus exchanges and all-reduces.
void BenchSuite::take_split(BenchEntry& entry, const Measured& measured) const {
  const BenchTrial& trial = entry.trial;
  if (trial.plan.is_split())
    entry.exposed_communication_ms = measured.of_devices(trial, &RankFigures::communication_ms,
                                                         [](double a, double b) { return std::max(a, b); });
  const auto outside = measured.of_devices(trial, &RankFigures::outside_share, std::plus<double>());
  const auto exposed = entry.exposed_communication_share();
  if (trial.plan.pipeline > 1 && outside && exposed)
    entry.bubble_share = std::max(0.0, *outside / trial.devices() - *exposed);
  const auto compared =
      measured.of_devices(trial, &RankFigures::compared, [](double a, double b) { return std::min(a, b); });
  if (compared && entry.failure.empty())
    entry.verified_against =
        *compared > 0 ? "one device" : "its own repetition only: no room for the whole network";
}

}  // namespace egt
