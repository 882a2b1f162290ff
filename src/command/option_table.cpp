#include "option_table.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <initializer_list>
#include <optional>

#include <fmt/format.h>

#include "egt/core/units.hpp"

namespace egt {
namespace {

constexpr std::int64_t most_neurons = 1 << 20, most_samples = 1 << 20, most_global_samples = 1 << 30;
constexpr std::size_t most_layers = 64;
constexpr std::uint64_t least_io_size = 4096, most_io_size = 1ull << 50;

/// A whole number in [low, high] and nothing else.
template <typename T>
bool parse_integer(std::string_view text, T low, T high, T& value) {
  T parsed{};
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), parsed);
  if (error != std::errc() || stop != text.data() + text.size() || parsed < low || parsed > high)
    return false;
  value = parsed;
  return true;
}

/// A finite number in [low, high].
std::optional<double> parse_number(std::string_view text, double low, double high) {
  double parsed = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), parsed);
  if (error != std::errc() || stop != text.data() + text.size() || !std::isfinite(parsed))
    return std::nullopt;
  if (parsed < low || parsed > high) return std::nullopt;
  return parsed;
}

/// "1,2,3", each in [low, high].
template <typename T>
bool parse_list(std::string_view text, T low, T high, std::vector<T>& values) {
  std::vector<T> parsed;
  while (true) {
    const std::size_t comma = text.find(',');
    if (!parse_integer(text.substr(0, comma), low, high, parsed.emplace_back())) return false;
    if (comma == std::string_view::npos) break;
    text.remove_prefix(comma + 1);
  }
  values = std::move(parsed);
  return true;
}

/// One of some names.
template <typename T, std::size_t N>
bool parse_name(std::string_view text, const std::array<std::pair<std::string_view, T>, N>& names, T& value) {
  for (const auto& [name, meaning] : names)
    if (name == text) {
      value = meaning;
      return true;
    }
  return false;
}

bool parse_text(std::string_view text, std::string& value) {
  if (text.empty() || text.find('\0') != std::string_view::npos) return false;
  value = text;
  return true;
}

/// Every flag is given bare, or in a config file as true.
bool parse_flag(std::string_view text) {
  return text == "true";
}

bool parse_backend(std::string_view text, Options& options) {
  static constexpr std::array<std::pair<std::string_view, Backend>, 3> names = {
      {{"auto", Backend::automatic}, {"cuda", Backend::cuda}, {"host", Backend::host}}};
  return parse_name(text, names, options.common.backend);
}

bool parse_progress(std::string_view text, Options& options) {
  static constexpr std::array<std::pair<std::string_view, ProgressStyle>, 4> names = {
      {{"auto", ProgressStyle::automatic},
       {"bar", ProgressStyle::bar},
       {"lines", ProgressStyle::lines},
       {"none", ProgressStyle::none}}};
  return parse_name(text, names, options.common.progress);
}

bool parse_message_level(std::string_view text, Options& options) {
  const auto level = parse_log_level(text);
  if (level) options.common.log_level = *level;
  return level.has_value();
}

bool parse_rate(std::string_view text, Options& options) {
  const auto seconds = parse_number(text, 0.1, 3600);
  if (seconds) options.common.metrics_sample_rate = *seconds;
  return seconds.has_value();
}

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

bool parse_check_budget(std::string_view text, Options& options) {
  const auto share = parse_percent(text);
  if (!share.ok() || share.value() <= 0) return false;
  options.burn.train.check_budget = share.value();
  return true;
}

bool parse_temperature_limit(std::string_view text, Options& options) {
  const auto limit = parse_number(text, 30, 110);
  if (limit) options.burn.guard.temperature_limit_c = *limit;
  return limit.has_value();
}

/// A share in [low, 100 %].
bool parse_share(std::string_view text, double low, double& value) {
  const auto share = parse_percent(text);
  if (!share.ok() || share.value() < low) return false;
  value = share.value();
  return true;
}

bool parse_corrected_limit(std::string_view text, Options& options) {
  std::uint64_t errors = 0;
  if (!parse_integer(text, std::uint64_t{0}, std::uint64_t{1'000'000'000'000}, errors)) return false;
  options.burn.guard.corrected_limit = errors;
  return true;
}

bool parse_collective_timeout(std::string_view text, Options& options) {
  const auto seconds = parse_duration(text);
  if (!seconds.ok() || seconds.value() < 1 || seconds.value() > 3600) return false;
  options.burn.watch.collective_timeout_seconds = seconds.value();
  return true;
}

