#include "report/html/time_lines.hpp"

#include <algorithm>
#include <iterator>
#include <limits>
#include <optional>

#include "egt/core/json_access.hpp"
#include "egt/core/part_report.hpp"
#include "egt/device/sensor.hpp"
#include "judge/record_schema.hpp"

namespace egt {
namespace {

constexpr double min_period_s = 0.5;  // min time between two counter values, which smooths the rate
constexpr std::size_t max_phases = 200;
constexpr double latest_time = 1e11;  // later values are invalid times

/// The source of a metric in a record, and its meaning there.
enum class From {
  telemetry,  ///< progress: the sensor's last value
  work,       ///< progress: cumulative, verified by all parts
  files,      ///< progress: cumulative, from the part `io`
  throttle,   ///< progress: cumulative, in seconds
  steps,      ///< progress: cumulative
  epoch,      ///< epoch record of rank 0
};

struct Source {
  LineKind kind;
  From from;
  const char* field;
  double scale;                   ///< factor to the chart's unit
  const char* instead = nullptr;  ///< fallback field, if the first is missing
};

constexpr Source power = {
    {"Power", "W", "power_limit_w", false}, From::telemetry, "power_w_between", 1, "power_w"};
constexpr Source sources_before_work[] = {
    {{"Training", "samples/s", nullptr, true}, From::epoch, "samples_per_second", 1},
    {{"Training per rank", "TFLOP/s", nullptr, true}, From::epoch, "tflops", 1},
    {{"Step time", "ms", nullptr, true}, From::epoch, "ms", 1},  // per step: see epoch_value
    {{"Loss", "", nullptr, true}, From::epoch, "loss", 1},
    {{"All-reduce", "GB/s", nullptr, true}, From::epoch, "all_reduce_gb_per_s", 1},
    {{"Steps", "steps/s", nullptr, false}, From::steps, "steps", 1}};
constexpr Source sources_after_work[] = {
    {{"Files written", "GB/s", nullptr, false}, From::files, "bytes_written", 1e-9},
    {{"Files read", "GB/s", nullptr, false}, From::files, "bytes_read", 1e-9},
    {{"At the power cap", "% of time", nullptr, false}, From::throttle, "sw_power_cap", 100},
    {{"Held down by heat", "% of time", nullptr, false}, From::throttle, "sw_thermal", 100},
    {{"Held down by heat (hardware)", "% of time", nullptr, false}, From::throttle, "hw_thermal", 100},
    {{"Held down by a power brake", "% of time", nullptr, false}, From::throttle, "hw_power_brake", 100},
    {{"Load allowed by the limiter", "%", nullptr, false}, From::telemetry, "duty", 100},
    {{"Duty cycle of memory-resident GEMMs", "%", nullptr, false}, From::telemetry, "products_duty", 100}};

/// In chart order.
const std::vector<Source>& sources() {
  static const std::vector<Source> all = [] {
    std::vector<Source> list = {power};
    for (const SampledMetric& one : sampled_metrics)
      if (one.chart)
        list.push_back({{one.chart, one.unit, one.limit, false}, From::telemetry, one.key, one.scale});
    list.insert(list.end(), std::begin(sources_before_work), std::end(sources_before_work));
    for (const WorkField& field : work_fields) {
      if (!field.chart) continue;
      const bool is_flop = field.unit == WorkField::Unit::flop;  // otherwise bytes; counts have no chart
      list.push_back({{field.chart, is_flop ? "TFLOP/s" : "GB/s", nullptr, false},
                      From::work,
                      field.key,
                      is_flop ? 1e-12 : 1e-9});
    }
    list.insert(list.end(), std::begin(sources_after_work), std::end(sources_after_work));
    return list;
  }();
  return all;
}

std::optional<double> work_of(const Json& body, const char* field) {
  std::optional<double> sum;
  for (const Json& part : member(body, "parts"))
    if (const auto own = value_at<double>(member(part, "work"), field)) sum = sum.value_or(0) + *own;
  return sum;
}

std::optional<double> progress_value(const Source& source, const Json& body) {
  const Json& telemetry = member(body, "telemetry");
  switch (source.from) {
    case From::telemetry:
      if (const auto own = value_at<double>(member(telemetry, source.field), "last"); own || !source.instead)
        return own;
      return value_at<double>(member(telemetry, source.instead), "last");
    case From::work:
      return work_of(body, source.field);
    case From::files:
      return value_at<double>(figures_in(body, "io"), source.field);
    case From::throttle:
      return value_at<double>(member(telemetry, "throttle_seconds"), source.field);
    case From::steps:
      return value_at<double>(body, source.field);
    case From::epoch:
      break;
  }
  return std::nullopt;
}

std::optional<double> epoch_value(const Source& source, const Json& body) {
  const auto value = value_at<double>(body, source.field);
  if (!value || std::string_view(source.field) != "ms") return value;
  const auto steps = value_at<double>(body, "steps");
  return steps && *steps > 0 ? std::optional(*value / *steps) : std::nullopt;
}

}  // namespace

void Bucket::add(const Bucket& other) {
  if (other.count == 0) return;
  least = count ? std::min(least, other.least) : other.least;
  most = count ? std::max(most, other.most) : other.most;
  sum += other.sum;
  count += other.count;
}

const std::vector<LineKind>& TimeLines::kinds() {
  static const std::vector<LineKind> all = [] {
    std::vector<LineKind> kinds;
    for (const Source& source : sources()) kinds.push_back(source.kind);
    return kinds;
  }();
  return all;
}

Status TimeLines::write(const Record& record) {
  if (!(record.time >= 0 && record.time < latest_time) || record.rank < 0) return {};
  const bool is_epoch = record.kind == RecordKind::epoch;
  const bool is_progress = record.kind == RecordKind::progress || record.kind == RecordKind::end;
  if (record.kind == RecordKind::start)  // a part of the run, in which all counters restart
    std::erase_if(before_, [&](const auto& entry) { return entry.first.second == record.rank; });
  if (is_epoch && record.rank == 0) add_phase(record);
  for (std::size_t kind = 0; kind < sources().size(); ++kind) {
    const Source& source = sources()[kind];
    std::optional<double> value;
    if (is_epoch && record.rank == 0 && source.from == From::epoch) value = epoch_value(source, record.body);
    if (is_progress) value = progress_value(source, record.body);
    if (!value) continue;
    if (source.from == From::telemetry || source.from == From::epoch)
      add(kind, record.rank, record.time, *value * source.scale);
    else
      add_rate(kind, record, *value * source.scale);
  }
  return {};
}

void TimeLines::add(std::size_t kind, int rank, double time, double value) {
  if (!std::exchange(has_begun_, true)) began_ = time;
  const double after = std::max(0.0, time - began_);  // host clocks differ
  while (after / seconds_ >= static_cast<double>(max_buckets_)) halve();
  Line& line = lines_[kind][rank];
  const auto at = static_cast<std::size_t>(after / seconds_);
  if (line.size() <= at) line.resize(at + 1);
  line[at].add(value);
}

/// `count`: since the start of this part of the run, in units of the line.
void TimeLines::add_rate(std::size_t kind, const Record& record, double count) {
  const auto [before, is_first] =
      before_.try_emplace({kind, record.rank}, Count{.time = record.time, .value = count});
  const double seconds = record.time - before->second.time;
  if (is_first || seconds < min_period_s) return;
  const double more = count - before->second.value;
  before->second = {.time = record.time, .value = count};
  // Throttle seconds grow once per sample. Up to two samples fall between records, so the rate is limited.
  const Source& source = sources()[kind];
  const double most = source.from == From::throttle ? source.scale : std::numeric_limits<double>::max();
  if (more >= 0) add(kind, record.rank, record.time, std::min(more / seconds, most));
}

void TimeLines::halve() {
  seconds_ *= 2;
  for (auto& of_ranks : lines_)
    for (auto& [rank, line] : of_ranks) line = thinned(line, (line.size() + 1) / 2);
}

/// A phase of epochs with one precision. The record marks the end of its epoch.
void TimeLines::add_phase(const Record& epoch) {
  const std::string name = text_at(epoch.body, "precision");
  const double time = epoch.time - value_at<double>(epoch.body, "ms").value_or(0) / 1e3;
  if (too_many_phases_ || name.empty() || (!phases_.empty() && phases_.back().name == name)) return;
  phases_.push_back({.time = time, .name = name});
  too_many_phases_ = phases_.size() > max_phases;
  if (too_many_phases_) phases_.clear();
}

Line thinned(const Line& line, std::size_t most, std::size_t* factor) {
  std::size_t together = 1;
  while ((line.size() + together - 1) / together > std::max<std::size_t>(most, 1)) together *= 2;
  if (factor) *factor = together;
  Line less((line.size() + together - 1) / together);
  for (std::size_t at = 0; at < line.size(); ++at) less[at / together].add(line[at]);
  return less;
}

Line merged(const std::map<int, Line>& lines) {
  Line all;
  for (const auto& [rank, line] : lines) {
    if (all.size() < line.size()) all.resize(line.size());
    for (std::size_t at = 0; at < line.size(); ++at) all[at].add(line[at]);
  }
  return all;
}

}  // namespace egt
