#include "command/options/measurement_rules.hpp"

#include <array>

#include <fmt/format.h>

#include "egt/core/math/voxel_math.hpp"
#include "workload/links/link_judgement.hpp"

namespace egt {
namespace {

/// Parses one of `names`.
template <typename T, std::size_t N>
auto one_of(const std::array<T, N>& names) {
  return [names](Text text) -> std::optional<T> {
    for (const T name : names)
      if (to_string(name) == text) return name;
    return std::nullopt;
  };
}

}  // namespace

Rules link_rules(LinksOptions& links) {
  OptionValue warn_below =
      parsed(links.warn_below, "RATE", "0, or a rate such as 20Gb/s (bits) or 2.5GB/s (bytes)",
             [](Text text) { return within(parse_bit_rate(text), 0.0, no_limit); });
  warn_below.config = [&links] {
    return in_units(links.warn_below, {{"Gb/s", 1e9}, {"Mb/s", 1e6}, {"Kb/s", 1e3}, {"b/s", 1.0}});
  };
  static const std::string limits = fmt::format(
      "a pair that carries less one way is slow (20Gb/s; host: 500Mb/s; 0: no such limit); so is "
      "one below {:.0f} % of its line rate, or {:.0f} % (host memory: {:.0f} %) of the median of "
      "its like",
      100 * min_share_of_line_rate, 100 * min_share_of_peers, 100 * min_share_of_peers_in_memory);
  return {
      {"size", of_links, "bytes of the largest transfer (1GB; host: 16MB)",
       size(links.size, "a size of 1KB to 1TB, such as 1GB", 1000, 1'000'000'000'000)},
      {"repeats", of_links, "number of measurements; medians are reported (10)",
       whole(links.repeats, 1, 1000)},
      {"warn-below", of_links, limits.c_str(), std::move(warn_below)},
  };
}

Rules bench_rules(BenchOptions& bench) {
  using enum BenchWorkload;
  using enum BenchMode;
  constexpr ListLimits sizes = {.least = 1, .most = 32};
  constexpr std::int64_t one = 1;
  return {
      {"ceilings", of_bench,
       "every part of the load compared with the machine's own limit, measured in turn in this run, "
       "instead of scaling",
       flag(bench.ceilings, true)},
      {"workload", of_bench, "what is measured (mlp,multimodal,voxelize)",
       list(bench.workloads, "NAME,..", "one or more of mlp, multimodal and voxelize, each once", {},
            one_of(std::array{mlp, multimodal, voxelize}))},
      {"mode", of_bench,
       "on which devices: each alone, or together by peer copies, by NCCL or MPI, sharing one load, or one "
       "device's batch of mlp (single,p2p,collective,hetero,strong; single always)",
       list(bench.modes, "NAME,..", "one or more of single, p2p, collective, hetero and strong, each once",
            {}, one_of(std::array{single, p2p, collective, hetero, strong}))},
      {"points", of_bench, "voxelize: points per device (10000,100000,1000000,10000000; host: 10000,100000)",
       wholes(bench.points, "N,N,..", "1 to 32 whole numbers of 1 to 1000000000, each once", sizes, one,
              std::int64_t{1'000'000'000})},
      {"grid", of_bench, "voxelize: voxels along each axis (256; host: 64)",
       whole(bench.grid, 1, VoxelGrid::max_dims)},
      {"batches", of_bench, "multimodal: samples per device (1,8,32,128,256; host: 1,8)",
       wholes(bench.batches, "N,N,..", "1 to 32 whole numbers of 1 to 65536, each once", sizes, one,
              std::int64_t{65'536})},
      {"streams", of_bench,
       "where multimodal's streams come into being: on each device, which gets the first one's timeline, or "
       "all on the first device (own)",
       choice(bench.streams, {{"own", StreamOrigin::own}, {"first", StreamOrigin::first}})},
      {"gradient-compression", of_bench,
       "mlp: also send compressed gradients in mode collective, as bf16 or only the largest SHARE of each "
       "bucket; the rest is added to the next step's (none)",
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
      {"micro-batches", of_bench, "pipeline: micro-batches per step (4 per stage)",
       whole(bench.micro_batches, 1, 1024)},
      {"memory", of_bench,
       "of mlp, for what training keeps on a device from step to step: weights, moments and gradients; a "
       "mode that needs more is refused (what there is)",
       size(bench.max_state_bytes, "a size of 1KB to 1024TB, such as 72GB", 1000, 1024'000'000'000'000)},
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
      {"num-workers", of_loadtest,
       "threads per rank that generate or read images (0: the device generates them)",
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
  // The name may contain '=', the price does not.
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
      {"tolerance", of_compare, "tolerated regression of a metric against an earlier file (5%)",
       share(comparison.tolerance, 0), Scope::config},
      {"price",
       of_compare,
       "price per device and hour; NAME: a file's label or a device's, as H200=2.5; repeatable (none)",
       {"NAME=X", add_price, prices},
       Scope::config,
       true},
  };
}

}  // namespace egt
