#include <array>
#include <cstdint>
#include <limits>

#include "command/options/measurement_rules.hpp"
#include "command/options/presets.hpp"

namespace egt {
namespace {

/// "2" or "2:0.3".
std::optional<PulseShape> parse_pulse(Text text) {
  const std::size_t colon = text.find(':');
  const auto hertz = parse_within(text.substr(0, colon), 0.2, 20.0);
  const auto duty =
      colon == Text::npos ? std::optional(PulseShape().duty) : parse_within(text.substr(colon + 1), 0.1, 0.9);
  if (!hertz || !duty) return std::nullopt;
  return PulseShape{.hertz = *hertz, .duty = *duty};
}

OptionValue fill(SizeOrShare& target) {
  OptionValue value = with_units(parsed(target, "SHARE|SIZE", "a share of 0 to 100 %, or a size such as 72GB",
                                        [](Text text) {
                                          const auto fill = parse_size_or_share(text);
                                          return fill.ok() ? std::optional(fill.value()) : std::nullopt;
                                        }),
                                 fmt::format("% {}", size_units), "{0}% or {0}GB?");
  value.config = [&target] { return target.is_share ? share_text(target.share) : size_text(target.bytes); };
  return value;
}

Rules training_rules(BurnOptions& burn) {
  constexpr std::int64_t max_neurons = 1 << 20, max_samples = 1 << 20, max_global_samples = 1 << 30;
  TrainOptions& train = burn.train;
  OptionValue pulse = {"HZ[:DUTY]",
                       [&burn](Text text) -> std::string {
                         const auto shape = parse_pulse(text);
                         if (!shape)
                           return "use 0.2 to 20 times a second and, behind a colon, full for 0.1 to 0.9 of "
                                  "the time, as 1:0.5";
                         burn.pulse = shape;
                         return {};
                       },
                       [&burn] {
                         return burn.pulse ? Json(fmt::format("{}:{}", burn.pulse->hertz, burn.pulse->duty))
                                           : Json();
                       }};
  return {
      {"duration", of_burn | of_verify, "how long, in s, m, h or d (5m); of verify 20s, on the host 10s",
       duration(burn.duration_seconds, "a time above 0 and up to 3650d, such as 90s, 5m, 2h or 3d", 0,
                no_limit)},
      {"steps", of_burn | of_bench,
       "stop after N training steps instead (none); of bench with --gradient-compression: of training, after "
       "which losses are compared (500)",
       whole(burn.steps, 1, 1'000'000'000'000)},
      {"layers", of_training,
       "neurons of each layer, input first (4096,8192,6144,4096,2048,1024,512; host: "
       "256,512,384,256,128,64,32)",
       wholes(train.layers, "N,N,..", "2 to 64 whole numbers of 1 to 1048576, as 4096,8192,512",
              {.least = 2, .most = 64, .distinct = false}, std::int64_t{1}, max_neurons)},
      {"batch", of_training, "samples per rank and step (1024; bench: 8192; host: 128)",
       whole(train.batch, 1, max_samples)},
      {"global-batch", of_burn, "samples of all ranks per step, instead of --batch (none)",
       whole(burn.global_batch, 1, max_global_samples)},
      {"balance", of_burn,
       "even shares of a step's samples, or auto: by what each device computes in the same time, measured "
       "again every 100 steps (even)",
       choice(train.balance, {{"even", Balance::even}, {"auto", Balance::automatic}})},
      {"precision", of_training | of_loadtest,
       "cycle, fp64, fp32, tf32, fp16, bf16 or fp8 (cycle: all but fp8 that the device has, in turn; "
       "memory-"
       "resident GEMMs also use fp8 and int8; bench and loadtest: tf32, host: fp32)",
       parsed(burn.precision, "NAME", "cycle, fp64, fp32, tf32, fp16, bf16 or fp8",
              [](Text text) {
                const bool is_known = text == "cycle" || parse_precision(text);
                return is_known ? std::optional(std::string(text)) : std::nullopt;
              })},
      {"load", of_burn,
       "the hottest verified mix, or the network alone, as if with --extreme-iterations 0, --memory 0 and "
       "--no-io where these are not given (mix)",
       choice(train.load, {{"mix", LoadKind::mix}, {"train", LoadKind::train}})},
      {"pulse", of_burn,
       "all devices step between idle and full together, so often a second, full for so much of the time "
       "(none; DUTY 0.5)",
       std::move(pulse)},
      {"optimizer", of_training, "optimizer: sgd or adam (sgd)",
       choice(train.optimizer, {{"sgd", Optimizer::sgd}, {"adam", Optimizer::adam}})},
      {"learning-rate", of_burn, "learning rate of the optimizer (derived from the layers)",
       number(train.learning_rate, "X", "a number above 0 and up to 1000, such as 0.01", 1e-12, 1000)},
      {"gradient-dtype", of_training, "data type of the gradient all-reduce (fp32)",
       choice(train.gradient_type, {{"fp32", ElementType::f32}, {"bf16", ElementType::bf16}})},
      {"extreme-iterations", of_training,
       "iterations of the transcendental chain per activation (200; host: 2; bench: 0)",
       whole(train.extreme_iterations, 0, 1'000'000)},
      {"memory", of_load, "how much of the device's memory to fill and verify (90%; host: 256MB; 0: none)",
       fill(burn.memory.fill)},
      {"buffer-iterations", of_burn,
       "iterations of sine and exponential over the filled memory (300; host: 3)",
       whole(burn.memory.buffer_iterations, 1, 1'000'000)},
  };
}

Rules file_rules(FileOptions& file) {
  constexpr std::uint64_t least = 4096, most = 1ull << 50;
  OptionValue budget = size(file.budget, "a size of 4KiB or more, such as 100GB, or unlimited", least,
                            std::numeric_limits<std::uint64_t>::max());
  budget.set = [&file, set = budget.set](Text text) {
    if (text != "unlimited") return set(text);
    file.budget.reset();
    return std::string();
  };
  budget.json = [&file] { return file.budget ? Json(*file.budget) : Json("unlimited"); };
  budget.config = [&file] { return file.budget ? size_text(*file.budget) : "unlimited"; };
  return {
      {"io-dir", of_training, "where each rank's test file is written (the working directory)",
       text(file.directory, "DIR", "the path of a directory")},
      {"io-size", of_training,
       "bytes of that file (10GB, host: 64MB; with --ceilings 3GB, host: 192MB; at most 5 % of the free "
       "space)",
       size(file.size, "a size of 4KiB to 1024TiB, such as 10GB", least, most)},
      {"io-repeats", of_burn, "writes and reads of the file per cycle (50; host: 2)",
       whole(file.repeats, 1, 1'000'000)},
      {"io-every", of_burn, "steps between the starts of cycles (10)", whole(file.every, 1, 1'000'000'000)},
      {"io-budget", of_burn, "maximum bytes written per rank and run, or unlimited (100GB)",
       std::move(budget)},
      {"no-io", of_training, "no test files", flag(file.enabled, false)},
  };
}

Rules check_rules(Options& o) {
  TrainOptions& train = o.burn.train;
  constexpr std::int64_t min_period = 3;  // later steps begin while earlier ones still run
  const auto parse_period = [](Text text) {
    const auto steps = parse_within<std::int64_t>(text, 0, 1'000'000'000);
    return steps && (*steps == 0 || *steps >= min_period) ? steps : std::nullopt;
  };
  const auto add_injection = [&o](Text text) -> std::string {
    const auto injection = parse_injection(text);
    if (!injection.ok()) return injection.status().what();
    o.run.injections.push_back(injection.value());
    return {};
  };
  const auto injections = [&o] {
    Json texts = Json::array();
    for (const Injection& injection : o.run.injections) texts.push_back(to_text(injection));
    return texts;
  };
  return {
      {"coverage", of_load,
       "full: every pass of training is computed twice, by two ranks of a device model where there are two, "
       "and compared; sampled: known-answer passes as --check-budget allows (full; --load train: sampled)",
       choice(train.coverage, {{"full", Coverage::full}, {"sampled", Coverage::sampled}})},
      {"check-budget", of_burn, "maximum share of the time for checks; sets their interval (1%)",
       share(train.check_budget, above_zero, "a share above 0 and up to 100 %, such as 1%")},
      {"check-every", of_burn, "steps between checks, at least 3 (0: by budget)",
       parsed(train.check_every, "N", "0, or a whole number of 3 to 1000000000", parse_period)},
      {"golden", of_burn,
       "golden digests of this software stack: compared, or written if the file does not exist (none)",
       text(train.golden, "FILE", "the path of a file")},
      {.name = "inject",
       .commands = of_injections,
       .help = "inject a fault, as below; repeatable (none)",
       .value = {"SPEC", add_injection, injections},
       .repeatable = true},
  };
}

/// "100", or "100/h"
OptionValue corrected_limit(std::optional<CorrectedLimit>& target) {
  constexpr std::uint64_t most = 1'000'000'000'000;
  constexpr Text per_hour = "/h";
  return parsed(target, "N[/h]",
                fmt::format("a whole number of 0 to {}, or that many per hour, such as 100/h", most),
                [=](Text text) -> std::optional<CorrectedLimit> {
                  const bool is_rate = text.ends_with(per_hour);
                  if (is_rate) text.remove_suffix(per_hour.size());
                  const auto errors = parse_within<std::uint64_t>(text, 0, most);
                  return errors ? std::optional(CorrectedLimit{*errors, is_rate}) : std::nullopt;
                });
}

Rules safety_rules(Options& o) {
  GuardOptions& guard = o.run.guard;
  return {
      {"temperature-limit", of_runs, "degrees Celsius: above them a warning, then less load (85)",
       number(guard.temperature_limit_c, "C", "degrees Celsius of 30 to 110", 30, 110)},
      {"memory-limit", of_runs, "share of GPU or host memory in use above which less memory is filled (95%)",
       share(guard.memory_limit, 0.1)},
      {.name = "throttle-limit",
       .commands = of_burn,
       .help = "share of the run in which heat, a power brake or the hardware may throttle clocks (5%)",
       .value = share(guard.throttle_limit, 0),
       .also_told = of_runs},
      {.name = "corrected-limit",
       .commands = of_burn,
       .help = "new corrected ECC errors of a GPU in the run, or per hour; more are degraded (any number)",
       .value = corrected_limit(guard.corrected_limit),
       .also_told = of_runs},
      {"collective-timeout", of_runs, "time without progress of a rank, in s, m or h (30s)",
       duration(o.run.watch.collective_timeout_seconds, "a time of 1s to 1h, such as 30s or 2m", 1, 3600)},
      {"max-restarts", of_runs, "restarts after a communication failure before the run aborts (1; links: 16)",
       whole(o.run.watch.max_restarts, 0, 1000)},
      {"fail-fast", of_burn, "stop at the first fault", flag(o.burn.fail_fast, true)},
      {"resume", of_burn, "continue the interrupted run of DIR for the rest of its time or steps (none)",
       text(o.burn.resume, "DIR", "the path of a run directory"), Scope::command_line},
  };
}

OptionValue preset(std::string& target) {
  std::vector<std::string> names;
  for (const Preset& one : presets()) names.push_back(one.name);
  OptionValue value =
      parsed(target, "NAME", fmt::format("one of {}", fmt::join(names, ", ")), [names](Text text) {
        const auto found = std::find(names.begin(), names.end(), text);
        return found == names.end() ? std::nullopt : std::optional(*found);
      });
  value.set = [set = value.set, names](Text text) {
    const std::string wrong = set(text);
    return wrong.empty() ? wrong : suggestion(text, names) + wrong;
  };
  return value;
}

OptionValue serve(std::optional<ServeAddress>& target) {
  return {"[ADDRESS:]PORT",
          [&target](Text text) -> std::string {
            const auto address = parse_serve_address(text);
            if (!address)
              return "use a port of 0 to 65535 (0: any free one), alone or behind an IP address, as 8080, "
                     "0.0.0.0:8080 or [::1]:8080";
            target = address;
            return {};
          },
          [&target] { return target ? Json(target->text()) : Json(); }};
}

Rules common_rules(CommonOptions& common, RunOptions& run) {
  const OptionValue answered = {"", [](Text) { return std::string(); }};  // handled before any value
  return {
      {"backend", of_runs | of_devices | of_reproduce,
       "what computes (auto: cuda, and host only on a machine without NVIDIA GPUs; EGT_BACKEND=host chooses "
       "that)",
       choice(common.backend,
              {{"auto", Backend::automatic}, {"cuda", Backend::cuda}, {"host", Backend::host}})},
      {"devices", of_runs | of_reproduce, "the device of each local rank (default: device = local rank)",
       wholes(common.devices, "0,2", "device numbers of 0 to 1023, as 0,2", {.distinct = false}, 0, 1023)},
      {"output", of_runs | of_compare,
       "the run directory (extreme_gpu_trainer_runs/<UTC time>); of compare, and of loadtest where it ends "
       "with .json: a JSON file (none); of compare where it ends with .html: a page with charts",
       text(common.output, "PATH", "the path of a directory, or of compare's file"), Scope::config, false, 0,
       "-o"},
      {"config", of_all, "options by long name from a TOML file; the command line is stronger (none)",
       text(common.config, "FILE", "the path of a TOML file"), Scope::command_line},
      {"preset", of_runs,
       "the options of presets/NAME.toml; --config and the command line are stronger (none)",
       preset(common.preset)},
      {"quick",
       of_burn,
       "as --preset quick: less than a minute",
       {"",
        [&common](Text text) -> std::string {
          common.preset = "quick";
          return text == "true" ? "" : "use it without a value";
        }},
       Scope::command_line},
      {"print-config", of_all, "print the options in effect as a file for --config, and start nothing",
       flag(common.print_config, true), Scope::command_line},
      {"seed", of_training | of_loadtest, "all random numbers and patterns follow from it (1)",
       whole(common.seed, 0, ~std::uint64_t{0})},
      {"metrics-sample-rate", of_runs, "seconds between samples of the sensors (1.0)",
       number(common.metrics_sample_rate, "S", "seconds of 0.1 to 3600", 0.1, 3600)},
      {"progress", of_runs, "how the console shows progress (auto: bar on a terminal)",
       choice(common.progress, {{"auto", ProgressStyle::automatic},
                                {"bar", ProgressStyle::bar},
                                {"lines", ProgressStyle::lines},
                                {"none", ProgressStyle::none}}),
       Scope::config},
      {"log-file", of_runs, "append all ranks' records as lines to this file (none)",
       text(common.log_file, "PATH", "the path of a file"), Scope::config},
      {"nodes-file", of_runs | of_report,
       "the verdict of each host, and lines for Slurm that drain those that failed (none)",
       text(common.nodes_file, "PATH", "the path of a file"), Scope::config},
      {"serve", of_injections,
       "rank 0 shows the run while it goes on: a page, /metrics and /healthz at http://127.0.0.1:PORT/; any "
       "other ADDRESS than this host's own needs EGT_SERVE_TOKEN (none)",
       serve(run.serve), Scope::config},
      {"log-level", of_runs, "log level: trace, debug, info, warning, error or off (info)",
       choice(common.log_level,
              {{"trace", LogLevel::trace},
               {"debug", LogLevel::debug},
               {"info", LogLevel::info},
               {"warning", LogLevel::warning},
               {"error", LogLevel::error},
               {"off", LogLevel::off}},
              "LEVEL"),
       Scope::config},
      {.name = "version",
       .commands = of_all,
       .help = "print the version",
       .value = answered,
       .scope = Scope::command_line,
       .letter = "-V"},
      {.name = "help",
       .commands = of_all,
       .help = "print this text",
       .value = answered,
       .scope = Scope::command_line,
       .letter = "-h"},
  };
}

}  // namespace

std::vector<OptionRule> option_rules(Options& options) {
  Rules all;
  const auto add = [&all](const char* group, Rules rules) {
    for (OptionRule& rule : rules) {
      rule.group = group;
      all.push_back(std::move(rule));
    }
  };
  add("Training and memory", training_rules(options.burn));
  add("Files", file_rules(options.burn.file));
  add("Checks", check_rules(options));
  add("Limits and recovery", safety_rules(options));
  add("What is measured", link_rules(options.links));
  add("What is measured", bench_rules(options.bench));
  add("What is tested", loadtest_rules(options.loadtest, options.common));
  add("What is compared", compare_rules(options.compare.comparison));
  add("Backend and output", common_rules(options.common, options.run));
  return all;
}

}  // namespace egt
