#include "judge/expectations.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <map>
#include <set>

#include "egt/core/json_access.hpp"
#include "egt/core/text.hpp"

namespace egt {
namespace {

enum class Source { node, gpu, load, tolerance };
enum class Rule { equal, at_least, at_most, contains, same };  ///< same: of truth values

struct ExpectationRow {
  const char* key;
  const char* unit;
  Source source;
  Rule rule;
  /// Load: JSON pointer in the end record, or, after "PART:", in the values of the parts whose names start
  /// with PART. Else the value that any node should have: a number, a truth value, or the member of the
  /// inventory that is the least value; empty: unknown.
  const char* detail;
  bool is_written;  ///< by --write-expect
  Action action;
  const char* help;
};

constexpr auto expectation_rows = std::to_array<ExpectationRow>({
    {"gpus", "", Source::node, Rule::equal, "gpus_on_bus", true, Action::reboot_node,
     "number of GPUs that the driver shows"},
    {"driver", "", Source::node, Rule::contains, "", true, Action::check_node, "version of the driver"},
    {"network_ports", "", Source::node, Rule::at_least, "", true, Action::check_node,
     "network ports that are up"},
    {"drives", "", Source::node, Rule::at_least, "", true, Action::replace_drive, "NVMe drives"},
    {"model", "", Source::gpu, Rule::contains, "", true, Action::check_node, "name of the GPU"},
    {"memory_gb", "GB", Source::gpu, Rule::at_least, "", true, Action::replace_gpu, "memory of the GPU"},
    {"vbios", "", Source::gpu, Rule::contains, "", true, Action::check_node, "version of the vBIOS"},
    {"nvlinks", "", Source::gpu, Rule::equal, "nvlinks_of", true, Action::reseat, "active NVLinks"},
    {"fabric", "", Source::gpu, Rule::contains, "completed", true, Action::check_node,
     "state of the fabric; not completed: start nvidia-fabricmanager"},
    {"pcie_generation", "", Source::gpu, Rule::at_least, "", true, Action::reseat,
     "PCIe generation that GPU and slot support; under load the current one"},
    {"pcie_width", "", Source::gpu, Rule::at_least, "pcie_max_width", true, Action::reseat,
     "lanes of the PCIe link, also under load"},
    {"ecc", "", Source::gpu, Rule::same, "true", true, Action::reset_gpu,
     "memory errors are corrected (ECC)"},
    {"mig", "", Source::gpu, Rule::same, "false", true, Action::check_node, "the GPU is partitioned (MIG)"},
    {"persistence", "", Source::gpu, Rule::same, "true", true, Action::check_node,
     "the driver stays loaded (nvidia-smi -pm 1)"},
    {"power_limit_w", "W", Source::gpu, Rule::at_least, "", true, Action::check_power,
     "enforced power limit"},
    {"processes", "", Source::gpu, Rule::at_most, "0", false, Action::check_node,
     "processes that use the GPU before the run"},
    {"idle_temperature_c", "C", Source::gpu, Rule::at_most, "60", false, Action::check_cooling,
     "temperature before the run"},
    {"power_share", "of its limit", Source::load, Rule::at_least, "load:/power_ratio", false,
     Action::check_power, "average power"},
    {"sm_clock_mhz", "MHz", Source::load, Rule::at_least, "/telemetry/sm_clock_mhz/avg", false,
     Action::check_cooling, "average clock"},
    {"fp64_tflops", "TFLOP/s", Source::load, Rule::at_least, "load:/alone/product_tflops/fp64", false,
     Action::isolate_gpu, "GEMM rate alone"},
    {"fp32_tflops", "TFLOP/s", Source::load, Rule::at_least, "load:/alone/product_tflops/fp32", false,
     Action::isolate_gpu, "GEMM rate alone"},
    {"tf32_tflops", "TFLOP/s", Source::load, Rule::at_least, "load:/alone/product_tflops/tf32", false,
     Action::isolate_gpu, "GEMM rate alone"},
    {"fp16_tflops", "TFLOP/s", Source::load, Rule::at_least, "load:/alone/product_tflops/fp16", false,
     Action::isolate_gpu, "GEMM rate alone"},
    {"bf16_tflops", "TFLOP/s", Source::load, Rule::at_least, "load:/alone/product_tflops/bf16", false,
     Action::isolate_gpu, "GEMM rate alone"},
    {"host_copy_gb_per_s", "GB/s", Source::load, Rule::at_least, "load:/alone/host_copy_gb_per_s", false,
     Action::reseat, "copies from pinned host memory alone (burn, links)"},
    {"host_copy_gb_per_s", "GB/s", Source::load, Rule::at_least,
     "host and device:/host_to_device_gb_per_second", false, Action::reseat, ""},
    {"pair_gb_per_s", "GB/s", Source::load, Rule::at_least, "pair :/one_way_gb_per_second", false,
     Action::reseat, "one way between two ranks (links)"},
    {"all_reduce_gb_per_s", "GB/s", Source::load, Rule::at_least, "all-reduce:/bus_gb_per_second", false,
     Action::test_links, "bus bandwidth of all-reduce (links)"},
    {"pcie_generation", "", Source::load, Rule::at_least, "/counters/pcie_generation/under_load", false,
     Action::reseat, ""},
    {"pcie_width", "", Source::load, Rule::at_least, "/counters/pcie_width/under_load", false, Action::reseat,
     ""},
    {"tolerance", "", Source::tolerance, Rule::equal, "", false, Action::none,
     "share that rates, clock and power may be below their expected values"},
});

const char* rule_text(Rule rule) {
  constexpr const char* texts[] = {"", "min ", "max ", "", ""};
  return texts[static_cast<std::size_t>(rule)];
}

bool takes_text(const ExpectationRow& row) {
  return row.rule == Rule::contains;
}

const ExpectationRow* find_row(std::string_view key) {
  const auto* found = std::find_if(expectation_rows.begin(), expectation_rows.end(),
                                   [&](const ExpectationRow& row) { return row.key == key; });
  return found == expectation_rows.end() ? nullptr : found;
}

/// The text as the value of a row; null: not a value of its type.
Json parsed_expectation(const ExpectationRow& row, const std::string& text) {
  if (takes_text(row)) return text.empty() ? Json() : Json(text);
  if (row.rule == Rule::same) return text == "true" ? Json(true) : text == "false" ? Json(false) : Json();
  double number = 0;
  const char* const last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, number);
  if (error != std::errc() || end != last || !std::isfinite(number) || number < 0) return nullptr;
  if (row.source == Source::tolerance && number >= 1) return nullptr;
  return number;
}

bool is_met(Rule rule, const Json& expected, const Json& actual) {
  if (rule == Rule::contains)
    return actual.is_string() && expected.is_string() &&
           to_lower(actual.get<std::string>()).find(to_lower(expected.get<std::string>())) !=
               std::string::npos;
  if (rule == Rule::same) return expected == actual;
  if (!actual.is_number() || !expected.is_number()) return false;
  const double limit = expected.get<double>(), value = actual.get<double>();
  return rule == Rule::equal ? value == limit : rule == Rule::at_least ? value >= limit : value <= limit;
}

/// For a file. Rounded down, so that the node that has the value passes.
std::string toml_text(const Json& value) {
  return value.is_number_float() ? fmt::format("{:.1f}", std::floor(value.get<double>() * 10) / 10)
                                 : value.dump();
}

std::string expected_text(const ExpectationRow& row, const Json& value) {
  if (value.is_null()) return "unknown";
  if (value.is_string()) return value.get<std::string>();
  if (value.is_boolean()) return value.get<bool>() ? "true" : "false";
  return fmt::format("{:.4g}{}{}", value.get<double>(), *row.unit == '\0' ? "" : " ", row.unit);
}

Deviation deviation(const ExpectationRow& row, Rule rule, const std::string& place, const Json& expected,
                    const Json& actual, const std::string& note = {}) {
  Deviation result;
  result.key = row.key;
  result.text = fmt::format("{}{} is {}, expected {}{}{}: {}", place, row.key,
                            actual.is_null() ? "not reported" : expected_text(row, actual), rule_text(rule),
                            expected_text(row, expected), note, text_at(to_json(row.action, -1), "text"));
  if (expected.is_number()) result.expected = expected.get<double>();
  if (actual.is_number()) result.actual = actual.get<double>();
  return result;
}

/// Checks a row with the inventory of a node, or of one of its GPUs.
void check_row(const ExpectationRow& row, const Json& expected, const Json& of, const std::string& place,
               const std::string& note, std::vector<Deviation>& all) {
  const Json& actual = member(of, row.key);
  if (const Json& wanted = member(expected, row.key); !wanted.is_null()) {
    if (!is_met(row.rule, wanted, actual))
      all.push_back(deviation(row, row.rule, place, wanted, actual, note));
    return;
  }
  if (*row.detail == '\0' || actual.is_null()) return;
  const bool is_own = of.contains(row.detail);
  const Json usual = is_own ? member(of, row.detail) : parsed_expectation(row, row.detail);
  const Rule rule = is_own ? Rule::at_least : row.rule;
  if (usual.is_null() || is_met(rule, usual, actual)) return;
  all.push_back(deviation(row, rule, place, usual, actual, note));
  all.back().is_usual = true;
}

std::string place_of(const Json& gpu) {
  std::string place = fmt::format("GPU {}", value_at<int>(gpu, "index").value_or(-1));
  for (const char* key : {"uuid", "pci"})
    if (const std::string text = text_at(gpu, key); !text.empty()) place += ", " + text;
  if (const std::string serial = text_at(gpu, "serial"); !serial.empty())
    place += ", serial number " + serial;
  return place + ": ";
}

Json at_pointer(const Json& json, const std::string& pointer) {
  const Json::json_pointer path(pointer);
  return json.contains(path) ? json.at(path) : Json();
}

/// All values of a row in an end record, each with the part that has it. Of parts that differ only in their
/// method ("pair 0-1 by NCCL"), the one with the highest value: the others do not reach the link's rate.
std::vector<std::pair<std::string, Json>> measured_values(const ExpectationRow& row, const Json& end) {
  std::vector<std::pair<std::string, Json>> values;
  std::map<std::string, std::size_t> places;  // of what has several methods
  const std::string detail = row.detail;
  const std::size_t colon = detail.find(':');
  bool has_load = false;
  for (const Json& part : member(end, "parts")) {
    const std::string name = text_at(part, "name");
    has_load = has_load || name == "load";
    if (colon == std::string::npos || !name.starts_with(detail.substr(0, colon))) continue;
    const Json value = at_pointer(member(part, "figures"), detail.substr(colon + 1));
    if (!value.is_number()) continue;
    const auto [place, is_first] = places.try_emplace(name.substr(0, name.find(" by ")), values.size());
    if (is_first)
      values.emplace_back(name == "load" ? "" : name + ": ", value);
    else if (value > values[place->second].second)
      values[place->second] = {name + ": ", value};
  }
  // Other commands do not load the device all the time.
  if (colon == std::string::npos && has_load)
    if (const Json value = at_pointer(end, detail); value.is_number()) values.emplace_back("", value);
  return values;
}

/// An entry of `checks_not_run`.
Json not_judged(const std::string& key, const std::string& reason) {
  return {{"check", fmt::format("--expect {} under load", key)}, {"reason", reason}};
}

}  // namespace

