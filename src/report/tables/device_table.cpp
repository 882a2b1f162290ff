#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "egt/core/json_access.hpp"
#include "egt/core/record_text.hpp"
#include "egt/core/text.hpp"
#include "egt/core/units.hpp"
#include "egt/device/sensor.hpp"
#include "judge/peer_review.hpp"
#include "report/compare/comparison.hpp"
#include "report/tables/summary.hpp"
#include "report/tables/text_table.hpp"

namespace egt {
namespace {

constexpr std::size_t max_device_rows = 16;  // rows; report.html has all

/// One rank's device and what the result has about it.
struct DeviceRow {
  int rank = -1;
  const Json* identity;   ///< its element of `ranks`
  const Json* telemetry;  ///< null if unknown, like the next two
  const Json* counters;
  const Json* peers;
  double seconds = 0;  ///< of the telemetry
  std::uint64_t errors = 0;
  bool is_lost = false, has_finding = false;
};

/// All faults of selftest are injected, so they are no evidence against a device.
bool counts_errors(const Json& result) {
  return text_at(result, "command") != "selftest";
}

/// Relative throughput of the training compared with the median of the peers: 0.01 is 1 % faster.
std::optional<double> deviation(const DeviceRow& row) {
  const auto ratio = value_at<double>(member(*row.peers, "compute_tflops"), "ratio");
  return ratio ? std::optional(*ratio - 1) : std::nullopt;
}

std::string errors_cell(const DeviceRow& row) {
  if (!row.is_lost) return std::to_string(row.errors);
  return row.errors ? fmt::format("lost, {}", row.errors) : "lost";
}

std::string power_cell(const DeviceRow& row) {
  auto watts = value_at<double>(*row.telemetry, "power_w_mean");
  if (!watts) watts = value_at<double>(member(*row.telemetry, "power_w"), "avg");
  if (!watts) return not_measured;
  auto limit = value_at<double>(*row.telemetry, "power_limit_w");
  if (!limit) limit = value_at<double>(member(*row.identity, "device"), "power_limit_w");
  return fmt::format("{:.0f} / {}", *watts, cell(limit, "{:.0f}"));
}

/// Time with lower clocks because of heat or the power brake. The power cap is the aim of a burn-in.
std::optional<double> throttled_percent(const DeviceRow& row) {
  const Json& reasons = member(*row.telemetry, "throttle_seconds");
  if (!reasons.is_object() || row.seconds <= 0) return std::nullopt;
  double seconds = 0;
  for (const char* reason : {"sw_thermal", "hw_thermal", "hw_power_brake"})
    seconds += value_at<double>(reasons, reason).value_or(0);
  return std::min(100.0, 100 * seconds / row.seconds);
}

std::string throttled_cell(const DeviceRow& row) {
  const auto percent = throttled_percent(row);
  return percent > 0 && percent < 0.1 ? "< 0.1 %" : cell(percent, "{:.1f} %");
}

std::string peers_cell(const DeviceRow& row) {
  const auto away = deviation(row);
  if (!away) return not_measured;
  return std::fabs(*away) < 0.0005 ? "0.0 %" : fmt::format("{:+.1f} %", 100 * *away);
}

std::string corrected_cell(const DeviceRow& row) {
  return cell(new_errors(*row.counters, "ecc_corrected"), "{:.0f}");
}

/// The hottest temperature reached the limit that the program holds.
bool is_hot(const DeviceRow& row) {
  const auto celsius = value_at<double>(member(*row.telemetry, "temperature_c"), "max"),
             limit = value_at<double>(member(*row.telemetry, "guard"), "temperature_limit_c");
  return celsius && limit && *celsius >= *limit;
}

struct DeviceColumn {
  std::string head;  ///< if the table is too wide, a statistic after its last blank is left out
  bool has_statistic = false;
  std::function<std::string(const DeviceRow&)> cell;
  /// Whether report.html marks the cell: the device lost speed or approaches a fault.
  std::function<bool(const DeviceRow&)> is_notable = nullptr;
};

std::vector<DeviceColumn> device_columns(const Json& result, bool is_gpu) {
  std::vector<DeviceColumn> columns;
  if (counts_errors(result)) columns.push_back({.head = "errors", .cell = errors_cell});
  columns.push_back({.head = "power W avg/limit", .has_statistic = true, .cell = power_cell});
  for (const SampledMetric& metric : sampled_metrics) {
    if (metric.column == nullptr) continue;
    std::string head = metric.column;
    const std::string statistic = head.substr(head.rfind(' ') + 1);
    if (!is_gpu && head.starts_with("SM ")) head.erase(0, 3);
    columns.push_back(
        {.head = head, .has_statistic = true, .cell = [&metric, statistic](const DeviceRow& row) {
           const auto value = value_at<double>(member(*row.telemetry, metric.key), statistic.c_str());
           return cell(value ? std::optional(*value * metric.scale) : value, "{:.0f}");
         }});
    if (std::string_view(metric.key) == "temperature_c") columns.back().is_notable = is_hot;
  }
  columns.push_back({.head = "throttled", .cell = throttled_cell, .is_notable = [](const DeviceRow& row) {
                       return throttled_percent(row) > 0;
                     }});
  columns.push_back({.head = "vs peers", .cell = peers_cell});
  columns.push_back({.head = "ECC new", .cell = corrected_cell, .is_notable = [](const DeviceRow& row) {
                       return new_errors(*row.counters, "ecc_corrected") > 0;
                     }});
  return columns;
}

/// Whether the rank was killed: results have a null instead of its end reason.
bool left_no_end(const Json& identity, const Json& result) {
  return identity.is_object() && identity.contains("end_reason") && identity["end_reason"].is_null() &&
         !value_at<bool>(result, "running").value_or(false);
}

std::vector<DeviceRow> devices_of(const Json& result) {
  std::map<int, std::uint64_t> errors = faults_by_rank(result);
  std::set<int> lost, found;
  for (const Json& loss : member(result, "losses")) lost.insert(value_at<int>(loss, "rank").value_or(-1));
  for (const Json& finding : member(result, "findings")) {
    found.insert(value_at<int>(finding, "rank").value_or(-1));
    for (const Json& rank : member(finding, "ranks"))
      if (rank.is_number_integer()) found.insert(rank.get<int>());
  }
  auto seconds = value_at<double>(member(result, "test_summary"), "actual_duration_seconds");
  if (const Json& parts = member(result, "parts_of_run"); parts.is_array() && parts.size() > 1)
    seconds = value_at<double>(parts.back(), "elapsed_seconds");  // telemetry is of the last part
  std::vector<DeviceRow> devices;
  for (const Json& identity : member(result, "ranks")) {
    const int rank = value_at<int>(identity, "rank").value_or(-1);
    const auto of = [&](const char* name) { return &member(member(result, name), std::to_string(rank)); };
    devices.push_back({.rank = rank,
                       .identity = &identity,
                       .telemetry = of("telemetry"),
                       .counters = of("counters"),
                       .peers = of("peers"),
                       .seconds = seconds.value_or(0),
                       .errors = errors[rank],
                       .is_lost = lost.contains(rank) || left_no_end(identity, result),
                       .has_finding = found.contains(rank)});
  }
  return devices;
}

/// Keeps the devices that an operator must see: those with errors, findings or the largest deviation.
void keep_first(std::vector<DeviceRow>& devices) {
  const auto weight = [](const DeviceRow& row) {
    return std::tuple(row.errors > 0 || row.is_lost, row.errors, row.has_finding,
                      std::fabs(deviation(row).value_or(0)));
  };
  std::stable_sort(devices.begin(), devices.end(),
                   [&](const DeviceRow& a, const DeviceRow& b) { return weight(a) > weight(b); });
  devices.resize(max_device_rows);
}

std::vector<std::string> hosts_of(const std::vector<DeviceRow>& devices) {
  std::vector<std::string> hosts;
  for (const DeviceRow& row : devices)
    if (const std::string host = text_at(*row.identity, "hostname");
        std::find(hosts.begin(), hosts.end(), host) == hosts.end())
      hosts.push_back(host);
  return hosts;
}

/// "PASS", "node7", "8x NVIDIA H200", "1 h 00 m", "0 errors"
std::vector<std::string> headline(const Json& result, const std::vector<DeviceRow>& devices) {
  std::string verdict = text_at(result, "verdict");
  for (char& c : verdict)
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  const std::vector<std::string> hosts = hosts_of(devices);
  Configuration devices_used{.mode = "", .devices = static_cast<std::int64_t>(devices.size()), .models = {}};
  for (const DeviceRow& row : devices)
    devices_used.models.push_back(text_at(member(*row.identity, "device"), "name"));
  std::vector<std::string> terms = {
      verdict, hosts.size() == 1 ? hosts[0] : fmt::format("{} nodes", hosts.size()), to_text(devices_used)};
  if (const auto seconds = value_at<double>(member(result, "test_summary"), "actual_duration_seconds"))
    terms.push_back(format_duration(*seconds));
  std::uint64_t errors = 0;
  for (const auto& [rank, count] : faults_by_rank(result)) errors += count;
  if (counts_errors(result)) terms.push_back(counted(errors, "error"));
  return terms;
}

bool is_gpu(const std::vector<DeviceRow>& devices) {
  return text_at(*devices.front().identity, "backend") == "cuda";
}

/// Columns without any value are left out.
std::vector<DeviceColumn> columns_with_values(const Json& result, const std::vector<DeviceRow>& devices) {
  std::vector<DeviceColumn> columns = device_columns(result, is_gpu(devices));
  std::erase_if(columns, [&](const DeviceColumn& column) {
    return std::all_of(devices.begin(), devices.end(),
                       [&](const DeviceRow& row) { return column.cell(row) == not_measured; });
  });
  return columns;
}

/// Header and rows.
std::vector<Row> rows_of(const Json& result, const std::vector<DeviceRow>& devices, bool is_short) {
  const bool name_host = hosts_of(devices).size() > 1;
  const std::vector<DeviceColumn> columns = columns_with_values(result, devices);
  std::vector<Row> rows = {{is_gpu(devices) ? "GPU" : "CPU"}};
  for (const DeviceColumn& column : columns)
    rows[0].push_back(is_short && column.has_statistic ? column.head.substr(0, column.head.rfind(' '))
                                                       : column.head);
  for (const DeviceRow& device : devices) {
    const auto index = value_at<int>(member(*device.identity, "device"), "index");
    const std::string text = index ? std::to_string(*index) : fmt::format("rank {}", device.rank);
    Row& row = rows.emplace_back(
        Row{name_host ? fmt::format("{}:{}", text_at(*device.identity, "hostname"), text) : text});
    for (const DeviceColumn& column : columns) row.push_back(column.cell(device));
  }
  return rows;
}

}  // namespace

std::map<int, std::uint64_t> faults_by_rank(const Json& result) {
  std::map<int, std::uint64_t> faults;
  const auto rank_of = [](const Json& fault) { return value_at<int>(fault, "rank").value_or(-1); };
  for (const Json& fault : member(result, "faults")) ++faults[rank_of(fault)];
  for (const Json& repeat : member(result, "fault_repeats"))
    faults[rank_of(repeat)] += value_at<std::uint64_t>(repeat, "count").value_or(0);
  return faults;
}

std::string device_table(const Json& result, std::size_t columns) {
  std::vector<DeviceRow> devices = devices_of(result);
  if (devices.empty()) return "";
  std::string text = printable(fmt::format("{}", fmt::join(headline(result, devices), "  "))) + "\n";
  const std::size_t all = devices.size();
  if (all > max_device_rows) keep_first(devices);
  std::vector<Row> rows = rows_of(result, devices, false);
  const std::string wide = plain_table(rows, 0);
  text += columns == 0 || wide.find('\n') <= columns ? wide
                                                     : plain_table(rows_of(result, devices, true), columns);
  if (all > max_device_rows) text += fmt::format("and {} more: see report.html\n", all - max_device_rows);
  if (const auto unknown = faults_by_rank(result)[-1]; unknown > 0 && counts_errors(result))
    text += fmt::format("{} on an unknown device\n", counted(unknown, "error"));
  return text;
}

Json device_cells(const Json& result) {
  const std::vector<DeviceRow> devices = devices_of(result);
  if (devices.empty()) return nullptr;
  Json heads = Json::array(), rows = Json::array();
  const bool name_host = hosts_of(devices).size() > 1;
  const std::vector<DeviceColumn> columns = columns_with_values(result, devices);
  for (const DeviceColumn& column : columns) heads.push_back(column.head);
  for (const DeviceRow& device : devices) {
    Json cells = Json::array(), notable = Json::array();
    for (const DeviceColumn& column : columns) {
      cells.push_back(column.cell(device));
      notable.push_back(column.is_notable && column.is_notable(device));
    }
    rows.push_back({{"rank", device.rank},
                    {"label", device_label(*device.identity, name_host)},
                    {"identity", device_identity(*device.identity, name_host)},
                    {"is_bad", counts_errors(result) && (device.errors > 0 || device.is_lost)},
                    {"has_finding", device.has_finding},
                    {"cells", cells},
                    {"notable", notable}});
  }
  return {{"headline", headline(result, devices)}, {"columns", heads}, {"rows", rows}};
}

}  // namespace egt
