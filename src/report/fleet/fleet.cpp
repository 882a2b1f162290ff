#include "report/fleet/fleet.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "egt/core/exit_code.hpp"
#include "egt/core/histogram.hpp"
#include "egt/core/json_access.hpp"
#include "egt/core/text.hpp"
#include "egt/core/units.hpp"
#include "judge/history.hpp"
#include "report/compare/comparison_parts.hpp"
#include "report/tables/summary.hpp"
#include "report/tables/text_table.hpp"

namespace egt {
namespace {

constexpr std::size_t min_peers = 3;          // nodes with a value, for a median
constexpr std::size_t max_rate_columns = 12;  // the JSON file has all

/// Verdict of a node, with the contract's verdict and exit code.
struct FleetVerdict {
  const char* name;
  const char* verdict;
  int code;
};
/// The most severe first.
constexpr auto fleet_verdicts = std::to_array<FleetVerdict>({
    {"fault", "fault", exit_code::fault},
    {"suspect", "fault", exit_code::fault},  // one of several nodes that may have the fault
    {"unreadable", "incomplete", exit_code::incomplete},
    {"incomplete", "incomplete", exit_code::incomplete},
    {"injected", "incomplete", exit_code::incomplete},  // says nothing about the hardware
    {"degraded", "degraded", exit_code::degraded},
    {"interrupted", "interrupted", exit_code::interrupted},
    {"pass", "pass", exit_code::pass},
});

std::size_t severity_of(const std::string& verdict) {
  const auto found = std::find_if(fleet_verdicts.begin(), fleet_verdicts.end(),
                                  [&](const FleetVerdict& one) { return one.name == verdict; });
  return static_cast<std::size_t>(found - fleet_verdicts.begin());
}

/// A node of one result, with what only this file needs.
struct NodeRun {
  FleetNode node = {};
  std::set<std::string> uuids = {}, places = {};  ///< of its GPUs; a place is the PCI address, else the index
  std::vector<ComparedTest> tests = {};
  std::string group = {};  ///< nodes with equal groups are comparable
};

std::string id_of(const Json& entry) {
  const std::string name = text_at(entry, "slurm_node");
  return name.empty() ? text_at(entry, "hostname") : name;
}

/// The part of a result that belongs to one node: its ranks, and the entries of these ranks alone.
Json part_of(const Json& result, const std::string& id) {
  Json part = {{"ranks", Json::array()}, {"results", Json::array()}};
  std::set<int> ranks;
  for (const Json& rank : member(result, "ranks"))
    if (id_of(rank) == id) {
      part["ranks"].push_back(rank);
      ranks.insert(value_at<int>(rank, "rank").value_or(-1));
    }
  const bool is_all = ranks.size() == member(result, "ranks").size();
  for (const Json& entry : member(result, "results"))
    if (is_all || ranks.contains(value_at<int>(entry, "rank").value_or(-1))) part["results"].push_back(entry);
  return part;
}

bool has_evidence(const Json& entries, const Json& ranks) {
  const auto is_own = [&](const Json& number) {
    return std::any_of(ranks.begin(), ranks.end(), [&](const Json& rank) {
      return number.is_number_integer() && member(rank, "rank") == number;
    });
  };
  for (const Json& entry : entries) {
    if (is_own(member(entry, "rank"))) return true;
    for (const Json& suspect : member(entry, "suspects"))
      if (is_own(suspect)) return true;
  }
  return false;
}

/// `node`: an element of nodes[]; null for results of older versions.
std::string verdict_of(const Json& result, const Json& node, const Json& ranks) {
  const std::string own = text_at(node, "verdict"), run = text_at(result, "verdict");
  const bool is_known = run != "unreadable" && run != "suspect" && severity_of(run) < fleet_verdicts.size();
  const std::string verdict = is_known ? run : "incomplete";
  if (own == "injected" || (verdict != "pass" && value_at<bool>(result, "injected").value_or(false)))
    return "injected";
  const Json& nodes = member(result, "nodes");
  if (nodes.size() < 2) return verdict == "pass" && own != "pass" && !own.empty() ? "incomplete" : verdict;
  if (own == "pass") return own;
  if (own == "fail")
    return has_evidence(member(result, "faults"), ranks)   ? "fault"
           : has_evidence(member(result, "losses"), ranks) ? "incomplete"
                                                           : "degraded";
  if (own != "suspect")  // unknown
    for (const Json& other : nodes)
      if (text_at(other, "verdict") == "fail" || text_at(other, "verdict") == "suspect") return "incomplete";
  if (verdict == "pass") return "incomplete";
  return verdict == "fault" ? "suspect" : verdict;
}

std::string first_of(const Json& reasons) {
  return reasons.is_array() && !reasons.empty() && reasons[0].is_string() ? reasons[0].get<std::string>()
                                                                          : "";
}

void add_sensors(const Json& result, const Json& ranks, bool is_only, NodeRun& run) {
  std::map<int, std::uint64_t> faults = faults_by_rank(result);
  if (is_only) run.node.errors = faults[-1];
  for (const Json& rank : ranks) {
    const int number = value_at<int>(rank, "rank").value_or(-1);
    const Json& device = member(rank, "device");
    const std::string uuid = text_at(device, "uuid"), place = text_at(device, "pci_bus_id");
    if (!uuid.empty()) run.uuids.insert(uuid);
    run.places.insert(place.empty() ? one_line(member(device, "index")) : place);
    if (number >= 0) run.node.errors += faults[number];
    const Json& telemetry = member(member(result, "telemetry"), std::to_string(number));
    const auto watts = value_at<double>(telemetry, "power_w_mean"),
               limit = value_at<double>(telemetry, "power_limit_w"),
               celsius = value_at<double>(member(telemetry, "temperature_c"), "max");
    if (watts && limit && *limit > 0)
      run.node.power_ratio = std::min(run.node.power_ratio.value_or(HUGE_VAL), *watts / *limit);
    if (celsius)
      run.node.max_temperature_c = std::max(run.node.max_temperature_c.value_or(*celsius), *celsius);
  }
}

/// Results are comparable if command, number of ranks and options are equal.
std::string group_of(const Json& result) {
  Json options = options_with_effect(member(result, "options"));
  for (const char* name : {"duration", "steps"})
    if (options.is_object()) options.erase(name);
  return one_line({member(result, "command"), member(result, "ranks").size(), options});
}

NodeRun run_of(const ComparedFile& file, const Json& node, const std::string& id) {
  const Json& result = file.result;
  const Json part = part_of(result, id);
  const Json& ranks = part["ranks"];
  const bool is_only = member(result, "nodes").size() < 2;
  NodeRun run;
  run.node = {.name = id.empty() ? file.path : id, .path = file.path};
  run.node.verdict = verdict_of(result, node, ranks);
  if (run.node.verdict != "pass") run.node.reason = first_of(member(is_only ? result : node, "reasons"));
  if (run.node.verdict != "pass" && run.node.reason.empty())
    run.node.reason = first_of(member(result, "reasons"));
  if (const Json& action = member(node, "action"); text_at(action, "name") != "none")
    run.node.action = action;
  run.node.command = text_at(result, "command");
  const std::vector<std::string> models = device_models(part);
  run.node.devices = to_text(
      Configuration{.mode = "", .devices = static_cast<std::int64_t>(models.size()), .models = models});
  run.node.seconds = value_at<double>(member(result, "test_summary"), "actual_duration_seconds");
  run.node.ended_at = text_at(member(result, "system_info"), "ended_at");
  add_sensors(result, ranks, is_only, run);
  run.tests = tests_of(part);
  run.group = group_of(result);
  return run;
}

std::vector<NodeRun> runs_of(const ComparedFile& file) {
  if (!file.problem.empty())
    return {
        {.node = {.name = file.path, .path = file.path, .verdict = "unreadable", .reason = file.problem}}};
  std::vector<NodeRun> runs;
  for (const Json& node : member(file.result, "nodes")) runs.push_back(run_of(file, node, id_of(node)));
  if (runs.empty()) {  // of an older version, or without any rank
    const Json& ranks = member(file.result, "ranks");
    const std::string rank = ranks.is_array() && !ranks.empty() ? id_of(ranks[0]) : "";
    runs.push_back(
        run_of(file, Json(), rank.empty() ? text_at(member(file.result, "system_info"), "hostname") : rank));
  }
  return runs;
}

/// Evidence against a node stays until the same command has run at least as long without it: `links` cannot
/// clear a fault of `burn`.
bool clears(const FleetNode& newer, const FleetNode& older) {
  if (older.verdict == "pass" || older.verdict == "interrupted" || older.verdict == "injected" ||
      severity_of(newer.verdict) <= severity_of(older.verdict))
    return true;
  return newer.command == older.command && newer.seconds.value_or(0) >= older.seconds.value_or(0);
}

/// Hostnames may be equal on different machines, so both runs must have a GPU in common, if GPUs have UUIDs.
/// Results without a time replace nothing and are not replaced.
bool replaces(const NodeRun& newer, const NodeRun& older) {
  const auto has = [&](const std::string& uuid) { return newer.uuids.contains(uuid); };
  const bool is_same =
      older.uuids.empty() || newer.uuids.empty() || std::any_of(older.uuids.begin(), older.uuids.end(), has);
  return newer.node.name == older.node.name && is_same && clears(newer.node, older.node) &&
         !older.node.ended_at.empty() && !newer.node.ended_at.empty() && older.node.verdict != "unreadable" &&
         newer.node.verdict != "unreadable" &&
         std::includes(newer.places.begin(), newer.places.end(), older.places.begin(), older.places.end());
}

std::vector<NodeRun> newest_of(std::vector<NodeRun> runs) {
  std::stable_sort(runs.begin(), runs.end(), [](const NodeRun& a, const NodeRun& b) {
    if (a.node.ended_at != b.node.ended_at) return a.node.ended_at > b.node.ended_at;
    return severity_of(a.node.verdict) < severity_of(b.node.verdict);
  });
  std::vector<NodeRun> newest;
  std::vector<std::size_t> row_of;  // the element of `newest` that stands for each run
  for (const NodeRun& run : runs) {
    // Any newer run may replace it, also one that was replaced itself: links after burn after a fault of
    // burn.
    std::size_t by = 0;
    while (by < row_of.size() && !replaces(runs[by], run)) ++by;
    if (by == row_of.size()) {
      row_of.push_back(newest.size());
      newest.push_back(run);
      continue;
    }
    row_of.push_back(row_of[by]);
    FleetNode& row = newest[row_of[by]].node;
    ++row.runs;
    if (row.earlier_verdict.empty() || severity_of(run.node.verdict) < severity_of(row.earlier_verdict))
      row.earlier_verdict = run.node.verdict;
  }
  return newest;
}

/// Adds each node's rates, compared with the median of the comparable nodes.
void add_rates(std::vector<NodeRun>& runs) {
  std::map<std::tuple<std::string, std::string, Configuration>, std::vector<double>> values;
  const auto each = [&](const auto& visit) {
    for (NodeRun& run : runs)
      for (const ComparedTest& test : run.tests)
        for (const ComparedFigure& one : test.values)
          if (one.value && one.success)
            visit(run, test, one, values[{run.group, test.test + '\0' + test.figure, one.configuration}]);
  };
  each([](NodeRun&, const ComparedTest&, const ComparedFigure& one, std::vector<double>& all) {
    all.push_back(*one.value);
  });
  each([](NodeRun& run, const ComparedTest& test, const ComparedFigure& one, std::vector<double>& all) {
    const std::string& mode = one.configuration.mode;
    FleetRate rate = {.name = mode.empty()
                                  ? test.name
                                  : fmt::format("{} ({}, {})", test.name, mode, one.configuration.devices),
                      .unit = test.unit,
                      .value = *one.value,
                      .ratio = std::nullopt};
    const double median = median_of(all);
    const double ratio = test.better == Better::higher ? *one.value / median : median / *one.value;
    if (all.size() >= min_peers && std::isfinite(ratio)) rate.ratio = ratio;
    run.node.rates.push_back(std::move(rate));
  });
}

const FleetRate* lowest_rate(const FleetNode& node) {
  const FleetRate* lowest = nullptr;
  for (const FleetRate& rate : node.rates)
    if (rate.ratio && (!lowest || *rate.ratio < *lowest->ratio)) lowest = &rate;
  return lowest;
}

double lowest_ratio(const FleetNode& node) {
  const FleetRate* const lowest = lowest_rate(node);
  return lowest ? *lowest->ratio : 1;
}

std::string deviation_text(const FleetRate& rate) {
  if (!rate.ratio) return not_measured;
  const double percent = 100 * (*rate.ratio - 1);
  return std::fabs(percent) < 0.05 ? "0.0 %" : fmt::format("{:+.1f} %", percent);
}

/// Names of the rates that tables show: those with the lowest values, in the order of the tests.
std::vector<std::string> rate_columns(const Fleet& fleet) {
  std::vector<std::string> names;
  std::map<std::string, double> lowest;
  for (const FleetNode& node : fleet.nodes)
    for (const FleetRate& rate : node.rates) {
      if (!rate.ratio) continue;
      const auto [known, is_new] = lowest.try_emplace(rate.name, *rate.ratio);
      if (is_new) names.push_back(rate.name);
      known->second = std::min(known->second, *rate.ratio);
    }
  std::vector<double> ratios;
  for (const auto& [name, ratio] : lowest) ratios.push_back(ratio);
  std::sort(ratios.begin(), ratios.end());
  if (ratios.size() > max_rate_columns) {
    std::erase_if(names,
                  [&](const std::string& name) { return lowest[name] > ratios[max_rate_columns - 1]; });
    names.resize(std::min(names.size(), max_rate_columns));
  }
  return names;
}

void conclude_fleet(Fleet& fleet) {
  std::map<std::string, std::size_t> counts;
  std::uint64_t slow = 0;
  for (const FleetNode& node : fleet.nodes) {
    ++counts[node.verdict];
    if (lowest_ratio(node) < 1 - fleet.tolerance) ++slow;
  }
  std::vector<std::string> texts;
  for (const FleetVerdict& row : fleet_verdicts) {
    if (counts[row.name] == 0) continue;
    const std::string text = fmt::format("{} {}", counts[row.name], row.name);
    texts.insert(row.code == exit_code::pass ? texts.begin() : texts.end(), text);
    if (!fleet.verdict.empty()) continue;
    fleet.verdict = row.verdict;
    fleet.exit_code = row.code;
  }
  fleet.reasons.push_back(fmt::format("{}", fmt::join(texts, ", ")));
  if (slow > 0)
    fleet.reasons.push_back(fmt::format("a rate more than {:.4g} % below the median of the same model: {}",
                                        100 * fleet.tolerance, counted(slow, "node")));
}

/// Columns in the order of their importance, since a narrow terminal leaves the last ones out.
std::vector<Row> table_of(const Fleet& fleet) {
  std::vector<Row> rows = {{"Node", "Verdict", "Action", "Errors", "Lowest rate", "Power", "Max C", "Runs",
                            "Ended (UTC)", "Duration", "Command", "GPUs"}};
  const std::vector<std::string> rates = rate_columns(fleet);
  rows[0].insert(rows[0].end(), rates.begin(), rates.end());
  for (const FleetNode& node : fleet.nodes) {
    const std::string action = text_at(node.action, "name");
    const FleetRate* const lowest = lowest_rate(node);
    const auto or_dash = [](const std::string& text) { return text.empty() ? not_measured : text; };
    Row& row = rows.emplace_back(Row{
        node.name, node.verdict, or_dash(action), std::to_string(node.errors),
        lowest ? deviation_text(*lowest) : not_measured,
        cell(node.power_ratio ? std::optional(100 * *node.power_ratio) : std::nullopt, "{:.0f} %"),
        cell(node.max_temperature_c, "{:.0f}"),
        node.earlier_verdict.empty() ? "1" : fmt::format("{}, before: {}", node.runs, node.earlier_verdict),
        or_dash(node.ended_at.substr(0, std::min<std::size_t>(node.ended_at.size(), 16))),
        node.seconds ? format_duration(*node.seconds) : not_measured, or_dash(node.command),
        or_dash(node.devices)});
    for (const std::string& name : rates) {
      const auto own = std::find_if(node.rates.begin(), node.rates.end(),
                                    [&](const FleetRate& rate) { return rate.name == name; });
      row.push_back(own == node.rates.end() ? not_measured : deviation_text(*own));
    }
  }
  return rows;
}

std::string advice_text(const Fleet& fleet) {
  std::string text;
  for (const FleetNode& node : fleet.nodes) {
    if (node.verdict == "pass") continue;
    text += fmt::format("{}: {}: {}\n", printable(node.name), node.verdict, printable(node.reason));
    if (!node.action.is_null())
      text += fmt::format("  action: {}\n", printable(text_at(node.action, "text")));
  }
  return text.empty() ? text : "\n" + text;
}

}  // namespace

Fleet fleet_of(const std::vector<ComparedFile>& files, double tolerance) {
  std::vector<NodeRun> runs;
  for (const ComparedFile& file : files)
    for (NodeRun& run : runs_of(file)) runs.push_back(std::move(run));
  runs = newest_of(std::move(runs));
  add_rates(runs);
  Fleet fleet{.tolerance = tolerance, .nodes = {}, .verdict = "", .exit_code = 0, .reasons = {}};
  for (NodeRun& run : runs) fleet.nodes.push_back(std::move(run.node));
  std::sort(fleet.nodes.begin(), fleet.nodes.end(), [&](const FleetNode& a, const FleetNode& b) {
    const auto key = [&](const FleetNode& node) {
      const double lowest = lowest_ratio(node);
      return std::tuple(severity_of(node.verdict), lowest < 1 - tolerance ? lowest : 1.0, node.name,
                        node.path);
    };
    return key(a) < key(b);
  });
  conclude_fleet(fleet);
  return fleet;
}

std::string fleet_text(const Fleet& fleet, std::size_t columns) {
  std::vector<Row> rows = without_empty_columns(table_of(fleet));
  const std::size_t all = rows[0].size();
  std::string table = plain_table(rows, 0);
  while (columns > 0 && table.find('\n') > columns && rows[0].size() > 2) {
    for (Row& row : rows) row.pop_back();
    table = plain_table(rows, 0);
  }
  std::string text = fmt::format("Fleet: {}\n\n{}", counted(fleet.nodes.size(), "node"), table);
  if (rows[0].size() < all)
    text += fmt::format("{} left out at this width; --output FILE.html has all\n",
                        counted(all - rows[0].size(), "column"));
  text += fmt::format("{}\nVerdict: {} (exit code {})\n", advice_text(fleet), fleet.verdict, fleet.exit_code);
  for (const std::string& reason : fleet.reasons) text += fmt::format("  {}\n", reason);
  return text;
}

Json fleet_json(const Fleet& fleet) {
  Json nodes = Json::array();
  const auto text = [](const std::string& value) { return value.empty() ? Json() : Json(value); };
  for (const FleetNode& node : fleet.nodes) {
    Json rates = Json::array();
    for (const FleetRate& rate : node.rates)
      rates.push_back(
          {{"name", rate.name}, {"unit", rate.unit}, {"value", rate.value}, {"ratio", or_null(rate.ratio)}});
    nodes.push_back({{"node", node.name},
                     {"path", node.path},
                     {"verdict", node.verdict},
                     {"reason", text(node.reason)},
                     {"action", node.action},
                     {"command", text(node.command)},
                     {"devices", text(node.devices)},
                     {"duration_seconds", or_null(node.seconds)},
                     {"ended_at", text(node.ended_at)},
                     {"errors", node.errors},
                     {"power_ratio", or_null(node.power_ratio)},
                     {"max_temperature_c", or_null(node.max_temperature_c)},
                     {"runs", node.runs},
                     {"earlier_verdict", text(node.earlier_verdict)},
                     {"rates", std::move(rates)}});
  }
  return {{"schema", 1},
          {"command", "compare --fleet"},
          {"tolerance", fleet.tolerance},
          {"rate_columns", rate_columns(fleet)},
          {"nodes", std::move(nodes)},
          {"verdict", fleet.verdict},
          {"exit_code", fleet.exit_code},
          {"reasons", fleet.reasons}};
}

}  // namespace egt
