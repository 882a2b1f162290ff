#include "model/parallel/parallel_plan.hpp"

#include <algorithm>
#include <limits>
#include <numeric>

#include <fmt/format.h>

#include "egt/core/units.hpp"
#include "model/parameter_layout.hpp"

namespace egt {

std::string to_string(const ParallelPlan& plan) {
  std::vector<std::pair<const char*, int>> parts = {
      {"pipeline", plan.pipeline}, {"tensor", plan.tensor}, {"data", plan.data}};
  std::erase_if(parts, [](const auto& part) { return part.second == 1; });
  if (parts.empty()) return "one device";
  if (parts.size() == 1) return parts.front().first;
  std::string text;
  for (const auto& [name, size] : parts)
    text += fmt::format("{}{} {}", text.empty() ? "" : " x ", name, size);
  return text;
}

ParallelPlace place_of(const ParallelPlan& plan, int rank) {
  return {.data = rank / plan.tensor % plan.data,
          .tensor = rank % plan.tensor,
          .stage = rank / plan.tensor / plan.data};
}

int rank_of(const ParallelPlan& plan, const ParallelPlace& place) {
  return (place.stage * plan.data + place.data) * plan.tensor + place.tensor;
}

NeuronRange part_of(std::int64_t neurons, int parts, int part) {
  const std::int64_t first = neurons * part / parts;
  return {first, neurons * (part + 1) / parts - first};
}

LayerSplit split_of(int layer, int layers, int tensor) {
  if (tensor == 1 || (layer == layers - 1 && layers % 2 == 1)) return LayerSplit::none;
  return layer % 2 == 0 ? LayerSplit::by_outputs : LayerSplit::by_inputs;
}

NeuronRange NetworkPart::outputs(std::size_t l) const {
  const std::int64_t whole = neurons[static_cast<std::size_t>(layers.first) + l + 1];
  return split(l) == LayerSplit::by_outputs ? part_of(whole, tensor, part) : NeuronRange{0, whole};
}

NeuronRange NetworkPart::inputs(std::size_t l) const {
  const std::int64_t whole = neurons[static_cast<std::size_t>(layers.first) + l];
  return split(l) == LayerSplit::by_inputs ? part_of(whole, tensor, part) : NeuronRange{0, whole};
}

std::vector<std::int64_t> NetworkPart::local_neurons() const {
  std::vector<std::int64_t> local = {inputs(0).count};
  for (std::size_t l = 0; l < static_cast<std::size_t>(layers.count()); ++l)
    local.push_back(outputs(l).count);
  return local;
}

std::uint64_t state_bytes(const std::vector<std::int64_t>& neurons, Precision precision, Optimizer optimizer,
                          ElementType gradient_type) {
  const std::size_t moments = optimizer == Optimizer::adam ? 2 : 1;
  const ElementType copy = activation_type(precision);
  const bool keeps_copy = copy != ElementType::f32 && precision != Precision::fp8;
  const std::size_t bytes =
      (1 + moments) * sizeof(float) + size_of(gradient_type) + (keeps_copy ? size_of(copy) : 0);
  return static_cast<std::uint64_t>(ParameterLayout(neurons).size()) * bytes;
}

std::string why_not(const ParallelPlan& plan, const std::vector<std::int64_t>& neurons, std::int64_t batch,
                    int micro_batches) {
  const int layers = static_cast<int>(neurons.size()) - 1;
  const int units = plan.tensor > 1 ? (layers + 1) / 2 : layers;
  if (units < plan.pipeline)
    return fmt::format("{} {} are too few for {} stages", units,
                       plan.tensor > 1 ? "pairs of layers" : "layers", plan.pipeline);
  for (int l = 0; l < layers; ++l)
    if (const std::int64_t outputs = neurons[static_cast<std::size_t>(l) + 1];
        split_of(l, layers, plan.tensor) == LayerSplit::by_outputs && outputs < plan.tensor)
      return fmt::format("layer {} has {} outputs, too few for {} parts", l + 1, outputs, plan.tensor);
  if (batch < std::int64_t{plan.data} * micro_batches)
    return fmt::format("{} samples are too few for {} micro-batches", batch, plan.data * micro_batches);
  return {};
}

/// Dynamic programming over s: the best cut of the first u units into s stages, for all u.
Result<std::vector<LayerRange>> cut_stages(const ParallelPlan& plan, const std::vector<double>& layer_ms,
                                           const std::vector<std::uint64_t>& layer_bytes,
                                           std::optional<std::uint64_t> max_bytes) {
  constexpr double never = std::numeric_limits<double>::infinity();
  const std::size_t layers = layer_ms.size(), step = plan.tensor > 1 ? 2 : 1;
  const std::size_t units = (layers + step - 1) / step;
  const auto stages = static_cast<std::size_t>(plan.pipeline);
  const auto layer_of = [&](std::size_t unit) { return std::min(unit * step, layers); };
  const auto stage_ms = [&](std::size_t from, std::size_t to) {
    const auto sum = [&](const auto& figures) {
      return std::accumulate(figures.begin() + static_cast<std::ptrdiff_t>(layer_of(from)),
                             figures.begin() + static_cast<std::ptrdiff_t>(layer_of(to)),
                             typename std::decay_t<decltype(figures)>::value_type{});
    };
    return max_bytes && sum(layer_bytes) > *max_bytes ? never : sum(layer_ms);
  };
  std::vector<double> best(units + 1, never);
  std::vector<std::vector<std::size_t>> from(stages, std::vector<std::size_t>(units + 1));
  best[0] = 0;
  for (std::size_t s = 0; s < stages; ++s) {
    std::vector<double> next(units + 1, never);
    for (std::size_t to = s + 1; to <= units; ++to)
      for (std::size_t at = s; at < to; ++at)
        if (const double ms = std::max(best[at], stage_ms(at, to)); ms < next[to]) {
          next[to] = ms;
          from[s][to] = at;
        }
    best = std::move(next);
  }
  if (best[units] == never)
    return Status(StatusCode::invalid_argument,
                  fmt::format("no cut into {} stages keeps each device's state within --memory {}", stages,
                              format_bytes(static_cast<double>(max_bytes.value_or(0)))));
  std::vector<LayerRange> cut(stages);
  for (std::size_t s = stages, to = units; s-- > 0; to = from[s][to])
    cut[s] = {static_cast<int>(layer_of(from[s][to])), static_cast<int>(layer_of(to))};
  return cut;
}

double bubble_share(int stages, int micro_batches) {
  return static_cast<double>(stages - 1) / (micro_batches + stages - 1);
}

}  // namespace egt