std::string add_expectation(Json& expected, const std::string& key, const std::string& text) {
  const ExpectationRow* row = find_row(key);
  if (!row) {
    std::set<std::string> keys;
    for (const ExpectationRow& one : expectation_rows) keys.insert(one.key);
    return fmt::format("{}: unknown key; use {}", printable(key), fmt::join(keys, ", "));
  }
  const Json value = parsed_expectation(*row, text);
  if (value.is_null())
    return fmt::format("{} = {}: use {}", key, printable(text),
                       takes_text(*row)                   ? "a text"
                       : row->rule == Rule::same          ? "true or false"
                       : row->source == Source::tolerance ? "a share of 0 to below 1"
                                                          : "a number of at least 0");
  expected[key] = value;
  return {};
}

std::vector<Deviation> check_inventory(const Json& expected, const Json& inventory) {
  std::vector<Deviation> all;
  for (const Json& gpu : member(inventory, "gpu"))
    if (const std::string error = text_at(gpu, "error"); !error.empty())
      all.push_back({.key = "gpus",
                     .text = fmt::format("{}does not respond: {}", place_of(gpu), error),
                     .is_usual = !expected.contains("gpus")});
  for (const ExpectationRow& row : expectation_rows) {
    if (row.source == Source::node) {
      std::vector<std::string> notes;
      if (row.key == std::string_view("gpus")) {
        for (const Json& address : member(inventory, "not_shown"))
          notes.push_back(address.get<std::string>() + " on the PCI bus without an answer");
        if (const std::string error = text_at(inventory, "driver_error"); !error.empty())
          notes.push_back(error);
      }
      check_row(row, expected, inventory, "",
                notes.empty() ? "" : fmt::format(" ({})", fmt::join(notes, ", ")), all);
    }
    if (row.source != Source::gpu) continue;
    for (const Json& gpu : member(inventory, "gpu"))
      if (text_at(gpu, "error").empty()) check_row(row, expected, gpu, place_of(gpu), "", all);
  }
  return all;
}

