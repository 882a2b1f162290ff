#include <array>
#include <cstdint>
#include <limits>

#include "command/options/option_table.hpp"
#include "command/options/presets.hpp"
#include "egt/core/math/voxel_math.hpp"

namespace egt {
namespace {

using Text = std::string_view;
using Rules = std::vector<OptionRule>;

constexpr double no_limit = std::numeric_limits<double>::infinity();
constexpr double above_zero = std::numeric_limits<double>::min();

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
  constexpr std::int64_t most_neurons = 1 << 20, most_samples = 1 << 20, most_global_samples = 1 << 30;
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
              {.least = 2, .most = 64, .distinct = false}, std::int64_t{1}, most_neurons)},
      {"batch", of_training, "samples a rank and step (1024; bench: 8192; host: 128)",
       whole(train.batch, 1, most_samples)},
      {"global-batch", of_burn, "samples of all ranks a step, instead of --batch (none)",
       whole(burn.global_batch, 1, most_global_samples)},
      {"balance", of_burn,
       "even shares of a step's samples, or auto: by what each device computes in the same time, measured "
       "again every 100 steps (even)",
       choice(train.balance, {{"even", Balance::even}, {"auto", Balance::automatic}})},
      {"precision", of_training | of_loadtest,
       "cycle, fp64, fp32, tf32, fp16, bf16 or fp8 (cycle: all but fp8 that the device has, in turn; "
       "products "
       "over memory have fp8 and int8, too; bench and loadtest: tf32, host: fp32)",
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
      {"optimizer", of_training, "how the weights are updated (sgd)",
       choice(train.optimizer, {{"sgd", Optimizer::sgd}, {"adam", Optimizer::adam}})},
      {"learning-rate", of_burn, "step width of the optimizer (chosen from the layers)",
       number(train.learning_rate, "X", "a number above 0 and up to 1000, such as 0.01", 1e-12, 1000)},
      {"gradient-dtype", of_training, "type of the gradients that ranks sum (fp32)",
       choice(train.gradient_type, {{"fp32", ElementType::f32}, {"bf16", ElementType::bf16}})},
      {"extreme-iterations", of_training,
       "turns of transcendental functions an activation (200; host: 2; bench: 0)",
       whole(train.extreme_iterations, 0, 1'000'000)},
      {"memory", of_load, "how much of the device's memory to fill and verify (90%; host: 256MB; 0: none)",
       fill(burn.memory.fill)},
      {"buffer-iterations", of_burn, "turns of sine and exponential over the filled memory (300; host: 3)",
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
      {"io-repeats", of_burn, "times that it is written and read back a cycle (50; host: 2)",
       whole(file.repeats, 1, 1'000'000)},
      {"io-every", of_burn, "steps between the starts of cycles (10)", whole(file.every, 1, 1'000'000'000)},
      {"io-budget", of_burn, "bytes written at most, a rank and run, or unlimited (100GB)",
       std::move(budget)},
      {"no-io", of_training, "no test files", flag(file.enabled, false)},
  };
}

Rules check_rules(Options& o) {
  TrainOptions& train = o.burn.train;
  constexpr std::int64_t least_period = 3;  // steps are under way behind the one that is begun
  const auto parse_period = [](Text text) {
    const auto steps = parse_within<std::int64_t>(text, 0, 1'000'000'000);
    return steps && (*steps == 0 || *steps >= least_period) ? steps : std::nullopt;
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
      {"check-budget", of_burn, "of the time that checks may take; how often they come follows (1%)",
       share(train.check_budget, above_zero, "a share above 0 and up to 100 %, such as 1%")},
      {"check-every", of_burn, "steps between checks, at least 3, whatever they take (0: by budget)",
       parsed(train.check_every, "N", "0, or a whole number of 3 to 1000000000", parse_period)},
      {"golden", of_burn, "known answers of this stack: checked, or written where there are none (none)",
       text(train.golden, "FILE", "the path of a file")},
      {.name = "inject",
       .commands = of_injections,
       .help = "put in a fault on purpose, as below; may be given several times (none)",
       .value = {"SPEC", add_injection, injections},
       .repeatable = true},
  };
}

Rules safety_rules(Options& o) {
  GuardOptions& guard = o.run.guard;
  return {
      {"temperature-limit", of_runs, "degrees Celsius: above them a warning, then less load (85)",
       number(guard.temperature_limit_c, "C", "degrees Celsius of 30 to 110", 30, 110)},
      {"memory-limit", of_runs, "of the device's or the host's memory in use: above it less is filled (95%)",
       share(guard.memory_limit, 0.1)},
      {.name = "throttle-limit",
       .commands = of_burn,
       .help = "of the run that heat, a power brake or the hardware may hold clocks down (5%)",
       .value = share(guard.throttle_limit, 0),
       .also_told = of_runs},
      {.name = "corrected-limit",
       .commands = of_burn,
       .help = "new corrected ECC errors of a GPU; more are degraded (any number)",
       .value = whole(guard.corrected_limit, 0, 1'000'000'000'000),
       .also_told = of_runs},
      {"collective-timeout", of_runs, "how long a rank may make no progress, in s, m or h (30s)",
       duration(o.run.watch.collective_timeout_seconds, "a time of 1s to 1h, such as 30s or 2m", 1, 3600)},
      {"max-restarts", of_runs,
       "times that ranks which lost touch begin anew before they give up (1; links: 16)",
       whole(o.run.watch.max_restarts, 0, 1000)},
      {"fail-fast", of_burn, "the first fault ends the run", flag(o.burn.fail_fast, true)},
      {"resume", of_burn, "go on with the run of DIR that was cut, for the rest of its time or steps (none)",
       text(o.burn.resume, "DIR", "the path of a run directory"), Scope::command_line},
  };
}

Rules link_rules(LinksOptions& links) {
  OptionValue warn_below =
      parsed(links.warn_below, "RATE", "0, or a rate such as 20Gb/s (bits) or 2.5GB/s (bytes)",
             [](Text text) { return within(parse_bit_rate(text), 0.0, no_limit); });
  warn_below.config = [&links] {
    return in_units(links.warn_below, {{"Gb/s", 1e9}, {"Mb/s", 1e6}, {"Kb/s", 1e3}, {"b/s", 1.0}});
  };
  return {
      {"size", of_links, "bytes of the largest transfer (1GB; host: 16MB)",
       size(links.size, "a size of 1KB to 1TB, such as 1GB", 1000, 1'000'000'000'000)},
      {"repeats", of_links, "times that everything is measured; medians are told (10)",
       whole(links.repeats, 1, 1000)},
      {"warn-below", of_links,
       "a pair that carries less one way is slow (20Gb/s; host: 500Mb/s; 0: none is by that); so is one "
       "below 75 % of its line rate, or 90 % (host memory: 50 %) of the median of its like",
       std::move(warn_below)},
  };
}

/// The one of `names` that a text is.
template <typename T, std::size_t N>
auto one_of(const std::array<T, N>& names) {
  return [names](Text text) -> std::optional<T> {
    for (const T name : names)
      if (to_string(name) == text) return name;
    return std::nullopt;
  };
}

Rules bench_rules(BenchOptions& bench) {
  using enum BenchWorkload;
  using enum BenchMode;
  constexpr ListLimits sizes = {.least = 1, .most = 32};
  constexpr std::int64_t one = 1;
  return {
      {"ceilings", of_bench,
       "every part of the load beside the machine's own limit, measured in turn in this run, instead of "
       "scaling",
       flag(bench.ceilings, true)},
      {"workload", of_bench, "what is measured (mlp,multimodal,voxelize)",
       list(bench.workloads, "NAME,..", "one or more of mlp, multimodal and voxelize, each once", {},
            one_of(std::array{mlp, multimodal, voxelize}))},
      {"mode", of_bench,
       "on which devices: each alone, or together by peer copies, by NCCL or MPI, sharing one load, or one "
       "device's batch of mlp (single,p2p,collective,hetero,strong; single always)",
       list(bench.modes, "NAME,..", "one or more of single, p2p, collective, hetero and strong, each once",
            {}, one_of(std::array{single, p2p, collective, hetero, strong}))},
      {"points", of_bench,
       "of voxelize, in a device's cloud (10000,100000,1000000,10000000; host: 10000,100000)",
       wholes(bench.points, "N,N,..", "1 to 32 whole numbers of 1 to 1000000000, each once", sizes, one,
              std::int64_t{1'000'000'000})},
      {"grid", of_bench, "of voxelize, voxels along each axis (256; host: 64)",
       whole(bench.grid, 1, VoxelGrid::most_dims)},
      {"batches", of_bench, "of multimodal, samples a device (1,8,32,128,256; host: 1,8)",
       wholes(bench.batches, "N,N,..", "1 to 32 whole numbers of 1 to 65536, each once", sizes, one,
              std::int64_t{65'536})},
      {"streams", of_bench,
       "where multimodal's streams come into being: on each device, which gets the first one's timeline, or "
       "all on the first device (own)",
       choice(bench.streams, {{"own", StreamOrigin::own}, {"first", StreamOrigin::first}})},
      {"gradient-compression", of_bench,
       "of mlp, how gradients are sent in mode collective, beside whole ones: as bf16, or of each bucket the "
       "largest SHARE, the rest being added to the next step's (none)",
       parsed(bench.compression, "none|bf16|topk:SHARE",
              "none, bf16, or topk: and a share of 0.00001 to 100 %, as topk:1%", parse_compression)},
      {"parallel", of_bench,
       "what the devices divide among them: the batch, as the modes say; of mlp each layer (tensor) or runs "
       "of "
       "layers (pipeline); the parts of the work (task); or each of these in turn, and together (data)",
       choice(bench.parallel, {{"data", Parallel::data},
                               {"tensor", Parallel::tensor},
                               {"pipeline", Parallel::pipeline},
                               {"task", Parallel::task},
                               {"all", Parallel::all}})},
      {"micro-batches", of_bench, "of pipelines, into which a step's batch is cut (4 a stage)",
       whole(bench.micro_batches, 1, 1024)},
      {"memory", of_bench,
       "of mlp, for what training keeps on a device from step to step: weights, moments and gradients; a "
       "mode that needs more is refused (what there is)",
       size(bench.most_state_bytes, "a size of 1KB to 1024TB, such as 72GB", 1000, 1024'000'000'000'000)},
      {"trial-time", of_bench,
       "how long each configuration is measured, after its warm-up (1s; with --ceilings 2s, host: 0.4s)",
       duration(bench.trial_seconds, "a time of 0.01s to 1h, such as 1s", 0.01, 3600)},
  };
}

Rules loadtest_rules(LoadTestOptions& loadtest, CommonOptions& common) {
  return {
      {"num-epochs", of_loadtest, "epochs of each test (3; --quick: 1)",
       whole(loadtest.epochs, 1, 1'000'000)},
      {"num-batches", of_loadtest, "iterations of an epoch (200; host: 20; --quick: 50, host: 10)",
       whole(loadtest.batches, 1, 1'000'000'000)},
      {"num-workers", of_loadtest, "threads a rank that make or read images (0: the device makes them)",
       whole(loadtest.workers, 0, 256)},
      {"data", of_loadtest,
       "a folder of PPM, PNG or JPEG images, a sub-folder a class, to train on (none: they are generated)",
       text(loadtest.data, "DIR", "the path of a folder")},
      {"image-size", of_loadtest, "pixels of an image's side (224; host: 64; --quick: 128, host: 32)",
       whole(loadtest.pixels, 32, 1024)},
      {"mode", of_loadtest,
       "independent: every device trains by itself on the same data; ddp: on data of its own, gradients are "
       "summed (ddp)",
       choice(loadtest.mode, {{"independent", LoadTestMode::independent}, {"ddp", LoadTestMode::ddp}})},
      {"quick", of_loadtest, "fewer iterations of smaller images: some minutes at most",
       flag(loadtest.quick, true)},
      {"device", of_loadtest, "cuda or cpu: another word for --backend (auto)",
       choice(common.backend, {{"cuda", Backend::cuda}, {"cpu", Backend::host}}), Scope::config},
  };
}

Rules compare_rules(ComparisonOptions& comparison) {
  // The name may hold a '=', the price does not.
  const auto add_price = [&prices = comparison.prices](Text text) -> std::string {
    const std::size_t equals = text.rfind('=');
    const std::string name(text.substr(0, equals));
    const auto per_hour =
        equals == Text::npos ? std::nullopt : parse_within(text.substr(equals + 1), above_zero, 1e9);
    const auto is_twice = [&](const Price& price) { return price.name == name; };
    if (name.empty() || !per_hour || std::any_of(prices.begin(), prices.end(), is_twice))
      return "use NAME=X with a price above 0 and up to 1000000000, each NAME once, as H200=2.5";
    prices.push_back({name, *per_hour});
    return {};
  };
  const auto prices = [&prices = comparison.prices] {
    Json texts = Json::array();
    for (const Price& price : prices) texts.push_back(price.name + "=" + digits(price.per_hour));
    return texts;
  };
  return {
      {"tolerance", of_compare, "by how much a figure may be worse than its like in an earlier file (5%)",
       share(comparison.tolerance, 0), Scope::config},
      {"price",
       of_compare,
       "of one device an hour; NAME: a file's label or a device's, as H200=2.5; several times (none)",
       {"NAME=X", add_price, prices},
       Scope::config,
       true},
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

Rules common_rules(CommonOptions& common) {
  const OptionValue answered = {"", [](Text) { return std::string(); }};  // before any value is looked at
  return {
      {"backend", of_all, "what computes (auto: cuda where a GPU answers, else host)",
       choice(common.backend,
              {{"auto", Backend::automatic}, {"cuda", Backend::cuda}, {"host", Backend::host}})},
      {"devices", of_all, "the device of each local rank (default: device = local rank)",
       wholes(common.devices, "0,2", "device numbers of 0 to 1023, as 0,2", {.distinct = false}, 0, 1023)},
      {"output", of_all,
       "the run directory (extreme_gpu_trainer_runs/<UTC time>); of compare, and of loadtest where it ends "
       "with .json: a JSON file (none)",
       text(common.output, "PATH", "the path of a directory, or of compare's file"), Scope::config, false, 0,
       "-o"},
      {"config", of_all, "options by long name from a TOML file; the command line is stronger (none)",
       text(common.config, "FILE", "the path of a TOML file"), Scope::command_line},
      {"preset", of_all,
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
      {"seed", of_all, "all random numbers and patterns follow from it (1)",
       whole(common.seed, 0, ~std::uint64_t{0})},
      {"metrics-sample-rate", of_all, "seconds between samples of the sensors (1.0)",
       number(common.metrics_sample_rate, "S", "seconds of 0.1 to 3600", 0.1, 3600)},
      {"progress", of_all, "how the console shows progress (auto: bar on a terminal)",
       choice(common.progress, {{"auto", ProgressStyle::automatic},
                                {"bar", ProgressStyle::bar},
                                {"lines", ProgressStyle::lines},
                                {"none", ProgressStyle::none}}),
       Scope::config},
      {"log-file", of_all, "append all ranks' records as lines to this file (none)",
       text(common.log_file, "PATH", "the path of a file"), Scope::config},
      {"nodes-file", of_runs | of_report,
       "the verdict of each host, and lines for Slurm that drain those that failed (none)",
       text(common.nodes_file, "PATH", "the path of a file"), Scope::config},
      {"log-level", of_all, "what is told: trace, debug, info, warning, error or off (info)",
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
  add("Where it runs and what it tells", common_rules(options.common));
  return all;
}

}  // namespace egt
