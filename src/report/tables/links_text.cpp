#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "egt/core/histogram.hpp"
#include "egt/core/json_access.hpp"
#include "egt/core/record_text.hpp"
#include "egt/core/text.hpp"
#include "egt/core/units.hpp"
#include "report/tables/summary.hpp"
#include "report/tables/text_table.hpp"

namespace egt {
namespace {

using Direction = std::pair<int, int>;  ///< from, to
constexpr int max_listed_ranks = 8;     ///< above this, matrices replace the list of pairs

/// In microseconds.
struct Latency {
  std::optional<double> value;
  bool scatters = false;  ///< another measurement may differ
};

/// Measurements of one direction of a pair, using its faster method.
struct DirectionFigures {
  std::optional<double> one_way, both_ways;  ///< in GB/s; `both_ways` is the sum of both directions
  std::string method;                        ///< method of the one-way rate
  double lowest = 0, highest = 0;            ///< of the rate's repeats
  Latency latency;                           ///< by the same method
  Latency message;                           ///< latency of a message
  /// Whether repeats differ so much that another measurement may give a different rate.
  bool is_unstable() const { return one_way && highest - lowest > *one_way * unstable_percent / 100; }
};

/// Data of all pair entries.
struct Pairs {
  std::map<Direction, DirectionFigures> figures;
  std::map<Direction, Json> types;       ///< lower rank first
  std::map<Direction, Json> line_ratio;  ///< of the faster method, lower rank first
  std::set<Direction> failed;            ///< by every method, in both directions
};

std::string number(std::optional<double> value) {
  if (!value) return not_measured;
  return *value >= 100 ? fmt::format("{:.0f}", *value) : fmt::format("{:#.3g}", *value);
}

std::string latency_text(const Latency& latency) {
  return number(latency.value) + (latency.scatters ? " scatters" : "");
}

std::string one_way_text(const DirectionFigures& figures) {
  return number(figures.one_way) + (figures.is_unstable() ? " unstable" : "");
}

std::string rate_text(double gigabytes) {
  return fmt::format("{} GB/s ({})", number(gigabytes), format_bit_rate(gigabytes * 8e9));
}

/// Entries of one test, in result order.
std::vector<const Json*> entries_of(const Json& result, const char* measurement) {
  std::vector<const Json*> found;
  for (const Json& entry : member(result, "results"))
    if (text_at(entry, "measurement") == measurement) found.push_back(&entry);
  return found;
}

std::optional<Direction> pair_of(const Json& entry) {
  const auto from = value_at<int>(entry, "from"), to = value_at<int>(entry, "to");
  if (!from || !to) return std::nullopt;
  return Direction(*from, *to);
}

void keep_better(std::optional<double>& kept, std::optional<double> value, bool more_is_better) {
  if (value && (!kept || (more_is_better ? *value > *kept : *value < *kept))) kept = value;
}

void add_direction(const Json& entry, const Direction& direction, Pairs& pairs) {
  DirectionFigures& figures = pairs.figures[direction];
  const std::string name = fmt::format("{}->{}", direction.first, direction.second);
  const Json& rates = member(member(entry, "one_way"), name);
  const auto one_way = value_at<double>(rates, "gb_per_second");
  const Latency latency{value_at<double>(entry, "latency_us"),
                        value_at<bool>(entry, "latency_scatters").value_or(false)};
  if (one_way && (!figures.one_way || *one_way > *figures.one_way)) {
    figures.one_way = one_way;
    figures.lowest = value_at<double>(rates, "lowest_gb_per_second").value_or(*one_way);
    figures.highest = value_at<double>(rates, "highest_gb_per_second").value_or(*one_way);
    figures.method = text_at(entry, "method");
    figures.latency = latency;
    pairs.line_ratio[std::minmax(direction.first, direction.second)] = member(entry, "ratio_line_rate");
  }
  keep_better(figures.both_ways, value_at<double>(member(entry, "both_ways"), "gb_per_second"), true);
  if (text_at(entry, "method") != "peer copies") figures.message = latency;
}

Pairs pairs_in(const Json& result) {
  Pairs pairs;
  for (const Json* entry : entries_of(result, "pair")) {
    const auto pair = pair_of(*entry);
    if (!pair) continue;
    pairs.types[*pair] = member(*entry, "link");
    add_direction(*entry, *pair, pairs);
    add_direction(*entry, {pair->second, pair->first}, pairs);
  }
  for (const auto& [direction, figures] : pairs.figures)
    if (!figures.one_way) pairs.failed.insert(direction);
  return pairs;
}

int size_of(const Json& result) {
  return static_cast<int>(member(result, "ranks").size());
}

std::string found_text(const Json& result) {
  const int size = size_of(result);
  const auto hosts = member(member(result, "system_info"), "hostnames").size();
  return fmt::format("Found {} device{} on {} host{}\n", size, size == 1 ? "" : "s", hosts,
                     hosts == 1 ? "" : "s");
}

std::string pair_list(const Json& result, const Pairs& pairs) {
  if (size_of(result) > max_listed_ranks || pairs.types.empty()) return "";
  std::vector<Row> rows = {
      {"Pair", "Link", "GB/s ->", "GB/s <-", "Both ways", "Of line rate", "Latency us", "Method"}};
  for (const auto& [pair, type] : pairs.types) {
    const DirectionFigures& forth = pairs.figures.at(pair);
    const DirectionFigures& back = pairs.figures.at({pair.second, pair.first});
    const auto ratio = pairs.line_ratio.find(pair);
    const bool reported = ratio != pairs.line_ratio.end() && ratio->second.is_number();
    rows.push_back({fmt::format("{} - {}", pair.first, pair.second), text_at(type, "text"),
                    one_way_text(forth), one_way_text(back), number(forth.both_ways),
                    reported ? fmt::format("{:.0f} %", ratio->second.get<double>() * 100) : not_measured,
                    latency_text(forth.latency), forth.method.empty() ? "failed" : forth.method});
  }
  return titled_table("Pairs, by the better method", std::move(rows));
}

/// A square table over all ranks. `cell` gets the ranks of row and column.
std::string matrix(const std::string& title, int size, const std::function<std::string(Direction)>& cell) {
  std::vector<Row> rows = {{"rank"}};
  for (int to = 0; to < size; ++to) rows[0].push_back(std::to_string(to));
  for (int from = 0; from < size; ++from) {
    Row& row = rows.emplace_back(Row{std::to_string(from)});
    for (int to = 0; to < size; ++to) row.push_back(from == to ? "X" : cell({from, to}));
  }
  return titled_table(title, std::move(rows));
}

/// Link type in the notation of `nvidia-smi topo -m`.
std::string short_type(const Json& type) {
  const std::string kind = text_at(type, "kind");
  const auto width = value_at<int>(type, "width");
  if (kind == "nvlink") return fmt::format("NV{}", width.value_or(0));
  if (kind == "pcie")
    return fmt::format("PCIe{}x{}", value_at<int>(type, "generation").value_or(0), width.value_or(0));
  if (kind == "network") return "NET";
  return kind == "memory" ? "MEM" : "?";
}

std::string type_legend(const Pairs& pairs) {
  std::map<std::string, std::set<std::string>> texts;
  for (const auto& [pair, type] : pairs.types) texts[short_type(type)].insert(text_at(type, "text"));
  std::string text;
  for (const auto& [name, meanings] : texts)
    text += fmt::format("  {}: {}\n", name, printable(fmt::format("{}", fmt::join(meanings, "; "))));
  return text;
}

std::string matrices(const Json& result, const Pairs& pairs) {
  if (pairs.types.empty()) return "";
  const int size = size_of(result);
  const auto figure = [&](auto text) {
    return [&pairs, text](Direction direction) -> std::string {
      if (pairs.failed.contains(direction)) return "failed";
      const auto found = pairs.figures.find(direction);
      return found == pairs.figures.end() ? not_measured : text(found->second);
    };
  };
  const auto rate = [&](std::optional<double> DirectionFigures::*which) {
    return figure([which](const DirectionFigures& figures) { return number(figures.*which); });
  };
  return matrix("One way, from the row's rank to the column's, GB/s", size,
                rate(&DirectionFigures::one_way)) +
         matrix("Both ways at once, together, GB/s", size, rate(&DirectionFigures::both_ways)) +
         matrix("Latency of a message, microseconds", size,
                figure([](const DirectionFigures& figures) { return latency_text(figures.message); })) +
         matrix("Links", size,
                [&](Direction direction) {
                  const auto type = pairs.types.find(std::minmax(direction.first, direction.second));
                  return type == pairs.types.end() ? std::string(not_measured) : short_type(type->second);
                }) +
         type_legend(pairs);
}

std::string rounds_text(const Json& result) {
  std::vector<Row> rows = {{"Round", "Pairs", "Slowest pair GB/s", "Together GB/s"}};
  for (const Json* entry : entries_of(result, "round")) {
    std::vector<std::string> names;
    std::optional<double> slowest;
    for (const Json& pair : member(*entry, "pairs")) {
      names.push_back(fmt::format("{}-{}", value_at<int>(pair, "from").value_or(-1),
                                  value_at<int>(pair, "to").value_or(-1)));
      keep_better(slowest, value_at<double>(member(pair, "both_ways"), "gb_per_second"), false);
    }
    constexpr std::size_t max_named = 8;
    const bool failed = !value_at<bool>(*entry, "success").value_or(false);
    const std::string which = names.size() > max_named ? fmt::format("{} pairs", names.size())
                                                       : fmt::format("{}", fmt::join(names, " "));
    rows.push_back({std::to_string(rows.size()), failed ? "failed" : which, number(slowest),
                    number(value_at<double>(*entry, "together_gb_per_second"))});
  }
  return titled_table("Disjoint pairs at once, both ways", std::move(rows));
}

std::string host_text(const Json& result) {
  std::vector<Row> rows = {{"Rank", "Link", "NUMA node", "Host to device", "Device to host", "Both ways"}};
  const auto rate = [](const Json& node, const char* way) {
    return number(value_at<double>(member(node, way), "gb_per_second"));
  };
  for (const Json* entry : entries_of(result, "host")) {
    const std::string rank = std::to_string(value_at<int>(*entry, "rank").value_or(-1));
    const std::string link = text_at(member(*entry, "link"), "text");
    if (member(*entry, "nodes").empty())
      rows.push_back({rank, link, not_measured, "failed", "failed", "failed"});
    for (const Json& node : member(*entry, "nodes")) {
      const auto numa = value_at<int>(node, "numa_node");
      rows.push_back({rank, link, numa ? std::to_string(*numa) : "not bound", rate(node, "host_to_device"),
                      rate(node, "device_to_host"), rate(node, "both_ways")});
    }
  }
  return titled_table("Devices and their hosts, pinned memory, GB/s", std::move(rows));
}

std::string collectives_text(const Json& result) {
  std::vector<Row> rows = {{"Collective", "Largest", "Algorithm GB/s", "Bus GB/s", "Shortest us"}};
  for (const Json* entry : entries_of(result, "collective")) {
    const auto size = value_at<double>(*entry, "size_bytes");
    rows.push_back({text_at(*entry, "test_name"), size ? format_bytes(*size) : "failed",
                    number(value_at<double>(*entry, "algorithm_gb_per_second")),
                    number(value_at<double>(*entry, "bus_gb_per_second")),
                    number(value_at<double>(*entry, "least_latency_us"))});
  }
  return titled_table("Collectives of all ranks (bandwidths as nccl-tests defines them)", std::move(rows));
}

/// Directions whose repeats differ too much for a single rate; empty: none.
std::string unstable_text(const Pairs& pairs) {
  std::size_t count = 0;
  const std::pair<const Direction, DirectionFigures>* worst = nullptr;
  const auto range = [](const DirectionFigures& figures) { return figures.highest / figures.lowest; };
  for (const auto& one : pairs.figures) {
    if (!one.second.is_unstable()) continue;
    ++count;
    if (!worst || range(one.second) > range(worst->second)) worst = &one;
  }
  if (!worst) return "";
  const auto& [direction, figures] = *worst;
  return fmt::format(
      "  Unstable:              {} of {} directions, whose repeats differ by more than {:.0f} %; most rank "
      "{} -> "
      "rank {}: {} to {} GB/s\n",
      count, pairs.figures.size(), unstable_percent, direction.first, direction.second,
      number(figures.lowest), number(figures.highest));
}

std::string pair_summary(const Pairs& pairs) {
  std::vector<std::pair<double, Direction>> rates;
  std::vector<double> values;
  for (const auto& [direction, figures] : pairs.figures)
    if (figures.one_way) {
      rates.emplace_back(*figures.one_way, direction);
      values.push_back(*figures.one_way);
    }
  if (rates.empty()) return "";
  std::sort(rates.begin(), rates.end());
  const auto named = [](const auto& one) {
    return fmt::format("{}, rank {} -> rank {}", rate_text(one.first), one.second.first, one.second.second);
  };
  return fmt::format(
             "  Lowest pair, one way:  {}\n  Median:                {}\n  Highest:               {}\n",
             named(rates.front()), rate_text(median_of(values)), named(rates.back())) +
         unstable_text(pairs);
}

/// New errors in the link counters during the run; empty if not reported.
std::string link_errors_text(const Json& result) {
  std::map<std::string, std::uint64_t> grown;
  for (const auto& [rank, counters] : member(result, "counters").items())
    for (const char* name : {"nvlink_crc", "nvlink_replay", "nvlink_recovery", "pcie_replay"}) {
      const Json& counter = member(counters, name);
      const auto before = value_at<std::uint64_t>(counter, "before"),
                 after = value_at<std::uint64_t>(counter, "after");
      if (before && after) grown[name] += *after - std::min(*before, *after);
    }
  std::vector<std::string> parts;
  for (const auto& [name, count] : grown) parts.push_back(fmt::format("{} {}", name, count));
  return parts.empty() ? "" : fmt::format("  New link errors:       {}\n", fmt::join(parts, ", "));
}

std::string summary_part(const Json& result, const Pairs& pairs) {
  std::string text = "\nSummary\n" + pair_summary(pairs);
  if (pairs.types.empty())
    text += "  One rank alone has no pairs: only the device and its host were measured\n";
  const auto bytes =
      value_at<double>(member(result, "verified_work"), "bytes_exchanged_verified").value_or(0);
  text += fmt::format("  Verified:              {}, every measured transfer\n", format_bytes(bytes));
  return text + link_errors_text(result);
}

/// Failed measurements, and links that are too slow.
std::string warnings_text(const Json& result) {
  std::string text;
  std::set<std::string> impossible;
  for (const Json& entry : member(result, "results")) {
    const std::string name = text_at(entry, "test_name");
    const bool is_trial = !text_at(entry, "measurement").empty() && text_at(entry, "measurement") != "end";
    if (is_trial && !value_at<bool>(entry, "success").value_or(false))
      text += fmt::format("  Failed: {}: {}\n", printable(name), printable(text_at(entry, "failure")));
    if (const std::string why = text_at(entry, "not_possible"); !why.empty())
      impossible.insert(fmt::format("  {}: not possible: {}\n", printable(name), printable(why)));
  }
  for (const std::string& line : impossible) text += line;
  for (const Json& finding : member(result, "findings"))
    if (text_at(finding, "kind") == "link")
      text += fmt::format("  Warning: {}\n", printable(finding_text(finding)));
  std::set<std::string> not_judged;
  for (const Json* entry : entries_of(result, "pair"))
    if (const std::string why = text_at(*entry, "not_judged"); !why.empty()) not_judged.insert(why);
  for (const std::string& why : not_judged)
    text += fmt::format("  Rates were not judged: {}\n", printable(why));
  return text.empty() && text_at(result, "verdict") == "pass" ? "  No link is slower than it should be\n"
                                                              : text;
}

}  // namespace

std::string links_text(const Json& result) {
  const Pairs pairs = pairs_in(result);
  return found_text(result) + pair_list(result, pairs) + matrices(result, pairs) + rounds_text(result) +
         host_text(result) + collectives_text(result) + summary_part(result, pairs) + warnings_text(result);
}

}  // namespace egt