std::vector<Deviation> check_under_load(const Json& expected, const Json& end, const std::string& light_load,
                                        Json& not_run) {
  std::vector<Deviation> all;
  const double tolerance = value_at<double>(expected, "tolerance").value_or(0);
  std::set<std::string> wanted, done;
  for (const ExpectationRow& row : expectation_rows) {
    const Json& value = member(expected, row.key);
    if (row.source != Source::load || value.is_null()) continue;
    if (row.key == std::string_view("power_share") && !light_load.empty()) {
      not_run.push_back(not_judged(row.key, light_load));
      continue;
    }
    wanted.insert(row.key);
    const Json limit = value.get<double>() * (*row.unit == '\0' ? 1 : 1 - tolerance);  // lanes are counts
    std::optional<Deviation> lowest;
    for (const auto& [part, actual] : measured_values(row, end)) {
      done.insert(row.key);
      if (is_met(row.rule, limit, actual)) continue;
      Deviation found = deviation(row, row.rule, part, limit, actual);
      if (!lowest || *found.actual < *lowest->actual) lowest = found;
    }
    if (lowest) all.push_back(*lowest);
  }
  for (const std::string& key : wanted)
    if (!done.contains(key)) not_run.push_back(not_judged(key, "not measured in this run"));
  return all;
}

