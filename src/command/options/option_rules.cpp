#include <array>
#include <cstdint>
#include <limits>

#include <fmt/format.h>

#include "command/options/option_table.hpp"
#include "command/options/presets.hpp"
#include "egt/core/math/voxel_math.hpp"
#include "judge/expectations.hpp"
#include "workload/bench/scaling_plan.hpp"
#include "workload/links/link_judgement.hpp"

namespace egt {
namespace {

using Rules = std::vector<OptionRule>;

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

/// selftest has short memory passes, training passes and steps, so that many injections fit.
Rules training_rules(BurnOptions& burn) {
  constexpr std::int64_t max_neurons = 1 << 20, max_samples = 1 << 20, max_global_samples = 1 << 30;
  TrainOptions& train = burn.train;
  OptionValue pulse = {"HZ[:DUTY]",
                       [&burn](Text text) -> std::string {
                         const auto shape = parse_pulse(text);
                         if (!shape)
                           return "use 0.2 to 20 times per second and, after a colon, full for 0.1 to 0.9 of "
                                  "the time, such as 1:0.5";
                         burn.pulse = shape;
                         return {};
                       },
                       [&burn] {
                         return burn.pulse ? Json(fmt::format("{}:{}", burn.pulse->hertz, burn.pulse->duty))
                                           : Json();
                       }};
  return {
      {"duration", of_burn | of_verify, "how long, such as 90s, 5m, 1h30m or 3d",
       with_defaults(duration(burn.duration_seconds,
                              "a time above 0 and up to 3650d, such as 90s, 5m, 2h or 3d", 0, no_limit),
                     // A verify run on a GPU takes about 30 s with its start and end.
                     {{"verify cuda", "20s"}, {"verify host", "10s"}})},
      {"steps", of_burn | of_bench,
       "stop after N training steps\nbench needs --gradient-compression, and compares losses after N steps.",
       whole(burn.steps, 1, 1'000'000'000'000)},
      {"layers", of_training, "neurons of each layer, input first",
       with_defaults(
           wholes(train.layers, "N,N,..", "2 to 64 whole numbers of 1 to 1048576, such as 4096,8192,512",
                  {.least = 2, .most = 64, .distinct = false}, std::int64_t{1}, max_neurons),
           {{"host", "256,512,384,256,128,64,32"},
            {"verify cuda", "4096,4096,2048,1024,512"},  // fits into 10 % together with the rest
            {"verify host", "128,256,192,128,64,32,16"},
            {"selftest host", "128,256,192,128,64,32,16"}})},
      {"batch", of_training, "samples per rank and step",
       with_defaults(
           whole(train.batch, 1, max_samples),
           {{"host", "128"}, {"bench cuda", "8192"}, {"verify host", "64"}, {"selftest host", "16"}})},
      {"global-batch", of_burn, "samples of all ranks per step, not --batch",
       whole(burn.global_batch, 1, max_global_samples)},
      {"balance", of_burn,
       "shares of a step's samples\nauto: by what each device computes in the same time, measured again "
       "every 100 steps.",
       choice(train.balance, {{"even", Balance::even}, {"auto", Balance::automatic}})},
      {"precision", of_training | of_loadtest,
       "cycle, fp64, fp32, tf32, fp16, bf16 or fp8\ncycle: all but fp8 that the device supports, in turn. "
       "Memory-resident GEMMs also use fp8 and int8.",
       with_defaults(parsed(burn.precision, "NAME", "cycle, fp64, fp32, tf32, fp16, bf16 or fp8",
                            [](Text text) {
                              std::string name = to_lower(text);
                              const bool is_known = name == "cycle" || parse_precision(name);
                              return is_known ? std::optional(std::move(name)) : std::nullopt;
                            }),
                     {{"bench host", "fp32"},
                      {"loadtest host", "fp32"},
                      {"scaling cuda", "tf32"},
                      {"loadtest cuda", "tf32"}})},
      {"load", of_burn,
       "hottest verified mix, or the network alone\ntrain sets --extreme-iterations 0, --memory 0 and "
       "--no-io if these are not given.",
       choice(train.load, {{"mix", LoadKind::mix}, {"train", LoadKind::train}})},
      {"pulse", of_burn,
       "step between idle and full load together\nHZ: pulses per second. DUTY: share of the time at full "
       "load.",
       std::move(pulse)},
      {"optimizer", of_training, "optimizer",
       choice(train.optimizer, {{"sgd", Optimizer::sgd}, {"adam", Optimizer::adam}})},
      {"learning-rate", of_burn, "learning rate (derived from the layers)",
       number(train.learning_rate, "X", "a number above 0 and up to 1000, such as 0.01", 1e-12, 1000)},
      {"gradient-dtype", of_training, "data type of the gradient all-reduce",
       choice(train.gradient_type, {{"fp32", ElementType::f32}, {"bf16", ElementType::bf16}})},
      {"extreme-iterations", of_training, "transcendental iterations per activation",
       with_defaults(whole(train.extreme_iterations, 0, 1'000'000), {{"host", "2"},
                                                                     {"verify cuda", "20"},
                                                                     {"selftest cuda", "8"},
                                                                     {"scaling", "0"},
                                                                     {"--load=train", "0"}})},
      {"memory", of_load, "device memory to fill and verify; 0: none",
       with_defaults(fill(burn.memory.fill), {{"host", "256MB"},
                                              {"verify cuda", "10%"},
                                              {"verify host", "64MB"},
                                              {"selftest cuda", "12GB"},
                                              {"selftest host", "48MB"},
                                              {"--load=train", "0"}})},
      {"buffer-iterations", of_burn, "sine and exponential over filled memory\nIterations over all of it.",
       with_defaults(whole(burn.memory.buffer_iterations, 1, 1'000'000),
                     {{"host", "3"}, {"selftest cuda", "10"}, {"selftest host", "1"}})},
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
      {"io-dir", of_training, "directory of test files",
       text(file.directory, "DIR", "the path of a directory")},
      {"io-size", of_training, "bytes of each rank's test file\nAt most 5 % of the free space.",
       // With --ceilings for three files. Each round writes one of them, which takes 0.1 s on the host.
       with_defaults(size(file.size, "a size of 4KiB to 1024TiB, such as 10GB", least, most),
                     {{"host", "64MB"},
                      {"verify cuda", "64MB"},
                      {"verify host", "4MB"},
                      {"selftest", "4MB"},
                      {"--ceilings cuda", "3GB"},
                      {"--ceilings host", "192MB"}})},
      {"io-repeats", of_burn, "writes and reads of the file per cycle",
       with_defaults(whole(file.repeats, 1, 1'000'000), {{"host", "2"}})},
      {"io-every", of_burn, "steps between the starts of cycles", whole(file.every, 1, 1'000'000'000)},
      {"io-budget", of_burn, "bytes written per rank and run, or unlimited", std::move(budget)},
      {"no-io", of_training, "no test files",
       with_defaults(flag(file.enabled, false), {{"--load=train", "true"}})},
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
       "full, or sampled known-answer passes\nfull: every forward/backward pass is computed twice, by two "
       "ranks of a device model if there are two, and compared. sampled: known-answer passes as "
       "--check-budget allows.",
       with_defaults(choice(train.coverage, {{"full", Coverage::full}, {"sampled", Coverage::sampled}}),
                     {{"--load=train", "sampled"}})},
      {"check-budget", of_burn, "maximum share of the time for checks\nIt sets their interval.",
       share(train.check_budget, above_zero, "a share above 0 and up to 100 %, such as 1%")},
      {"check-every", of_burn, "steps between checks, at least 3; 0: by budget",
       parsed(train.check_every, "N", "0, or a whole number of 3 to 1000000000", parse_period)},
      {"golden", of_burn,
       "golden digests to compare or to create\nThey are of this software stack, and are written if the file "
       "does not exist.",
       text(train.golden, "FILE", "the path of a file")},
      {.name = "inject",
       .commands = of_injections,
       .help = "inject a fault, as below; repeatable",
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
      {"temperature-limit", of_runs, "above it a warning, then less load\nDegrees Celsius.",
       parsed(guard.temperature_limit_c, "C", "degrees Celsius of 30 to 110, such as 85 or 85C",
              [](Text text) {
                const auto unit = unit_in(text);
                if (unit && (*unit == "C" || *unit == "c")) text = text.substr(0, text.find_first_of(" Cc"));
                return parse_within(text, 30.0, 110.0);
              })},
      {"memory-limit", of_runs, "memory in use above which less is filled\nShare of GPU or host memory.",
       share(guard.memory_limit, 0.1)},
      {.name = "throttle-limit",
       .commands = of_burn,
       .help = "share of the run with throttled clocks\nBy heat, a power brake or the hardware.",
       .value = share(guard.throttle_limit, 0),
       .also_told = of_runs},
      {.name = "corrected-limit",
       .commands = of_burn,
       .help =
           "new corrected errors of each kind, or per hour\nOf memory (ECC), PCIe link, NVLinks and node. "
           "More are degraded. Without it, any number is allowed.",
       .value = corrected_limit(guard.corrected_limit),
       .also_told = of_runs},
      {"collective-timeout", of_runs, "time without progress of a rank",
       duration(o.run.watch.collective_timeout_seconds, "a time of 1s to 1h, such as 30s or 2m", 1, 3600)},
      {"max-restarts", of_runs, "restarts after communication failures\nOne more aborts the run.",
       // links: a failed pair costs a restart, and the remaining pairs still have to be measured.
       with_defaults(whole(o.run.watch.max_restarts, 0, 1000), {{"links", "16"}})},
      {"fail-fast", of_burn, "stop at the first fault", flag(o.burn.fail_fast, true)},
      {"resume", of_burn, "continue the interrupted run of DIR\nFor the rest of its time or steps.",
       text(o.burn.resume, "DIR", "the path of a run directory"), Scope::command_line},
  };
}

/// Parses one of `names`.
template <typename T, std::size_t N>
auto one_of(const std::array<T, N>& names) {
  return [names](Text text) -> std::optional<T> {
    for (const T name : names)
      if (to_string(name) == text) return name;
    return std::nullopt;
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
      {"size", of_links, "bytes of the largest transfer",
       with_defaults(size(links.size, "a size of 1KB to 1TB, such as 1GB", 1000, 1'000'000'000'000),
                     {{"host", "16MB"}})},
      {"repeats", of_links, "measurements; medians are reported", whole(links.repeats, 1, 1000)},
      {"warn-below", of_links,
       fmt::format("one-way rate below which a pair is slow; 0: none\nA pair is also slow below {:.0f} % of "
                   "its line rate, or {:.0f} % (host memory: {:.0f} %) of the median of its kind.",
                   100 * min_share_of_line_rate, 100 * min_share_of_peers,
                   100 * min_share_of_peers_in_memory),
       with_defaults(std::move(warn_below), {{"host", "500Mb/s"}})},
  };
}

Rules bench_rules(BenchOptions& bench) {
  using enum BenchWorkload;
  using enum BenchMode;
  constexpr ListLimits sizes = {.least = 1, .most = 32};
  constexpr std::int64_t one = 1;
  return {
      {"ceilings", of_bench,
       "each part compared with the device's limit\nMeasured in turn in this run, instead of scaling.",
       flag(bench.ceilings, true)},
      {"workload", of_bench, "what is measured",
       list(bench.workloads, "NAME,..", "one or more of mlp, multimodal and voxelize, each once", {},
            one_of(std::array{mlp, multimodal, voxelize}))},
      {"mode", of_bench,
       "single, p2p, collective, hetero or strong\nEach device alone, or together by peer copies, by NCCL or "
       "MPI, by shares of one load, or by one device's batch of mlp. single is always measured.",
       list(bench.modes, "NAME,..", "one or more of single, p2p, collective, hetero and strong, each once",
            {}, one_of(std::array{single, p2p, collective, hetero, strong}))},
      {"points", of_bench, "voxelize: points per device",
       with_defaults(wholes(bench.points, "N,N,..", "1 to 32 whole numbers of 1 to 1000000000, each once",
                            sizes, one, std::int64_t{1'000'000'000}),
                     {{"host", "10000,100000"}})},
      {"grid", of_bench, "voxelize: voxels along each axis",
       with_defaults(whole(bench.grid, 1, VoxelGrid::max_dims), {{"host", "64"}})},
      {"batches", of_bench, "multimodal: samples per device",
       with_defaults(wholes(bench.batches, "N,N,..", "1 to 32 whole numbers of 1 to 65536, each once", sizes,
                            one, std::int64_t{65'536}),
                     {{"host", "1,8"}})},
      {"streams", of_bench,
       "multimodal: where streams are generated\nown: on each device, which gets the first one's timeline. "
       "first: all on the first device.",
       choice(bench.streams, {{"own", StreamOrigin::own}, {"first", StreamOrigin::first}})},
      {"gradient-compression", of_bench,
       "mlp: also send compressed gradients\nIn mode collective, as bf16, or only the largest SHARE of each "
       "bucket. The rest is added to the next step's.",
       parsed(bench.compression, "none|bf16|topk:SHARE",
              "none, bf16, or topk: and a share of 0.00001 to 100 %, such as topk:1%", parse_compression)},
      {"parallel", of_bench,
       "what is divided among the devices\ndata: the batch, as the modes say. tensor: each layer of mlp. "
       "pipeline: runs of layers of mlp. task: the parts of the work. all: each of these, and together.",
       choice(bench.parallel, {{"data", Parallel::data},
                               {"tensor", Parallel::tensor},
                               {"pipeline", Parallel::pipeline},
                               {"task", Parallel::task},
                               {"all", Parallel::all}})},
      {"micro-batches", of_bench,
       fmt::format("pipeline: micro-batches per step ({} per stage)", micro_batches_a_stage),
       whole(bench.micro_batches, 1, 1024)},
      {"memory", of_bench,
       "maximum training state per device\nWeights, moments and gradients of mlp. A mode that needs more is "
       "refused.",
       size(bench.max_state_bytes, "a size of 1KB to 1024TB, such as 72GB", 1000, 1024'000'000'000'000)},
      {"trial-time", of_bench, "measured time per configuration\nAfter its warm-up.",
       with_defaults(duration(bench.trial_seconds, "a time of 0.01s to 1h, such as 1s", 0.01, 3600),
                     {{"--ceilings cuda", "2s"}, {"--ceilings host", "0.4s"}})},
  };
}

Rules loadtest_rules(LoadTestOptions& loadtest, CommonOptions& common) {
  return {
      {"num-epochs", of_loadtest, "epochs of each test",
       with_defaults(whole(loadtest.epochs, 1, 1'000'000), {{"--quick", "1"}})},
      {"num-batches", of_loadtest, "iterations of an epoch",
       with_defaults(whole(loadtest.batches, 1, 1'000'000'000),
                     {{"loadtest host", "20"}, {"--quick", "50"}, {"--quick host", "10"}})},
      {"num-workers", of_loadtest, "threads per rank for images; 0: the device",
       whole(loadtest.workers, 0, 256)},
      {"data", of_loadtest,
       "PPM, PNG or JPEG images to train on\nA folder with a sub-folder per class. Without it, images are "
       "generated.",
       text(loadtest.data, "DIR", "the path of a folder")},
      {"image-size", of_loadtest, "pixels of an image's side",
       with_defaults(whole(loadtest.pixels, 32, 1024),
                     {{"loadtest host", "64"}, {"--quick", "128"}, {"--quick host", "32"}})},
      {"mode", of_loadtest,
       "independent: same data; ddp: all-reduce\nindependent: every device trains on the same data. ddp: on "
       "its own data, with a gradient all-reduce.",
       choice(loadtest.mode, {{"independent", LoadTestMode::independent}, {"ddp", LoadTestMode::ddp}})},
      {"quick", of_loadtest, "fewer iterations of smaller images", flag(loadtest.quick, true)},
      {"device", of_loadtest, "another word for --backend",
       choice(common.backend, {{"cuda", Backend::cuda}, {"cpu", Backend::host}}), Scope::config},
  };
}

Rules compare_rules(CompareOptions& options) {
  ComparisonOptions& comparison = options.comparison;
  // The name may contain '=', the price does not.
  const auto add_price = [&prices = comparison.prices](Text text) -> std::string {
    const std::size_t equals = text.rfind('=');
    const std::string name(text.substr(0, equals));
    const auto per_hour =
        equals == Text::npos ? std::nullopt : parse_within(text.substr(equals + 1), above_zero, 1e9);
    const auto is_twice = [&](const Price& price) { return price.name == name; };
    if (name.empty() || !per_hour || std::any_of(prices.begin(), prices.end(), is_twice))
      return "use NAME=X with a price above 0 and up to 1000000000, each NAME once, such as H200=2.5";
    prices.push_back({name, *per_hour});
    return {};
  };
  const auto prices = [&prices = comparison.prices] {
    Json texts = Json::array();
    for (const Price& price : prices) texts.push_back(price.name + "=" + digits(price.per_hour));
    return texts;
  };
  return {
      {"fleet", of_compare,
       "one row per node of many results\nArguments are results, run directories or directories of run "
       "directories.",
       flag(options.fleet, true), Scope::config},
      {"tolerance", of_compare, "tolerated regression against an earlier file",
       share(comparison.tolerance, 0), Scope::config},
      {"price",
       of_compare,
       "price per device and hour, such as H200=2.5\nNAME: a file's label or a device's; repeatable.",
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

OptionValue serve(std::optional<ServeAddress>& target) {
  return {
      "[ADDRESS:]PORT",
      [&target](Text text) -> std::string {
        const auto address = parse_serve_address(text);
        if (!address)
          return "use a port of 0 to 65535 (0: any free one), alone or after an IP address, such as 8080, "
                 "0.0.0.0:8080 or [::1]:8080";
        target = address;
        return {};
      },
      [&target] { return target ? Json(target->text()) : Json(); }};
}

OptionValue expect(RunOptions& run) {
  return {"FILE",
          [&run](Text text) -> std::string {
            const auto expected = read_expectations(std::string(text));
            if (!expected.ok()) return expected.status().what();
            run.expect = text;
            run.expected = expected.value();
            return {};
          },
          [&run] { return run.expect.empty() ? Json() : Json(run.expect); }};
}

std::string expect_help() {
  std::vector<std::string> names;
  for (const Preset& one : expected_nodes()) names.push_back(one.name);
  return fmt::format(
      "what a healthy node has\nA TOML file, or one of {}. A node that differs ends with exit code 3 before "
      "any load, with 5 under load. Keys:\n{}",
      fmt::join(names, ", "), expectations_help());
}

Rules common_rules(CommonOptions& common, RunOptions& run) {
  const OptionValue answered = {"", [](Text) { return std::string(); }};  // handled before any value
  return {
      {"backend", of_runs | of_devices | of_reproduce,
       "what computes\nauto: cuda, and host only on a node without NVIDIA GPUs. EGT_BACKEND=host selects "
       "host.",
       choice(common.backend,
              {{"auto", Backend::automatic}, {"cuda", Backend::cuda}, {"host", Backend::host}})},
      {"devices", of_runs | of_reproduce, "device of each local rank (its local rank)",
       wholes(common.devices, "0,2", "device numbers of 0 to 1023, such as 0,2", {.distinct = false}, 0,
              1023)},
      {"output", of_runs | of_compare,
       "run directory, or the file of compare\nDefault: extreme_gpu_trainer_runs/<UTC time>. compare writes "
       "JSON, or a page if it ends with .html; loadtest also writes a file that ends with .json.",
       text(common.output, "PATH", "the path of a directory, or of compare's file"), Scope::config, false, 0,
       "-o"},
      {"config", of_all, "options by long name from a TOML file\nThe command line overrides them.",
       text(common.config, "FILE", "the path of a TOML file"), Scope::command_line},
      {"preset", of_runs, "options of presets/NAME.toml\n--config and the command line override them.",
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
      {"print-config", of_all, "print the options for --config, start nothing",
       flag(common.print_config, true), Scope::command_line},
      {"seed", of_training | of_loadtest, "seed of all random numbers and patterns",
       whole(common.seed, 0, ~std::uint64_t{0})},
      {"metrics-sample-rate", of_runs, "seconds between samples of the sensors",
       with_defaults(number(common.metrics_sample_rate, "S", "seconds of 0.1 to 3600", 0.1, 3600),
                     {{"bench", "0.1"}, {"loadtest", "5"}, {"--quick", "1"}})},
      {"progress", of_runs, "progress on the console; auto: bar on a terminal, else a line per 10 s",
       choice(common.progress, {{"auto", ProgressStyle::automatic},
                                {"bar", ProgressStyle::bar},
                                {"lines", ProgressStyle::lines},
                                {"none", ProgressStyle::none}}),
       Scope::config},
      {"log-file", of_runs, "append all ranks' records to this file",
       text(common.log_file, "PATH", "the path of a file"), Scope::config},
      {"nodes-file", of_runs | of_report,
       "verdict per node, and lines that drain\nOne line per failed node for Slurm, and outside a job for "
       "kubectl.",
       text(common.requested_files.nodes, "PATH", "the path of a file"), Scope::config},
      {"ocp", of_runs | of_report,
       "result for OCP Test and Validation tools\nJSON lines of its output specification 2.0.",
       text(common.requested_files.ocp, "PATH", "the path of a file"), Scope::config},
      {"expect", of_runs, expect_help(), expect(run), Scope::config},
      {"write-expect", of_devices, "write a file for --expect\nIt has the values of rank 0's node.",
       text(common.write_expect, "PATH", "the path of a file"), Scope::config},
      {"history", of_burn | of_compare,
       "a line per GPU and run; slower GPUs are degraded\nburn adds its run to DIR and compares each GPU "
       "with its own "
       "past. compare shows it.",
       text(common.history, "DIR", "the path of a directory"), Scope::config},
      {"serve", of_injections,
       "serve the live page, /metrics and /healthz\nOn rank 0 at http://127.0.0.1:PORT/. An address that "
       "other hosts reach needs EGT_SERVE_TOKEN.",
       serve(run.serve), Scope::config},
      {"log-level", of_runs, "trace, debug, info, warning, error or off",
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
  add("What is compared", compare_rules(options.compare));
  add("Backend and output", common_rules(options.common, options.run));
  return all;
}

}  // namespace egt
