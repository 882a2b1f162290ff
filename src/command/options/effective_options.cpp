#include "command/options/options.hpp"

#include <string>
#include <vector>

#include <fmt/format.h>

#include "command/options/option_table.hpp"
#include "egt/core/json_access.hpp"

namespace egt {
namespace {

Json size_or_share_json(const SizeOrShare& fill) {
  return fill.is_share ? Json(fmt::format("{}%", fill.share * 100)) : Json(fill.bytes);
}

Json texts_of(const std::vector<Injection>& injections) {
  Json texts = Json::array();
  for (const Injection& injection : injections) texts.push_back(to_text(injection));
  return texts;
}

/// Those of every command that trains.
Json training_options(const BurnOptions& burn) {
  return {{"layers", burn.train.layers},
          {"batch", burn.global_batch ? Json() : Json(burn.train.batch)},
          {"precision", burn.precision},
          {"optimizer", burn.train.optimizer == Optimizer::adam ? "adam" : "sgd"},
          {"gradient-dtype", burn.train.gradient_type == ElementType::bf16 ? "bf16" : "fp32"},
          {"extreme-iterations", burn.train.extreme_iterations}};
}

/// Those of every command that loads the devices with all parts.
Json load_options(const BurnOptions& burn) {
  return {{"memory", size_or_share_json(burn.memory.fill)},
          {"no-io", !burn.file.enabled},
          {"io-dir", burn.file.directory},
          {"io-size", burn.file.size}};
}

/// Those of every command that runs on devices.
Json run_options(const RunOptions& run) {
  return {{"temperature-limit", run.guard.temperature_limit_c},
          {"memory-limit", run.guard.memory_limit},
          {"throttle-limit", run.guard.throttle_limit},
          {"corrected-limit", or_null(run.guard.corrected_limit)},
          {"collective-timeout", run.watch.collective_timeout_seconds},
          {"max-restarts", run.watch.max_restarts}};
}

/// Those of burn, of which verify has its own.
Json burn_options(const BurnOptions& burn) {
  return {{"duration", or_null(burn.duration_seconds)},
          {"steps", or_null(burn.steps)},
          {"global-batch", or_null(burn.global_batch)},
          {"learning-rate", or_null(burn.train.learning_rate)},
          {"buffer-iterations", burn.memory.buffer_iterations},
          {"io-repeats", burn.file.repeats},
          {"io-every", burn.file.every},
          {"io-budget", burn.file.budget ? Json(*burn.file.budget) : Json("unlimited")},
          {"check-every", burn.train.check_every},
          {"check-budget", burn.train.check_budget},
          {"golden", burn.train.golden.empty() ? Json() : Json(burn.train.golden)},
          {"fail-fast", burn.fail_fast},
          {"epoch-steps", burn.train.epoch_steps}};
}

/// Those of links.
Json link_options(const LinksOptions& links) {
  return {{"size", links.size}, {"repeats", links.repeats}, {"warn-below", links.warn_below}};
}

template <typename T>
Json names_of(const std::vector<T>& values) {
  Json names = Json::array();
  for (const T value : values) names.push_back(to_string(value));
  return names;
}

Json bench_options(const BenchOptions& bench) {
  return {{"workload", names_of(bench.workloads)},
          {"mode", names_of(bench.modes)},
          {"points", bench.points},
          {"grid", bench.grid},
          {"batches", bench.batches},
          {"streams", to_string(bench.streams)},
          {"trial-time", bench.trial_seconds}};
}

}  // namespace

Json effective_options(const Options& options) {
  const CommonOptions& common = options.common;
  Json json = {{"command", options.command},
               {"devices", common.devices},
               {"seed", common.seed},
               {"metrics-sample-rate", common.metrics_sample_rate}};
  constexpr const char* backends[] = {"auto", "cuda", "host"};
  json["backend"] = backends[static_cast<int>(common.backend)];
  const BurnOptions& burn = options.burn;
  if (knows(options.command, of_runs)) json.update(run_options(options.run));
  if (knows(options.command, of_training)) json.update(training_options(burn));
  if (knows(options.command, of_load)) json.update(load_options(burn));
  if (knows(options.command, of_injections)) json["inject"] = texts_of(options.run.injections);
  if (knows(options.command, of_burn | of_verify)) json.update(burn_options(burn));
  if (knows(options.command, of_bench)) json.update(bench_options(options.bench));
  if (knows(options.command, of_links)) json.update(link_options(options.links));
  return json;
}

}  // namespace egt
