#include "workload/bench/scaling_forecast.hpp"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "egt/core/json_access.hpp"
#include "model/mlp_config.hpp"
#include "model/parameter_layout.hpp"

namespace egt {
namespace {

constexpr std::pair<BenchMode, Growth> forecast_modes[] = {{BenchMode::collective, Growth::weak},
                                                           {BenchMode::strong, Growth::strong}};

/// Of those it has not seen the one that it misses most.
std::optional<double> worst_error(const std::vector<BenchEntry>& entries, const std::string& test) {
  std::optional<double> worst;
  for (const BenchEntry& entry : entries)
    if (const auto error = entry.forecast_error_percent(); error && entry.trial.name == test)
      if (!worst || std::abs(*error) > std::abs(*worst)) worst = error;
  return worst;
}

/// That was measured, and nothing was wrong; null: there is none.
const BenchEntry* find(const std::vector<BenchEntry>& entries, const std::string& test, BenchMode mode,
                       const std::vector<int>& ranks) {
  for (const BenchEntry& entry : entries)
    if (entry.trial.name == test && entry.trial.mode == mode && entry.trial.ranks == ranks && entry.step &&
        entry.success())
      return &entry;
  return nullptr;
}

struct Fitted {
  std::optional<ScalingModel> model;
  ScalingInputs inputs;
  std::string why_not;  ///< where there is none
};

Fitted fit(const std::vector<BenchEntry>& entries, const std::string& test,
           const std::vector<std::int64_t>& layers) {
  const BenchEntry* const first = find(entries, test, BenchMode::single, {0});
  const BenchEntry* const second = find(entries, test, BenchMode::single, {1});
  const BenchEntry* const both = find(entries, test, BenchMode::collective, {0, 1});
  const BenchEntry* const halves = find(entries, test, BenchMode::strong, {0, 1});
  Fitted fitted;
  if (!first || !second || !both) {
    fitted.why_not =
        fmt::format("{} not measured; it wants 2 ranks or more and the modes single and collective",
                    !first    ? "rank 0 alone was"
                    : !second ? "a second rank alone was"
                              : "2 devices in the mode collective were");
    return fitted;
  }
  const BenchEntry& slowest = first->step->p50 > second->step->p50 ? *first : *second;
  fitted.inputs = {.batch = static_cast<double>(slowest.trial.size),
                   .alone_ms = slowest.step->p50,
                   .sigma_ms = slowest.sigma_ms.value_or(0),
                   .two_ms = both->step->p50,
                   .half_share = std::nullopt,
                   .sums = both->sums,
                   .summed_bytes = both->sums.empty() ? 0 : both->sums.front().bytes,
                   .sums_per_step = sums_per_step(layers),
                   .overlap_share = overlap_share(layers)};
  if (halves && halves->compute_ms && slowest.compute_ms.value_or(0) > 0)
    fitted.inputs.half_share = *halves->compute_ms / *slowest.compute_ms;
  Result<ScalingModel> model = ScalingModel::fit(fitted.inputs);
  if (model.ok())
    fitted.model = std::move(model.value());
  else
    fitted.why_not = model.status().what();
  return fitted;
}

Json parameters(const Fitted& fitted) {
  const ScalingInputs& inputs = fitted.inputs;
  const Fabric& fabric = fitted.model->fabric();
  return {{"alpha_us", fabric.alpha_ms * 1e3},
          {"beta_ns_per_byte", fabric.beta_ms_per_byte * 1e6},
          {"summed_bytes", inputs.summed_bytes},
          {"sums_per_step", inputs.sums_per_step},
          {"ring_ms_of_2", fitted.model->ring_ms(2)},
          {"overlap_share", inputs.overlap_share},
          {"slowest_alone_ms", inputs.alone_ms},
          {"sigma_ms", inputs.sigma_ms},
          {"half_batch_share", or_null(inputs.half_share)},
          {"pair_ms", fitted.model->pair_ms()}};
}

/// As an entry tells it, with what a forecast can tell.
Json row(const Fitted& fitted, const std::string& test, BenchMode mode, int ranks, double step_ms) {
  const double batches = mode == BenchMode::strong ? 1 : ranks;
  return {{"forecast", true},
          {"test_name", test},
          {"workload", to_string(BenchWorkload::mlp)},
          {"mode", to_string(mode)},
          {"devices", ranks},
          {"step_ms", {{"p50", step_ms}}},
          {"items", items_of(BenchWorkload::mlp)},
          {"items_per_second", batches * fitted.inputs.batch / step_ms * 1e3},
          {"efficiency_slowest", batches * fitted.inputs.alone_ms / (step_ms * ranks)},
          {"success", true}};
}

/// Those of a mode that was measured.
void add_rows(const Fitted& fitted, std::vector<BenchEntry>& entries, const std::string& test, BenchMode mode,
              Growth growth, Json& rows) {
  int measured = 0;
  for (BenchEntry& entry : entries) {
    if (entry.trial.name != test || entry.trial.mode != mode) continue;
    const int devices = entry.trial.devices();
    measured = std::max(measured, devices);
    // The step of 2 devices that have a batch each is what was fitted.
    if (growth == Growth::strong || devices > 2)
      entry.forecast_step_ms = fitted.model->step_ms(growth, devices);
  }
  if (measured == 0) return;
  for (int ranks = first_forecast_ranks; ranks <= most_forecast_ranks; ranks *= 2)
    if (const auto step_ms = fitted.model->step_ms(growth, ranks); step_ms && ranks > measured)
      rows.push_back(row(fitted, test, mode, ranks, *step_ms));
}

}  // namespace

double sums_per_step(const std::vector<std::int64_t>& layers) {
  return 1 + static_cast<double>(ParameterLayout(layers).buckets().size());
}

/// Products by their operations, as flops_per_sample counts them: of a pass, 2 * inputs * outputs for each
/// layer's output, weight gradient and (but for the first layer) input gradient. Until the first bucket can
/// be summed all outputs are made, its own weight gradients, and the input gradients down to its lowest
/// layer.
double overlap_share(const std::vector<std::int64_t>& layers) {
  const ParameterLayout layout(layers);
  const auto flops = [](std::int64_t inputs, std::int64_t outputs) {
    return 2 * static_cast<double>(inputs) * static_cast<double>(outputs);
  };
  const GradientBucket& first = layout.buckets().front();
  double before = 0;
  for (const LinearLayer& layer : layout.layers()) before += flops(layer.inputs, layer.outputs);
  for (const GradientPiece& piece : first.pieces)
    before += flops(layout.layers()[static_cast<std::size_t>(piece.layer)].inputs, piece.rows);
  const auto lowest = static_cast<std::size_t>(first.pieces.back().layer);
  for (std::size_t l = std::max<std::size_t>(lowest, 1); l < layout.layers().size(); ++l)
    before += flops(layout.layers()[l].inputs, layout.layers()[l].outputs);
  return std::max(0.0, 1 - before / flops_per_sample(layers));
}

std::vector<PartReport> forecast(std::vector<BenchEntry>& entries, const std::vector<std::int64_t>& layers) {
  std::vector<std::string> tests;
  for (const BenchEntry& entry : entries)
    if (entry.trial.workload == BenchWorkload::mlp && !entry.trial.fuses &&
        (tests.empty() || tests.back() != entry.trial.name))
      tests.push_back(entry.trial.name);
  std::vector<PartReport> reports;
  for (const std::string& test : tests) {
    const Fitted fitted = fit(entries, test, layers);
    Json rows = Json::array();
    if (fitted.model)
      for (const auto& [mode, growth] : forecast_modes) add_rows(fitted, entries, test, mode, growth, rows);
    PartReport& report = reports.emplace_back();
    report.name = test + " forecast";
    report.description = "a model fitted on 1 and 2 devices; nothing here was measured on more";
    report.of_all_ranks = true;
    report.figures = {{"forecast", true},
                      {"forecast_of", test},
                      {"no_forecast", fitted.model ? Json() : Json(fitted.why_not)},
                      {"forecast_error_percent", or_null(worst_error(entries, test))},
                      {"model", fitted.model ? parameters(fitted) : Json()},
                      {"rows", std::move(rows)}};
  }
  return reports;
}

}  // namespace egt
