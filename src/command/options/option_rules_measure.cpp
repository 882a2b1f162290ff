#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <set>
#include <utility>

#include "command/options/option_parsers.hpp"
#include "command/options/option_table.hpp"
#include "egt/core/math/voxel_math.hpp"
#include "egt/core/units.hpp"

namespace egt {
namespace {

using Text = std::string_view;

bool parse_link_size(Text text, Options& options) {
  constexpr std::uint64_t least = 1000, most = 1'000'000'000'000;
  const auto size = parse_size(text);
  if (!size.ok() || size.value() < least || size.value() > most) return false;
  options.links.size = size.value();
  return true;
}

bool parse_warn_below(Text text, Options& options) {
  const auto rate = parse_bit_rate(text);
  if (rate.ok()) options.links.warn_below = rate.value();
  return rate.ok();
}

std::vector<OptionRule> link_rules() {
  return {
      {"size", of_links, "SIZE", "bytes of the largest transfer (1GB; host: 16MB)",
       "a size of 1KB to 1TB, such as 1GB", parse_link_size, true, false, explain_size},
      {"repeats", of_links, "N", "times that everything is measured; medians are told (10)",
       "a whole number of 1 to 1000",
       [](Text text, Options& o) { return parse_integer(text, 1, 1000, o.links.repeats); }},
      {"warn-below", of_links, "RATE",
       "a pair that carries less one way is slow (20Gb/s; host: 500Mb/s; 0: none is by that); so is one "
       "below "
       "75 % of its line rate, or 90 % (host memory: 50 %) of the median of its like",
       "0, or a rate such as 20Gb/s (bits) or 2.5GB/s (bytes)", parse_warn_below},
  };
}

constexpr std::size_t most_sizes = 32;

/// "mlp,voxelize": each of `names` once.
template <typename T, std::size_t N>
bool parse_names(Text text, const std::array<T, N>& names, std::vector<T>& values) {
  std::vector<T> parsed;
  while (true) {
    const std::size_t comma = text.find(',');
    const Text one = text.substr(0, comma);
    const auto named =
        std::find_if(names.begin(), names.end(), [&](T name) { return to_string(name) == one; });
    if (named == names.end() || std::find(parsed.begin(), parsed.end(), *named) != parsed.end()) return false;
    parsed.push_back(*named);
    if (comma == Text::npos) break;
    text.remove_prefix(comma + 1);
  }
  values = std::move(parsed);
  return true;
}

/// Sizes of batches, each once.
bool parse_sizes(Text text, std::int64_t most, std::vector<std::int64_t>& values) {
  std::vector<std::int64_t> parsed;
  if (!parse_list(text, std::int64_t{1}, most, parsed) || parsed.size() > most_sizes) return false;
  if (std::set(parsed.begin(), parsed.end()).size() != parsed.size()) return false;
  values = std::move(parsed);
  return true;
}

bool parse_workloads(Text text, Options& options) {
  using enum BenchWorkload;
  return parse_names(text, std::array{mlp, multimodal, voxelize}, options.bench.workloads);
}

bool parse_modes(Text text, Options& options) {
  using enum BenchMode;
  return parse_names(text, std::array{single, p2p, collective, hetero}, options.bench.modes);
}

bool parse_streams(Text text, Options& options) {
  static constexpr std::array<std::pair<Text, StreamOrigin>, 2> names = {
      {{"own", StreamOrigin::own}, {"first", StreamOrigin::first}}};
  return parse_name(text, names, options.bench.streams);
}

bool parse_trial_time(Text text, Options& options) {
  const auto seconds = parse_duration(text);
  if (!seconds.ok() || seconds.value() < 0.01 || seconds.value() > 3600) return false;
  options.bench.trial_seconds = seconds.value();
  return true;
}

std::vector<OptionRule> bench_rules() {
  return {
      {"workload", of_bench, "NAME,..", "what is measured (mlp,multimodal,voxelize)",
       "one or more of mlp, multimodal and voxelize, each once", parse_workloads},
      {"mode", of_bench, "NAME,..",
       "on which devices: each alone, or together by peer copies, by NCCL or MPI, or sharing one load "
       "(single,p2p,collective,hetero; single always)",
       "one or more of single, p2p, collective and hetero, each once", parse_modes},
      {"points", of_bench, "N,N,..",
       "of voxelize, in a device's cloud (10000,100000,1000000,10000000; host: 10000,100000)",
       "1 to 32 whole numbers of 1 to 1000000000, each once",
       [](Text text, Options& o) { return parse_sizes(text, 1'000'000'000, o.bench.points); }},
      {"grid", of_bench, "N", "of voxelize, voxels along each axis (256; host: 64)",
       "a whole number of 1 to 1024",
       [](Text text, Options& o) {
         return parse_integer(text, std::int32_t{1}, VoxelGrid::most_dims, o.bench.grid);
       }},
      {"batches", of_bench, "N,N,..", "of multimodal, samples a device (1,8,32,128,256; host: 1,8)",
       "1 to 32 whole numbers of 1 to 65536, each once",
       [](Text text, Options& o) { return parse_sizes(text, 65'536, o.bench.batches); }},
      {"streams", of_bench, "own|first",
       "where multimodal's streams come into being: on each device, which gets the first one's timeline, or "
       "all on the first device (own)",
       "own or first", parse_streams},
      {"trial-time", of_bench, "TIME", "how long each configuration is measured, after its warm-up (1s)",
       "a time of 0.01s to 1h, such as 1s", parse_trial_time, true, false, explain_duration},
  };
}

}  // namespace

std::vector<OptionRule> measure_rules() {
  std::vector<OptionRule> all = link_rules();
  for (OptionRule& rule : bench_rules()) all.push_back(std::move(rule));
  return all;
}

}  // namespace egt
