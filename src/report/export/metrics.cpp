#include <cmath>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "egt/core/json_access.hpp"
#include "egt/core/part_report.hpp"
#include "egt/core/text.hpp"
#include "egt/device/sensor.hpp"
#include "report/export/result_files.hpp"
#include "report/tables/summary.hpp"

namespace egt {
namespace {

using Labels = std::vector<std::pair<std::string, std::string>>;

/// Metrics in insertion order, each followed by all its samples.
class Exposition {
 public:
  /// Skips values that are not finite. The first of two samples with the same labels is kept.
  void add(const std::string& name, const char* help, std::optional<double> value, const Labels& labels = {},
           const char* type = "gauge") {
    if (!value || !std::isfinite(*value)) return;
    auto [found, is_new] = families_.try_emplace(name);
    if (is_new) {
      order_.push_back(name);
      found->second.text = fmt::format("# HELP egt_{0} {1}\n# TYPE egt_{0} {2}\n", name, help, type);
    }
    std::string shown;
    for (const auto& [label, text] : labels)
      if (!text.empty())
        shown += fmt::format("{}{}=\"{}\"", shown.empty() ? "" : ",", label, label_text(text));
    if (!found->second.seen.insert(shown).second) return;
    if (!shown.empty()) shown = "{" + shown + "}";
    found->second.text += fmt::format("egt_{}{} {}\n", name, shown, *value);
  }
  /// The counter NAME_total, which a new run resets, and the gauge NAME of earlier versions.
  void add_counter(const std::string& name, const char* help, std::optional<double> value,
                   const Labels& labels = {}) {
    add(name, help, value, labels);
    add(name + "_total", help, value, labels, "counter");
  }
  std::string text() const {
    std::string all;
    for (const std::string& name : order_) all += families_.at(name).text;
    return all;
  }