bool parse_inject(std::string_view text, Options& options) {
  auto injection = parse_injection(text);
  if (injection.ok()) options.burn.injections.push_back(injection.value());
  return injection.ok();
}

using Text = std::string_view;

std::vector<OptionRule> common_rules() {
  constexpr auto group = OptionGroup::common;
  return {
      {"backend", group, "auto|cuda|host", "what computes (auto: cuda where a GPU answers, else host)",
       "auto, cuda or host", parse_backend},
      {"devices", group, "0,2", "the device of each local rank (default: device = local rank)",
       "device numbers of 0 to 1023, as 0,2",
       [](Text text, Options& o) { return parse_list(text, 0, 1023, o.common.devices); }},
      {"output", group, "DIR", "the run directory (default: extreme_gpu_trainer_runs/<UTC time>)",
       "the path of a directory", [](Text text, Options& o) { return parse_text(text, o.common.output); }},
      {"config", group, "FILE", "options by long name from a TOML file; the command line is stronger (none)",
       "the path of a TOML file", [](Text text, Options&) { return !text.empty(); }, false},
      {"seed", group, "N", "all random numbers and patterns follow from it (1)",
       "a whole number of 0 to 18446744073709551615",
       [](Text text, Options& o) {
         return parse_integer(text, std::uint64_t{0}, ~std::uint64_t{0}, o.common.seed);
       }},
      {"metrics-sample-rate", group, "S", "seconds between samples of the sensors (1.0)",
       "seconds of 0.1 to 3600", parse_rate},
      {"progress", group, "auto|bar|lines|none", "how the console shows progress (auto: bar on a terminal)",
       "auto, bar, lines or none", parse_progress},
      {"log-file", group, "PATH", "append all ranks' records as lines to this file (none)",
       "the path of a file", [](Text text, Options& o) { return parse_text(text, o.common.log_file); }},
      {"log-level", group, "LEVEL", "what is told: trace, debug, info, warning, error or off (info)",
       "trace, debug, info, warning, error or off", parse_message_level},
      {"version", group, nullptr, "print the version", "it without a value",
       [](Text text, Options&) { return parse_flag(text); }, false},
      {"help", group, nullptr, "print this text", "it without a value",
       [](Text text, Options&) { return parse_flag(text); }, false},
  };
}

std::vector<OptionRule> load_rules() {
  constexpr auto group = OptionGroup::burn, load = OptionGroup::load;
  return {
      {"duration", group, "TIME", "how long, in s, m, h or d (5m)",
       "a time above 0 and up to 3650d, such as 90s, 5m, 2h or 3d", parse_run_duration},
      {"steps", group, "N", "stop after N training steps instead (none)",
       "a whole number of 1 to 1000000000000", parse_steps},
      {"layers", load, "N,N,..",
       "neurons of each layer, input first (4096,8192,6144,4096,2048,1024,512; host: "
       "256,512,384,256,128,64,32)",
       "2 to 64 whole numbers of 1 to 1048576, as 4096,8192,512", parse_layers},
      {"batch", load, "N", "samples a rank and step (1024; host: 128)", "a whole number of 1 to 1048576",
       [](Text text, Options& o) {
         return parse_integer(text, std::int64_t{1}, most_samples, o.burn.train.batch);
       }},
      {"global-batch", group, "N", "samples of all ranks a step, instead of --batch (none)",
       "a whole number of 1 to 1073741824", parse_global_batch},
      {"precision", load, "NAME",
       "cycle, fp64, fp32, tf32, fp16, bf16 or fp8 (cycle: all that the device has, in turn)",
       "cycle, fp64, fp32, tf32, fp16, bf16 or fp8", parse_precision_name},
      {"optimizer", load, "sgd|adam", "how the weights are updated (sgd)", "sgd or adam", parse_optimizer},
      {"learning-rate", group, "X", "step width of the optimizer (chosen from the layers)",
       "a number above 0 and up to 1000, such as 0.01", parse_learning_rate},
      {"gradient-dtype", load, "fp32|bf16", "type of the gradients that ranks sum (fp32)", "fp32 or bf16",
       parse_gradient_type},
      {"extreme-iterations", load, "N", "turns of transcendental functions an activation (200; host: 2)",
       "a whole number of 0 to 1000000",
       [](Text text, Options& o) {
         return parse_integer(text, 0, 1'000'000, o.burn.train.extreme_iterations);
       }},
      {"memory", load, "SHARE|SIZE",
       "how much of the device's memory to fill and verify (90%; host: 256MB; 0: none)",
       "a share of 0 to 100 %, or a size such as 72GB", parse_memory},
      {"buffer-iterations", group, "N", "turns of sine and exponential over the filled memory (300; host: 3)",
       "a whole number of 1 to 1000000",
       [](Text text, Options& o) {
         return parse_integer(text, 1, 1'000'000, o.burn.memory.buffer_iterations);
       }},
  };
}

