#include <map>
#include <set>

#include <fmt/format.h>

#include "egt/core/json_access.hpp"
#include "judge/record_schema.hpp"
#include "report/html/html_text.hpp"
#include "report/html/sections.hpp"

namespace egt::page {
namespace {

std::string number_text(const Json& json, const char* format) {
  return json.is_number() ? fmt::format(fmt::runtime(format), json.get<double>()) : "-";
}

/// "691 (700)"
std::string with_bracket(const std::string& value, const std::string& beside) {
  return beside == "-" ? value : fmt::format("{} ({})", value, beside);
}

std::string error_text(const Json& error) {
  const std::string what = text_at(error, "what");
  return error.is_null() ? "-" : what.empty() ? one_line(error) : what;
}

std::string peers_table(const Json& result) {
  const Json& peers = member(result, "peers");
  std::set<std::string> figures;
  for (const auto& [rank, own] : peers.items())
    for (const auto& [figure, value] : own.items())
      if (member(value, "ratio").is_number()) figures.insert(figure);
  std::vector<std::string> columns = {"rank"};
  for (const std::string& figure : figures) columns.push_back(spoken(figure));
  HtmlTable table("Each rank compared with the median of its device model (1 is the median)", columns);
  for (const auto& [rank, own] : peers.items()) {
    std::vector<std::string> cells = {rank};
    for (const std::string& figure : figures) {
      const Json& value = member(own, figure);
      cells.push_back(
          with_bracket(figure_text(member(value, "value")), number_text(member(value, "ratio"), "{:.3f}")));
    }
    if (!figures.empty()) table.add(cells);
  }
  return table.html();
}

/// {"ecc_corrected": {"before", "after"}, ..} and the counters of every NVLink, by display name.
std::map<std::string, Json> flat_counters(const Json& counters) {
  std::map<std::string, Json> flat;
  for (const auto& [name, value] : counters.items())
    if (name != "nvlinks") flat[name] = value;
  for (const Json& link : member(counters, "nvlinks"))
    for (const auto& [name, value] : link.items())
      if (value.is_object() && member(value, "before") != member(value, "after"))
        flat[fmt::format("nvlink {} {}", figure_text(member(link, "link")), name)] = value;
  return flat;
}

bool is_told(const Json& value) {
  if (!value.is_object()) return !value.is_null() && !value.empty();
  for (const Json& one : value)
    if (!one.is_null()) return true;
  return false;
}

std::string counter_text(const Json& value) {
  if (!value.is_object() || !value.contains("after")) return value.is_null() ? "-" : one_line(value);
  const Json &before = value["after"].is_null() ? value["after"] : member(value, "before"),
             &after = value["after"];
  std::string text = before == after ? figure_text(after) : figure_text(before) + " → " + figure_text(after);
  for (const char* more : {"under_load", "max"})
    if (const Json& one = member(value, more); !one.is_null())
      text += fmt::format(", {} {}", more[0] == 'u' ? "under load" : more, figure_text(one));
  return text;
}

}  // namespace

std::string ranks_section(const Json& result) {
  std::map<int, std::size_t> faults;
  for (const Json& fault : member(result, "faults")) ++faults[value_at<int>(fault, "rank").value_or(-1)];
  HtmlTable table("Ranks: one per device",
                  {"rank", "faults", "host", "device", "power W (limit)", "hottest °C", "clock MHz",
                   "utilization %", "memory used", "steps", "ended", "error"});
  for (const Json& rank : member(result, "ranks")) {
    const int number = value_at<int>(rank, "rank").value_or(-1);
    const Json& telemetry = member(member(result, "telemetry"), std::to_string(number));
    const auto of = [&](const char* field, const char* figure) -> const Json& {
      return member(member(telemetry, field), figure);
    };
    const Json& mean = member(telemetry, "power_w_mean");
    table.add(
        {std::to_string(number), std::to_string(faults[number]), text_at(rank, "hostname"),
         text_at(member(rank, "device"), "name"),
         with_bracket(number_text(mean.is_null() ? of("power_w", "avg") : mean, "{:.0f}"),
                      number_text(member(telemetry, "power_limit_w"), "{:.0f}")),
         number_text(of("temperature_c", "max"), "{:.0f}"), number_text(of("sm_clock_mhz", "avg"), "{:.0f}"),
         number_text(of("gpu_utilization_percent", "avg"), "{:.1f}"),
         figure_text(of("memory_used_bytes", "max"), "bytes"), figure_text(member(rank, "steps")),
         figure_text(member(rank, "end_reason")), error_text(member(rank, "error"))},
        std::vector<std::string>(faults[number] && !is_selftest(result) ? 4 : 0, "class=\"bad\""));
  }
  return table.html() + peers_table(result);
}

std::string counters_section(const Json& result) {
  std::map<std::string, std::map<std::string, Json>> by_name;  // then by rank
  std::vector<std::string> columns = {"counter"};
  for (const auto& [rank, counters] : member(result, "counters").items()) {
    columns.push_back("rank " + rank);
    for (const auto& [name, value] : flat_counters(counters))
      if (is_told(value)) by_name[name][rank] = value;
  }
  HtmlTable table("Error counters: what they were before the run → after it; one number: they did not move",
                  columns);
  for (const auto& [name, of_ranks] : by_name) {
    std::vector<std::string> cells = {spoken(name)}, attributes = {""};
    for (const auto& [rank, counters] : member(result, "counters").items()) {
      const auto found = of_ranks.find(rank);
      const Json value = found == of_ranks.end() ? Json() : found->second;
      const bool moved =
          member(value, "before") != member(value, "after") && !member(value, "after").is_null();
      cells.push_back(counter_text(value));
      attributes.push_back(moved && !value.contains("max") ? "class=\"bad\"" : "");
    }
    table.add(cells, attributes);
  }
  if (table.empty() && !member(result, "counters").empty()) return "<p>No device reported any.</p>";
  return table.html();
}

std::string system_section(const Json& result) {
  HtmlTable system("System", {"what", "value"});
  system.add({"program version", text_at(result, "program_version")});
  for (const auto& [name, value] : member(result, "system_info").items())
    system.add({spoken(name), value.is_structured() ? one_line(value) : figure_text(value, name)});
  system.add({"arguments", one_line(member(result, "arguments"))});
  HtmlTable devices("Devices",
                    {"rank", "host", "device", "UUID", "PCI", "NUMA node", "compute capability", "memory"},
                    true);
  for (const Json& rank : member(result, "ranks")) {
    const Json& device = member(rank, "device");
    devices.add({figure_text(member(rank, "rank")), text_at(rank, "hostname"), text_at(device, "name"),
                 figure_text(member(device, "uuid")), figure_text(member(device, "pci_bus_id")),
                 figure_text(member(rank, "numa_node")), figure_text(member(device, "compute_capability")),
                 figure_text(member(device, "memory_total_bytes"), "bytes")});
  }
  HtmlTable options("Options in effect", {"option", "value"});
  for (const auto& [name, value] : member(result, "options").items())
    options.add({name, value.is_structured() ? one_line(value) : figure_text(value)});
  return devices.html() + system.html() +
         (options.empty() ? "" : "<details><summary>Options</summary>" + options.html() + "</details>");
}

}  // namespace egt::page
