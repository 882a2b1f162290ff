#include "workload/links/link_results.hpp"

#include <algorithm>
#include <cstddef>
#include <span>

#include <fmt/format.h>

namespace egt {
namespace {

constexpr double giga = 1e-9, micro = 1e6;

Json rate_json(double bytes, double seconds) {
  return seconds > 0 ? Json(bytes / seconds * giga) : Json();
}

Json rates_json(const std::vector<std::uint64_t>& sizes, std::span<const double> seconds, double factor) {
  Json rates = Json::array();
  for (std::size_t i = 0; i < sizes.size() && i < seconds.size(); ++i)
    rates.push_back(rate_json(factor * static_cast<double>(sizes[i]), seconds[i]));
  return rates;
}

std::string arrow(int from, int to) {
  return fmt::format("{}->{}", from, to);
}

void put_pair_figures(const PairResult& result, const LinkType& type,
                      const std::set<std::pair<int, int>>& slow, Json& figures) {
  const PairSide &forth = result.side_of(true), &back = result.side_of(false);
  const auto largest = static_cast<double>(forth.largest);
  const std::vector<std::uint64_t> sizes = link_sizes(forth.largest);
  const double slower = std::max(forth.one_way_largest.median, back.one_way_largest.median);
  auto both = result.side_a.both_ways;
  for (std::size_t i = 0; i < both.size(); ++i) both[i] = std::max(both[i], result.side_b.both_ways[i]);
  const std::string to_b = arrow(result.a, result.b), to_a = arrow(result.b, result.a);
  figures.update({{"size_bytes", forth.largest},
                  {"repeats", forth.repeats},
                  {"looks", result.looks()},
                  {"one_way",
                   {{to_b, bandwidth_json(largest, forth.one_way_largest)},
                    {to_a, bandwidth_json(largest, back.one_way_largest)}}},
                  {"both_ways", bandwidth_json(2 * largest, result.both_ways())},
                  {"one_way_gb_per_second", rate_json(largest, slower)},
                  {"both_ways_gb_per_second", rate_json(2 * largest, result.both_ways().median)},
                  {"sizes", sizes},
                  {"bandwidths",
                   {{to_b, rates_json(sizes, forth.one_way, 1)},
                    {to_a, rates_json(sizes, back.one_way, 1)},
                    {"both", rates_json(sizes, both, 2)}}},
                  {"ratio_line_rate", type.line_rate_bytes_per_second && slower > 0
                                          ? Json(largest / slower / *type.line_rate_bytes_per_second)
                                          : Json()}});
  figures["one_way"][to_b]["below_limit"] = slow.contains({result.a, result.b});
  figures["one_way"][to_a]["below_limit"] = slow.contains({result.b, result.a});
  figures.update(latency_json(result.side_a.latency));
}

/// All fields of an entry, as null, for pairs without a measurement.
Json empty_pair_figures() {
  Json figures = Json::object();
  for (const char* name : {"size_bytes", "repeats", "looks", "one_way", "both_ways", "one_way_gb_per_second",
                           "both_ways_gb_per_second", "sizes", "bandwidths", "ratio_line_rate"})
    figures[name] = nullptr;
  figures.update(latency_json({}));
  return figures;
}

}  // namespace

std::string method_name(LinkMethod method, bool is_gpu) {
  if (method == LinkMethod::copy) return "peer copies";
  return is_gpu ? "NCCL" : "MPI";
}

PartReport pair_report(const PairResult& result, const std::vector<LinkEndpoint>& ends,
                       const std::set<std::pair<int, int>>& slow) {
  const LinkEndpoint &a = ends[static_cast<std::size_t>(result.a)],
                     &b = ends[static_cast<std::size_t>(result.b)];
  const LinkType type = classify(a, b);
  const std::string method = method_name(result.method, a.is_gpu);
  PartReport part;
  part.name = fmt::format("pair {}-{} by {}", result.a, result.b, method);
  part.description =
      fmt::format("Rank {} and rank {}: one way, the other, and both at once", result.a, result.b);
  part.of_all_ranks = true;
  part.success = result.state != PairResult::State::lost;
  if (!part.success) part.failure = result.why;
  part.figures = empty_pair_figures();
  part.figures.update(
      {{"measurement", "pair"},
       {"from", result.a},
       {"to", result.b},
       {"hostnames", {host_name(a, ends), host_name(b, ends)}},
       {"method", method},
       {"link", to_json(type)},
       {"not_judged",
        shares_cores(a, ends) || shares_cores(b, ends)
            ? Json("ranks share cores, so a transfer waits for a core: only --warn-below applies")
            : Json()},
       {"measured", result.state == PairResult::State::done},
       {"not_possible", result.state == PairResult::State::impossible ? Json(result.why) : Json()}});
  if (result.state == PairResult::State::done) put_pair_figures(result, type, slow, part.figures);
  return part;
}

PartReport round_report(const RoundResult& result, int number, bool is_gpu) {
  PartReport part;
  part.name = fmt::format("pairs at once, round {}", number);
  part.description = "Disjoint pairs, all at the same time and both ways";
  part.of_all_ranks = true;
  part.success = result.lost.empty();
  part.failure = result.lost;
  Json pairs = Json::array();
  double sum = 0;
  for (const RoundResult::PairFigures& pair : result.pairs) {
    const double bytes = 2 * static_cast<double>(pair.bytes);
    if (pair.both_ways.is_measured()) sum += bytes / pair.both_ways.median * giga;
    pairs.push_back({{"from", pair.a},
                     {"to", pair.b},
                     {"size_bytes", pair.bytes > 0 ? Json(pair.bytes) : Json()},
                     {"both_ways", pair.bytes > 0 ? bandwidth_json(bytes, pair.both_ways) : Json()}});
  }
  part.figures = {{"measurement", "round"},
                  {"method", method_name(LinkMethod::exchange, is_gpu)},
                  {"repeats", result.repeats},
                  {"pairs", pairs},
                  {"together_gb_per_second", sum > 0 ? Json(sum) : Json()}};
  return part;
}

PartReport host_report(const HostResult& result, const LinkEndpoint& end) {
  PartReport part;
  part.name = "host and device";
  part.description = "Copies between the device and pinned host memory of each NUMA node";
  part.success = result.lost.empty();
  part.failure = result.lost;
  const auto bytes = static_cast<double>(result.outcome.bytes);
  Json nodes = Json::array();
  for (const HostCopyFigures& node : result.outcome.nodes)
    nodes.push_back({{"numa_node", node.numa_node ? Json(*node.numa_node) : Json()},
                     {"host_to_device", bandwidth_json(bytes, node.to_device)},
                     {"device_to_host", bandwidth_json(bytes, node.from_device)},
                     {"both_ways", bandwidth_json(2 * bytes, node.both_ways)}});
  const bool made = result.is_made;
  const auto fastest = [&](LinkTiming HostCopyFigures::*timing) {
    double least = 0;
    for (const HostCopyFigures& node : result.outcome.nodes)
      if (least == 0 || (node.*timing).median < least) least = (node.*timing).median;
    return rate_json(bytes, least);
  };
  const LinkType type = classify_to_host(end);
  part.figures = {{"measurement", "host"},
                  {"link", to_json(type)},
                  {"device_numa_node", end.numa_node < 0 ? Json() : Json(end.numa_node)},
                  {"size_bytes", made ? Json(result.outcome.bytes) : Json()},
                  {"repeats", made ? Json(result.outcome.repeats) : Json()},
                  {"nodes", nodes},
                  {"host_to_device_gb_per_second", fastest(&HostCopyFigures::to_device)},
                  {"device_to_host_gb_per_second", fastest(&HostCopyFigures::from_device)}};
  return part;
}

PartReport collective_report(const CollectiveResult& result, int ranks) {
  PartReport part;
  part.name = to_string(result.collective);
  part.description = "All ranks; bandwidths as nccl-tests defines them";
  part.of_all_ranks = true;
  part.success = result.lost.empty() && result.outcome.findings.empty();
  part.failure = result.lost.empty() && !part.success ? "it gave wrong elements" : result.lost;
  Json sizes = Json::array(), algorithm = Json::array(), bus = Json::array(), times = Json::array();
  const double factor = bus_factor(result.collective, ranks);
  for (const CollectiveSize& size : result.outcome.sizes) {
    sizes.push_back(size.bytes);
    times.push_back(size.seconds * micro);
    algorithm.push_back(rate_json(static_cast<double>(size.bytes), size.seconds));
    bus.push_back(rate_json(factor * static_cast<double>(size.bytes), size.seconds));
  }
  const bool made = !result.outcome.sizes.empty();
  part.figures = {{"measurement", "collective"},
                  {"devices", ranks},
                  {"size_bytes", made ? sizes.back() : Json()},
                  {"repeats", made ? Json(result.outcome.repeats) : Json()},
                  {"algorithm_gb_per_second", made ? algorithm.back() : Json()},
                  {"bus_gb_per_second", made ? bus.back() : Json()},
                  {"least_latency_us", made ? times.front() : Json()},
                  {"sizes", sizes},
                  {"times_us", times},
                  {"algorithm_bandwidths", algorithm},
                  {"bus_bandwidths", bus}};
  return part;
}

}  // namespace egt