std::vector<OptionRule> file_rules() {
  constexpr auto group = OptionGroup::burn, load = OptionGroup::load;
  return {
      {"io-dir", load, "DIR", "where each rank's test file is written (the working directory)",
       "the path of a directory",
       [](Text text, Options& o) { return parse_text(text, o.burn.file.directory); }},
      {"io-size", load, "SIZE", "bytes of that file (10GB, host: 64MB, at most 5 % of the free space)",
       "a size of 4KiB to 1024TiB, such as 10GB", parse_io_size},
      {"io-repeats", group, "N", "times that it is written and read back a cycle (50; host: 2)",
       "a whole number of 1 to 1000000",
       [](Text text, Options& o) { return parse_integer(text, 1, 1'000'000, o.burn.file.repeats); }},
      {"io-every", group, "N", "steps between the starts of cycles (10)", "a whole number of 1 to 1000000000",
       [](Text text, Options& o) {
         return parse_integer(text, std::int64_t{1}, std::int64_t{1'000'000'000}, o.burn.file.every);
       }},
      {"io-budget", group, "SIZE", "bytes written at most, a rank and run, or unlimited (100GB)",
       "a size of 4KiB or more, such as 100GB, or unlimited", parse_io_budget},
      {"no-io", load, nullptr, "no test files", "it without a value, or true in a config file",
       [](Text text, Options& o) {
         o.burn.file.enabled = false;
         return parse_flag(text);
       }},
  };
}

std::vector<OptionRule> check_rules() {
  constexpr auto group = OptionGroup::burn;
  return {
      {"check-budget", group, "SHARE", "of the time that checks may take; how often they come follows (1%)",
       "a share above 0 and up to 100 %, such as 1%", parse_check_budget},
      {"check-every", group, "N", "steps between checks, at least 3, whatever they take (0: by budget)",
       "a whole number of 0 to 1000000000",
       [](Text text, Options& o) {
         return parse_integer(text, std::int64_t{0}, std::int64_t{1'000'000'000}, o.burn.train.check_every);
       }},
      {"golden", group, "FILE",
       "known answers of this stack: checked, or written where there are none (none)", "the path of a file",
       [](Text text, Options& o) { return parse_text(text, o.burn.train.golden); }},
      {.name = "inject",
       .group = group,
       .value = "SPEC",
       .help = "put in a fault on purpose, as below; may be given several times (none)",
       .allowed = "KIND:rank=R,step=S",
       .parse = parse_inject,
       .repeatable = true,
       .explain = [](Text text) { return parse_injection(text).status().what(); }},
  };
}

/// What a run does about its surroundings and its peers.
std::vector<OptionRule> safety_rules() {
  constexpr auto group = OptionGroup::burn, load = OptionGroup::load;
  return {
      {"temperature-limit", load, "C", "degrees Celsius: above them a warning, then less load (85)",
       "degrees Celsius of 30 to 110", parse_temperature_limit},
      {"memory-limit", load, "SHARE",
       "of the device's or the host's memory in use: above it less is filled (95%)", "a share of 10 to 100 %",
       [](Text text, Options& o) { return parse_share(text, 0.1, o.burn.guard.memory_limit); }},
      {"throttle-limit", group, "SHARE",
       "of the run that heat, a power brake or the hardware may hold clocks down (5%)",
       "a share of 0 to 100 %",
       [](Text text, Options& o) { return parse_share(text, 0, o.burn.guard.throttle_limit); }},
      {"corrected-limit", group, "N", "new corrected ECC errors of a GPU; more are degraded (any number)",
       "a whole number of 0 to 1000000000000", parse_corrected_limit},
      {"collective-timeout", load, "TIME", "how long a rank may make no progress, in s, m or h (30s)",
       "a time of 1s to 1h, such as 30s or 2m", parse_collective_timeout},
      {"max-restarts", load, "N", "times that ranks which lost touch begin anew before they give up (1)",
       "a whole number of 0 to 1000",
       [](Text text, Options& o) { return parse_integer(text, 0, 1000, o.burn.watch.max_restarts); }},
      {"fail-fast", group, nullptr, "the first fault ends the run",
       "it without a value, or true in a config file",
       [](Text text, Options& o) {
         o.burn.fail_fast = true;
         return parse_flag(text);
       }},
      {.name = "resume",
       .group = group,
       .value = "DIR",
       .help = "go on with the run of DIR that was cut, for the rest of its time or steps (none)",
       .allowed = "the path of a run directory",
       .parse = [](Text text, Options& o) { return parse_text(text, o.burn.resume); },
       .in_config = false},
  };
}

constexpr std::array<std::string_view, 4> command_helps = {
    "  burn      train, fill memory, cycle files, exchange data, all verified (the default)\n"
    "            mpirun -np 2 extreme_gpu_trainer burn --duration 1h --memory 90%\n",
    "  selftest  put in every fault that the checks claim to find, on every rank, and look who finds it\n"
    "            mpirun -np 2 extreme_gpu_trainer selftest\n",
    "  report    judge the run of a directory from its journals, also after a crash, and write its result\n"
    "            extreme_gpu_trainer report DIR\n"
    "  devices   what is there, what each device supports, and why not\n"
    "            extreme_gpu_trainer devices\n"};

std::string help_lines(std::string_view title, std::string_view command,
                       std::initializer_list<OptionGroup> groups) {
  std::string text = fmt::format("Options of {} (default in parentheses):\n", title);
  for (const OptionGroup group : groups)
    for (const OptionRule& rule : option_rules()) {
      if (rule.group != group || !knows(command, group)) continue;
      const std::string left = fmt::format("--{} {}", rule.name, rule.is_flag() ? "" : rule.value);
      text += fmt::format("  {:<32} {}\n", left, rule.help);
    }
  return text;
}

std::string injection_help() {
  std::string kinds;
  std::string behaviour;
  for (int kind = 0; kind <= static_cast<int>(InjectionKind::memory_pressure); ++kind) {
    const auto one = static_cast<InjectionKind>(kind);
    (changes_data(one) ? kinds : behaviour) += fmt::format(" {}", to_string(one));
  }
  return fmt::format(
      "Faults on purpose: --inject KIND:rank=R,step=S[,bit=B+B..][,count=C][,stride=T][,layer=L][,ms=M]\n"
      "  KIND is one of{}\n"
      "  or one that leaves data as they are:{}\n"
      "  mpirun -np 3 extreme_gpu_trainer --steps 200 --inject weight:rank=1,step=20,layer=3,bit=7\n\n",
      kinds, behaviour);
}

}  // namespace

const std::vector<OptionRule>& option_rules() {
  static const std::vector<OptionRule> rules = [] {
    std::vector<OptionRule> all = load_rules();
    for (OptionRule& rule : file_rules()) all.push_back(std::move(rule));
    for (OptionRule& rule : check_rules()) all.push_back(std::move(rule));
    for (OptionRule& rule : safety_rules()) all.push_back(std::move(rule));
    for (OptionRule& rule : common_rules()) all.push_back(std::move(rule));
    return all;
  }();
  return rules;
}

bool knows(std::string_view command, OptionGroup group) {
  if (group == OptionGroup::common || command == "burn") return true;
  return command == "selftest" && group == OptionGroup::load;
}

std::string help_text(std::string_view command) {
  const std::string_view known =
      std::find(command_names.begin(), command_names.end(), command) == command_names.end() ? "burn"
                                                                                            : command;
  std::string text =
      "mpirun -np N extreme_gpu_trainer [COMMAND] [options]\n"
      "Burns in GPU nodes, one device a rank, and proves every result.\n\n"
      "Commands:\n";
  for (const std::string_view help : command_helps) text += help;
  text += '\n';
  if (known == "selftest")
    text += "It has smaller defaults of its own for what loads the devices, and says which.\n\n";
  if (knows(known, OptionGroup::load))
    text += help_lines(known, known, {OptionGroup::burn, OptionGroup::load}) + "\n";
  text += help_lines("every command", known, {OptionGroup::common}) + "\n";
  if (knows(known, OptionGroup::burn)) text += injection_help();
  text +=
      "Sizes take KB MB GB TB (powers of 1000) and KiB MiB GiB TiB (powers of 1024).\n"
      "Exit codes: 0 pass, 1 fault, 2 wrong usage, 3 the environment cannot, 4 incomplete, 5 degraded,\n"
      "6 interrupted.";
  return text;
}

}  // namespace egt