 private:
  struct Family {
    std::string text;
    std::set<std::string> seen;
  };
  std::map<std::string, Family> families_;
  std::vector<std::string> order_;
};

struct Figure {
  const char* field;
  const char* name;
  const char* help;
  double per = 1;           ///< divisor that converts to the base unit
  bool is_counter = false;  ///< a single number that only increases during a run
};

/// Values of the telemetry in addition to `sampled_metrics`.
constexpr Figure telemetry_figures[] = {
    {"power_w_mean", "rank_mean_power_watts", "Mean power of the device by its energy counter."},
    {"power_limit_w", "rank_power_limit_watts", "Power limit of the device."},
    {"energy_j", "rank_energy_joules", "Energy consumed by the device.", 1, true},
    {"sensor_failures", "rank_sensor_failures", "Readings of the device's sensors that failed.", 1, true}};

/// A metric of one part's results.
struct PartFigure {
  const char* part;
  Figure figure;
};
constexpr PartFigure part_figures[] = {
    {"train", {"step_ms", "rank_step_seconds", "Time of a training step.", 1e3}},
    {"train", {"loss_last", "rank_training_loss", "Loss of the last training step that was looked at."}},
    {"train",
     {"samples_per_second", "rank_training_samples_per_second", "Training throughput in samples/s."}},
    {"train", {"tflops", "rank_training_flops", "Training throughput in FLOP/s.", 1e-12}},
    {"load",
     {"work_index", "rank_work_index", "Work of all parts; 1 is what one part alone did at the start."}}};

std::optional<double> number(const Json& value, double per = 1) {
  if (value.is_boolean()) return value.get<bool>() ? 1 : 0;
  return value.is_number() ? std::optional(value.get<double>() / per) : std::nullopt;
}

/// Parses "2026-01-31T23:59:59.123Z" to seconds since 1970.
std::optional<double> unix_seconds(const std::string& utc) {
  std::tm time{};
  double seconds = 0;
  if (std::sscanf(utc.c_str(), "%4d-%2d-%2dT%2d:%2d:%lfZ", &time.tm_year, &time.tm_mon, &time.tm_mday,
                  &time.tm_hour, &time.tm_min, &seconds) != 6)
    return std::nullopt;
  time.tm_year -= 1900;
  time.tm_mon -= 1;
  return static_cast<double>(::timegm(&time)) + seconds;
}

Labels with(Labels labels, const char* name, std::string value) {
  labels.emplace_back(name, std::move(value));
  return labels;
}

void add_verdict(Exposition& all, const Json& result) {
  const Json& system = member(result, "system_info");
  const auto word = [&](const char* key) { return text_at(system, key); };
  all.add("run_info", "The program and the host of the last run; always 1.", 1,
          {{"command", text_at(result, "command")},
           {"version", text_at(result, "program_version")},
           {"hostname", word("hostname")},
           {"driver", word("driver_version")},
           {"cuda", word("cuda_version")},
           {"nccl", word("nccl_version")}});
  const std::string verdict = text_at(result, "verdict");
  std::set<std::string> names = {"pass", "fault", "incomplete", "degraded", "interrupted"};
  names.insert(verdict);
  for (const std::string& name : names)
    if (!name.empty())
      all.add("run_verdict", "The run's verdict: 1 for the one that holds, 0 for the others.",
              name == verdict, {{"verdict", name}});
  all.add("run_exit_code", "The run's exit code; 0 is a pass.", number(member(result, "exit_code")));
  all.add("run_injected", "1 if faults were injected: faults do not indicate the hardware then.",
          number(member(result, "injected")));
  all.add("run_start_timestamp_seconds", "Unix time when the run started.", unix_seconds(word("started_at")));
  all.add("run_end_timestamp_seconds", "Unix time of the run's last record.", unix_seconds(word("ended_at")));
  const Json& summary = member(result, "test_summary");
  all.add("run_duration_seconds", "Duration of the run.", number(member(summary, "actual_duration_seconds")));
  for (const char* outcome : {"successful", "failed"})
    all.add("run_tests", "Entries of the result by their outcome.",
            number(member(summary, fmt::format("{}_tests", outcome))), {{"outcome", outcome}});
}

void add_counts(Exposition& all, const Json& result) {
  const auto size = [&](const char* key) { return static_cast<double>(member(result, key).size()); };
  std::uint64_t faults = 0;
  for (const auto& [rank, count] : faults_by_rank(result)) faults += count;
  all.add_counter("run_faults", "Wrong results detected, including injected ones.",
                  static_cast<double>(faults));
  all.add("run_lost_ranks", "Ranks that hung or exited unexpectedly.", size("losses"));
  all.add("run_findings", "Degraded findings.", size("findings"));
  all.add_counter("run_restarts", "Stalls recovered.", size("restarts"));
  all.add("run_ranks", "Ranks of the run.", size("ranks"));
  for (const WorkField& field : work_fields)
    all.add_counter(field.metric, field.help, number(member(member(result, "verified_work"), field.key)));
}

void add_nodes(Exposition& all, const Json& result) {
  for (const Json& node : member(result, "nodes"))
    all.add("node_action", "A node's verdict and the recommended action; always 1.", 1,
            {{"hostname", text_at(node, "hostname")},
             {"verdict", text_at(node, "verdict")},
             {"action", text_at(member(node, "action"), "name")}});
}

void add_shares(Exposition& all, const Json& result) {
  for (const auto& [kind, share] : member(result, "verified_share").items())
    all.add("run_verified_share", "Share of the work of a kind whose results were verified.", number(share),
            with({}, "kind", kind));
}

/// A number, or one number per `stat`.
void add_figure(Exposition& all, const Figure& figure, const Json& value, const Labels& rank) {
  if (figure.is_counter) return all.add_counter(figure.name, figure.help, number(value, figure.per), rank);
  all.add(figure.name, figure.help, number(value, figure.per), rank);
  for (const char* stat : {"min", "avg", "max", "last", "p50", "p95", "p99"})
    all.add(figure.name, figure.help, number(member(value, stat), figure.per), with(rank, "stat", stat));
}

void add_parts(Exposition& all, const Json& result, int number_of, const Labels& rank) {
  for (const Json& entry : member(result, "results"))
    for (const PartFigure& one : part_figures)
      if (value_at<int>(entry, "rank") == number_of && text_at(entry, "test_name") == one.part)
        add_figure(all, one.figure, member(entry, one.figure.field), rank);
}

void add_telemetry(Exposition& all, const Json& telemetry, const Labels& rank) {
  for (const SampledMetric& one : sampled_metrics)
    if (one.metric)
      add_figure(all, {one.key, one.metric, one.help, one.per_base_unit}, member(telemetry, one.key), rank);
  for (const Figure& figure : telemetry_figures)
    add_figure(all, figure, member(telemetry, figure.field), rank);
  if (const Json& throttled = member(telemetry, "throttle_seconds"); throttled.is_object())
    for (const auto& [reason, seconds] : throttled.items())
      all.add_counter("rank_throttled_seconds", "Time the GPU clocks were throttled, by reason.",
                      number(seconds), with(rank, "reason", reason));
}

void add_counters(Exposition& all, const Json& counters, const Labels& rank) {
  if (!counters.is_object()) return;
  for (const auto& [name, value] : counters.items())
    for (const char* when : {"before", "after"})
      all.add("rank_device_state",
              "The device's error counters, flags and link widths, before and after the run.",
              number(member(value, when)), with(with(rank, "field", name), "when", when));
  if (const Json& xids = member(counters, "xid"); xids.is_array())
    all.add_counter("rank_xid_errors", "Xid errors of the device in the run.",
                    static_cast<double>(xids.size()), rank);
}

void add_rank(Exposition& all, const Json& result, const Json& entry, std::map<int, std::uint64_t>& faults) {
  const auto number_of = value_at<int>(entry, "rank");
  if (!number_of) return;
  const std::string key = std::to_string(*number_of);
  const Json& device = member(entry, "device");
  const Labels rank = {
      {"rank", key}, {"hostname", text_at(entry, "hostname")}, {"device_uuid", text_at(device, "uuid")}};
  // UUID, Hostname and pci_bus_id are labels of the DCGM exporter, for joins. Its `gpu` is NVML's index,
  // which differs from the CUDA index if CUDA_VISIBLE_DEVICES selects devices.
  Labels info = rank;
  info.insert(info.end(), {{"device", text_at(device, "name")},
                           {"pci_bus_id", text_at(device, "pci_bus_id")},
                           {"backend", text_at(entry, "backend")},
                           {"UUID", text_at(device, "uuid")},
                           {"Hostname", text_at(entry, "hostname")}});
  all.add("rank_info", "A rank and its device of the last run; always 1.", 1, info);
  all.add_counter("rank_faults", "Wrong results detected on this rank.",
                  static_cast<double>(faults[*number_of]), rank);
  all.add_counter("rank_steps", "Steps completed by the rank.", number(member(entry, "steps")), rank);
  add_parts(all, result, *number_of, rank);
  add_telemetry(all, member(member(result, "telemetry"), key), rank);
  add_counters(all, member(member(result, "counters"), key), rank);
}

}  // namespace

std::string prometheus_text(const Json& result) {
  Exposition all;
  add_verdict(all, result);
  add_counts(all, result);
  add_shares(all, result);
  add_nodes(all, result);
  std::map<int, std::uint64_t> faults = faults_by_rank(result);
  for (const Json& entry : member(result, "ranks")) add_rank(all, result, entry, faults);
  return all.text();
}

}  // namespace egt