std::optional<Action> action_of_expectation(std::string_view key) {
  const ExpectationRow* row = find_row(key);
  return row ? std::optional(row->action) : std::nullopt;
}

std::string expectations_text(const Json& inventory, const Json& load) {
  std::string text;
  for (const ExpectationRow& row : expectation_rows) {
    if (row.source == Source::load || row.source == Source::tolerance) {
      if (const Json& value = member(load, row.key); !value.is_null() && *row.help != '\0')
        text += fmt::format("{} = {}  # {}{}\n", row.key, value.dump(), rule_text(row.rule), row.help);
      continue;
    }
    if (!row.is_written) continue;
    std::vector<Json> values;  // distinct ones
    const auto add = [&](const Json& of) {
      const Json& value = member(of, row.key);
      if (!value.is_null() && std::find(values.begin(), values.end(), value) == values.end())
        values.push_back(value);
    };
    if (row.source == Source::node)
      add(inventory);
    else
      for (const Json& gpu : member(inventory, "gpu")) add(gpu);
    if (values.size() == 1)
      text +=
          fmt::format("{} = {}  # {}{}\n", row.key, toml_text(values.front()), rule_text(row.rule), row.help);
    else if (!values.empty())
      text += fmt::format("# {}: the GPUs differ: {}\n", row.key, one_line(values));
  }
  return text;
}

std::string expectations_help() {
  std::string text;
  for (const ExpectationRow& row : expectation_rows)
    if (*row.help != '\0')
      text += fmt::format("{}{} ({}{}{})", text.empty() ? "" : "; ", row.key, rule_text(row.rule), row.help,
                          *row.unit == '\0' ? "" : fmt::format(", {}", row.unit));
  return text + ".";
}

}  // namespace egt
