#include <fmt/format.h>

#include "command/options/option_parsers.hpp"
#include "command/options/option_table.hpp"
#include "egt/core/units.hpp"

namespace egt {
namespace {

using Text = std::string_view;

constexpr std::int64_t most_neurons = 1 << 20, most_samples = 1 << 20, most_global_samples = 1 << 30;
constexpr std::size_t most_layers = 64;
constexpr std::int64_t least_check_period = 3;
constexpr std::uint64_t least_io_size = 4096, most_io_size = 1ull << 50;

bool parse_run_duration(std::string_view text, Options& options) {
  auto seconds = parse_duration(text);
  if (seconds.ok()) options.burn.duration_seconds = seconds.value();
  return seconds.ok();
}

bool parse_layers(std::string_view text, Options& options) {
  std::vector<std::int64_t> layers;
  if (!parse_list(text, std::int64_t{1}, most_neurons, layers)) return false;
  if (layers.size() < 2 || layers.size() > most_layers) return false;
  options.burn.train.layers = std::move(layers);
  return true;
}

bool parse_global_batch(std::string_view text, Options& options) {
  std::int64_t samples = 0;
  if (!parse_integer(text, std::int64_t{1}, most_global_samples, samples)) return false;
  options.burn.global_batch = samples;
  return true;
}

bool parse_steps(std::string_view text, Options& options) {
  std::int64_t steps = 0;
  if (!parse_integer(text, std::int64_t{1}, std::int64_t{1'000'000'000'000}, steps)) return false;
  options.burn.steps = steps;
  return true;
}

bool parse_precision_name(std::string_view text, Options& options) {
  if (text != "cycle" && !parse_precision(text)) return false;
  return parse_text(text, options.burn.precision);
}

bool parse_optimizer(std::string_view text, Options& options) {
  static constexpr std::array<std::pair<std::string_view, Optimizer>, 2> names = {
      {{"sgd", Optimizer::sgd}, {"adam", Optimizer::adam}}};
  return parse_name(text, names, options.burn.train.optimizer);
}

bool parse_gradient_type(std::string_view text, Options& options) {
  static constexpr std::array<std::pair<std::string_view, ElementType>, 2> names = {
      {{"fp32", ElementType::f32}, {"bf16", ElementType::bf16}}};
  return parse_name(text, names, options.burn.train.gradient_type);
}

bool parse_learning_rate(std::string_view text, Options& options) {
  const auto rate = parse_number(text, 1e-12, 1000);
  if (rate) options.burn.train.learning_rate = *rate;
  return rate.has_value();
}

bool parse_memory(std::string_view text, Options& options) {
  auto fill = parse_size_or_share(text);
  if (fill.ok()) options.burn.memory.fill = fill.value();
  return fill.ok();
}

bool parse_io_size(std::string_view text, Options& options) {
  auto size = parse_size(text);
  if (!size.ok() || size.value() < least_io_size || size.value() > most_io_size) return false;
  options.burn.file.size = size.value();
  return true;
}

bool parse_io_budget(std::string_view text, Options& options) {
  if (text == "unlimited") {
    options.burn.file.budget.reset();
    return true;
  }
  auto size = parse_size(text);
  if (!size.ok() || size.value() < least_io_size) return false;
  options.burn.file.budget = size.value();
  return true;
}

/// Steps are under way behind the one that is begun, so fewer are none to check.
bool parse_check_every(std::string_view text, Options& options) {
  std::int64_t steps = 0;
  if (!parse_integer(text, std::int64_t{0}, std::int64_t{1'000'000'000}, steps)) return false;
  if (steps > 0 && steps < least_check_period) return false;
  options.burn.train.check_every = steps;
  return true;
}

bool parse_check_budget(std::string_view text, Options& options) {
  const auto share = parse_percent(text);
  if (!share.ok() || share.value() <= 0) return false;
  options.burn.train.check_budget = share.value();
  return true;
}

bool parse_inject(std::string_view text, Options& options) {
  auto injection = parse_injection(text);
  if (injection.ok()) options.run.injections.push_back(injection.value());
  return injection.ok();
}

std::vector<OptionRule> training_rules() {
  return {
      {"duration", of_burn | of_verify, "TIME",
       "how long, in s, m, h or d (5m); of verify 20s, on the host 10s",
       "a time above 0 and up to 3650d, such as 90s, 5m, 2h or 3d", parse_run_duration, true, false,
       explain_duration},
      {"steps", of_burn, "N", "stop after N training steps instead (none)",
       "a whole number of 1 to 1000000000000", parse_steps},
      {"layers", of_training, "N,N,..",
       "neurons of each layer, input first (4096,8192,6144,4096,2048,1024,512; host: "
       "256,512,384,256,128,64,32)",
       "2 to 64 whole numbers of 1 to 1048576, as 4096,8192,512", parse_layers},
      {"batch", of_training, "N", "samples a rank and step (1024; bench: 8192; host: 128)",
       "a whole number of 1 to 1048576",
       [](Text text, Options& o) {
         return parse_integer(text, std::int64_t{1}, most_samples, o.burn.train.batch);
       }},
      {"global-batch", of_burn, "N", "samples of all ranks a step, instead of --batch (none)",
       "a whole number of 1 to 1073741824", parse_global_batch},
      {"precision", of_training, "NAME",
       "cycle, fp64, fp32, tf32, fp16, bf16 or fp8 (cycle: all that the device has, in turn; bench: tf32, "
       "host: "
       "fp32)",
       "cycle, fp64, fp32, tf32, fp16, bf16 or fp8", parse_precision_name},
      {"optimizer", of_training, "sgd|adam", "how the weights are updated (sgd)", "sgd or adam",
       parse_optimizer},
      {"learning-rate", of_burn, "X", "step width of the optimizer (chosen from the layers)",
       "a number above 0 and up to 1000, such as 0.01", parse_learning_rate},
      {"gradient-dtype", of_training, "fp32|bf16", "type of the gradients that ranks sum (fp32)",
       "fp32 or bf16", parse_gradient_type},
      {"extreme-iterations", of_training, "N",
       "turns of transcendental functions an activation (200; host: 2; bench: 0)",
       "a whole number of 0 to 1000000",
       [](Text text, Options& o) {
         return parse_integer(text, 0, 1'000'000, o.burn.train.extreme_iterations);
       }},
      {"memory", of_load, "SHARE|SIZE",
       "how much of the device's memory to fill and verify (90%; host: 256MB; 0: none)",
       "a share of 0 to 100 %, or a size such as 72GB", parse_memory, true, false, explain_share_or_size},
      {"buffer-iterations", of_burn, "N",
       "turns of sine and exponential over the filled memory (300; host: 3)",
       "a whole number of 1 to 1000000",
       [](Text text, Options& o) {
         return parse_integer(text, 1, 1'000'000, o.burn.memory.buffer_iterations);
       }},
  };
}

std::vector<OptionRule> file_rules() {
  return {
      {"io-dir", of_load, "DIR", "where each rank's test file is written (the working directory)",
       "the path of a directory",
       [](Text text, Options& o) { return parse_text(text, o.burn.file.directory); }},
      {"io-size", of_load, "SIZE", "bytes of that file (10GB, host: 64MB, at most 5 % of the free space)",
       "a size of 4KiB to 1024TiB, such as 10GB", parse_io_size, true, false, explain_size},
      {"io-repeats", of_burn, "N", "times that it is written and read back a cycle (50; host: 2)",
       "a whole number of 1 to 1000000",
       [](Text text, Options& o) { return parse_integer(text, 1, 1'000'000, o.burn.file.repeats); }},
      {"io-every", of_burn, "N", "steps between the starts of cycles (10)",
       "a whole number of 1 to 1000000000",
       [](Text text, Options& o) {
         return parse_integer(text, std::int64_t{1}, std::int64_t{1'000'000'000}, o.burn.file.every);
       }},
      {"io-budget", of_burn, "SIZE", "bytes written at most, a rank and run, or unlimited (100GB)",
       "a size of 4KiB or more, such as 100GB, or unlimited", parse_io_budget, true, false, explain_size},
      {"no-io", of_load, nullptr, "no test files", flag_allowed,
       [](Text text, Options& o) {
         o.burn.file.enabled = false;
         return parse_flag(text);
       }},
  };
}

std::vector<OptionRule> check_rules() {
  return {
      {"check-budget", of_burn, "SHARE", "of the time that checks may take; how often they come follows (1%)",
       "a share above 0 and up to 100 %, such as 1%", parse_check_budget},
      {"check-every", of_burn, "N", "steps between checks, at least 3, whatever they take (0: by budget)",
       "0, or a whole number of 3 to 1000000000", parse_check_every},
      {"golden", of_burn, "FILE",
       "known answers of this stack: checked, or written where there are none (none)", "the path of a file",
       [](Text text, Options& o) { return parse_text(text, o.burn.train.golden); }},
      {.name = "inject",
       .commands = of_injections,
       .value = "SPEC",
       .help = "put in a fault on purpose, as below; may be given several times (none)",
       .allowed = "KIND:rank=R,step=S",
       .parse = parse_inject,
       .repeatable = true,
       .explain = [](Text text, const char*) { return parse_injection(text).status().what(); }},
  };
}

}  // namespace

std::vector<OptionRule> load_rules() {
  std::vector<OptionRule> all;
  for (const auto part : {training_rules, file_rules, check_rules})
    for (OptionRule& rule : part()) all.push_back(std::move(rule));
  return all;
}

}  // namespace egt
