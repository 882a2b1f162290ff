#include "report/html/time_lines.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iterator>
#include <limits>
#include <optional>
#include <set>

#include <fmt/format.h>

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

/// Headings above the charts, in their order.
constexpr const char* power_and_heat = "Power and temperature";
constexpr const char *clocks = "Clocks", *compute = "Compute", *network = "Network", *disk = "Disk";
constexpr std::string_view groups[] = {power_and_heat, clocks, compute, "Memory", network, disk, "Host"};

constexpr Source power = {
    {power_and_heat, "Power", "W", "power_limit_w", false}, From::telemetry, "power_w_between", 1, "power_w"};
constexpr Source other_sources[] = {
    {{compute, "Training", "samples/s", nullptr, true}, From::epoch, "samples_per_second", 1},
    {{compute, "Training per rank", "TFLOP/s", nullptr, true}, From::epoch, "tflops", 1},
    {{compute, "Step time", "ms", nullptr, true}, From::epoch, "ms", 1},  // per step: see epoch_value
    {{compute, "Loss", "", nullptr, true}, From::epoch, "loss", 1},
    {{network, "All-reduce", "GB/s", nullptr, true}, From::epoch, "all_reduce_gb_per_s", 1},
    {{compute, "Steps", "steps/s", nullptr, false}, From::steps, "steps", 1},
    {{disk, "Files written", "GB/s", nullptr, false}, From::files, "bytes_written", 1e-9},
    {{disk, "Files read", "GB/s", nullptr, false}, From::files, "bytes_read", 1e-9},
    {{clocks, "At the power cap", "% of time", nullptr, false}, From::throttle, "sw_power_cap", 100},
    {{clocks, "SW thermal slowdown", "% of time", nullptr, false}, From::throttle, "sw_thermal", 100},
    {{clocks, "HW thermal slowdown", "% of time", nullptr, false}, From::throttle, "hw_thermal", 100},
    {{clocks, "HW power brake slowdown", "% of time", nullptr, false}, From::throttle, "hw_power_brake", 100},
    {{compute, "Load allowed by the limiter", "%", nullptr, false}, From::telemetry, "duty", 100},
    {{compute, "Duty cycle of memory-resident GEMMs", "%", nullptr, false},
     From::telemetry,
     "products_duty",
     100}};

/// All charts, in their order: those of a group follow each other.
const std::vector<Source>& sources() {
  static const std::vector<Source> all = [] {
    std::vector<Source> list = {power};
    for (const SampledMetric& one : sampled_metrics)
      if (one.chart)
        list.push_back(
            {{one.group, one.chart, one.unit, one.limit, false}, From::telemetry, one.key, one.scale});
    list.insert(list.end(), std::begin(other_sources), std::end(other_sources));
    for (const WorkField& field : work_fields) {
      if (!field.chart) continue;
      const bool is_flop = field.unit == WorkField::Unit::flop;  // otherwise bytes; counts have no chart
      list.push_back({{field.group, field.chart, is_flop ? "TFLOP/s" : "GB/s", nullptr, false},
                      From::work,
                      field.key,
                      is_flop ? 1e-12 : 1e-9});
    }
    const auto place = [](const Source& source) {
      return std::find(std::begin(groups), std::end(groups), source.kind.group) - std::begin(groups);
    };
    std::stable_sort(list.begin(), list.end(),
                     [&](const Source& a, const Source& b) { return place(a) < place(b); });
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

constexpr std::size_t max_ranks = 16;              // with a series each; of more ranks only the own lines
constexpr std::size_t min_ranks_of_median = 4;     // fewer lines can be distinguished
constexpr std::size_t max_drawn_points = 250'000;  // over all lines: a phone draws them in a second
constexpr std::size_t min_drawn_points = 60;       // per line, for any number of lines

Bucket whole(const Line& line) {
  Bucket all;
  for (const Bucket& bucket : line) all.add(bucket);
  return all;
}

/// Whether the line has more than one value.
bool changes(const Line& line) {
  const Bucket all = whole(line);
  return all.least < all.most &&
         std::count_if(line.begin(), line.end(), [](const Bucket& bucket) { return bucket.count > 0; }) > 1;
}

/// The rank with the min or max value; null if all ranks have it.
Json rank_of(const std::map<int, Line>& lines, const Bucket& all, double Bucket::*extreme) {
  if (lines.size() < 2 || all.least == all.most) return {};
  for (const auto& [rank, line] : lines)
    for (const Bucket& bucket : line)
      if (bucket.count && bucket.*extreme == all.*extreme) return rank;
  return {};
}

/// Four digits exceed the resolution of a screen.
Json rounded(double value) {
  return std::isfinite(value) ? Json(std::strtod(fmt::format("{:.4g}", value).c_str(), nullptr)) : Json();
}

Json line_json(const std::string& name, const Line& points, std::size_t from) {
  Json least = Json::array(), mean = Json::array(), highest = Json::array();
  bool has_band = false;
  for (std::size_t at = from; at < points.size(); ++at) {
    const Bucket& bucket = points[at];
    has_band |= bucket.count > 1;
    least.push_back(bucket.count ? rounded(bucket.least) : Json());
    mean.push_back(bucket.count ? rounded(bucket.mean()) : Json());
    highest.push_back(bucket.count ? rounded(bucket.most) : Json());
  }
  Json json = {{"name", name}, {"mean", std::move(mean)}};
  if (has_band) json.update({{"least", std::move(least)}, {"most", std::move(highest)}});
  return json;
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return values.size() % 2 ? *middle : (*middle + *std::max_element(values.begin(), middle)) / 2;
}

/// The median of the ranks' means, between their min and max, from point `from` on. All lines have one
/// length.
Line median_line(const std::map<int, Line>& lines, std::size_t from) {
  Line all(lines.begin()->second.size());
  for (std::size_t at = from; at < all.size(); ++at) {
    std::vector<double> means;
    for (const auto& [rank, line] : lines) {
      if (line[at].count) means.push_back(line[at].mean());
      all[at].add(line[at]);
    }
    if (!means.empty()) all[at].sum = median(means) * all[at].count;
  }
  return all;
}

/// Ranks whose mean over the run is farther from the median of all ranks' means than six median absolute
/// deviations and than 2.5 % of the median: the bound that PeerRule has for step times, without its maximum,
/// since temperatures differ more.
std::set<int> outliers(const std::map<int, Line>& lines) {
  constexpr double deviations = 6, least = 0.025;
  std::map<int, double> means;
  for (const auto& [rank, line] : lines)
    if (const Bucket all = whole(line); all.count) means[rank] = all.mean();
  if (means.size() < min_ranks_of_median) return {};
  std::vector<double> values, distances;
  for (const auto& [rank, mean] : means) values.push_back(mean);
  const double middle = median(values);
  for (const double value : values) distances.push_back(std::abs(value - middle));
  const double bound = std::max(deviations * median(distances), least * std::abs(middle));
  std::set<int> ranks;
  for (const auto& [rank, mean] : means)
    if (std::abs(mean - middle) > bound && ranks.size() < max_ranks) ranks.insert(rank);
  return ranks;
}

/// Whether two metrics of one unit have the same curve, such as the utilization of the host as a device and
/// its CPU load, which are read one after the other.
bool is_same_curve(const Line& a, const Line& b) {
  constexpr double tolerance = 0.02;
  double apart = 0, sum = 0;
  if (a.size() != b.size()) return false;
  for (std::size_t at = 0; at < a.size(); ++at) {
    if (!a[at].count != !b[at].count) return false;
    if (!a[at].count) continue;
    apart += std::abs(a[at].mean() - b[at].mean());
    sum += std::abs(a[at].mean());
  }
  return apart <= tolerance * sum;
}

/// Ranks with faults, findings or losses.
std::set<int> noted_ranks(const Json& result) {
  std::set<int> ranks;
  for (const char* key : {"faults", "losses", "findings"})
    for (const Json& entry : member(result, key))
      if (ranks.size() + 1 < max_ranks) ranks.insert(value_at<int>(entry, "rank").value_or(-1));
  return ranks;
}

/// The distinct limits of the ranks, normally a single one.
Json limits_of(const LineKind& kind, const Json& result) {
  std::set<double> limits;
  if (kind.limit)
    for (const auto& [rank, telemetry] : member(result, "telemetry").items()) {
      auto limit = value_at<double>(telemetry, kind.limit);
      if (!limit) limit = value_at<double>(member(telemetry, "guard"), kind.limit);
      if (limit && limits.size() < max_ranks) limits.insert(*limit);
    }
  return limits;
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
  const double after = std::max(0.0, time - began_);  // clocks of nodes differ
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

Json time_lines_json(const TimeLines& lines, const Json& result, std::size_t from) {
  const std::vector<LineKind>& kinds = TimeLines::kinds();
  std::vector<Line> together;
  std::vector<bool> is_drawn;
  std::size_t longest = 0, drawn_lines = 0;
  for (std::size_t kind = 0; kind < kinds.size(); ++kind) {
    const Line& all = together.emplace_back(merged(lines.lines(kind)));
    bool is_own = changes(all);  // the table shows constant values
    for (std::size_t other = 0; other < kind && is_own; ++other)
      is_own = !is_drawn[other] || std::string_view(kinds[other].unit) != kinds[kind].unit ||
               !is_same_curve(together[other], all);
    is_drawn.push_back(is_own);
    if (!is_own) continue;
    longest = std::max(longest, all.size());
    drawn_lines += std::min(lines.lines(kind).size() + 1, max_ranks);
  }
  const std::size_t most =
      std::max(max_drawn_points / std::max<std::size_t>(drawn_lines, 1), min_drawn_points);
  std::size_t factor = 1;
  static_cast<void>(thinned(Line(longest), most, &factor));
  const std::set<int> noted = noted_ranks(result);
  Json charts = Json::array(), phases = Json::array();
  for (std::size_t kind = 0; kind < kinds.size(); ++kind) {
    const LineKind& what = kinds[kind];
    const auto& of_ranks = lines.lines(kind);
    const Bucket all = whole(together[kind]);
    if (all.count == 0 || (all.least == 0 && all.most == 0)) continue;
    Json drawn = Json::array(), own_lines = Json::array();
    std::map<int, Line> points;
    for (const auto& [rank, line] : of_ranks) {
      if (!is_drawn[kind]) break;
      Line& own = points[rank] = line;
      own.resize(longest);
      own = thinned(own, most);
    }
    const bool has_median = points.size() >= min_ranks_of_median;
    if (has_median)
      drawn.push_back(
          line_json(fmt::format("median of {} ranks", points.size()), median_line(points, from), from));
    const std::set<int> far = outliers(of_ranks);
    for (const auto& [rank, line] : points) {
      const bool is_own = !has_median || noted.contains(rank) || far.contains(rank);
      if (points.size() > max_ranks && !is_own) continue;
      const std::string name = what.is_of_run ? "all ranks" : fmt::format("rank {}", rank);
      drawn.push_back(line_json(name, line, from));
      if (is_own) own_lines.push_back(name);
    }
    charts.push_back({{"group", what.group},
                      {"title", what.title},
                      {"unit", what.unit},
                      {"limits", limits_of(what, result)},
                      {"least", rounded(all.least)},
                      {"least_rank", rank_of(of_ranks, all, &Bucket::least)},
                      {"mean", rounded(all.mean())},
                      {"most", rounded(all.most)},
                      {"most_rank", rank_of(of_ranks, all, &Bucket::most)},
                      {"own_lines", own_lines},
                      {"lines", drawn}});
  }
  for (const TimeLines::Phase& phase : lines.phases())
    phases.push_back({{"time", phase.time}, {"name", phase.name}});
  return {{"began", lines.began()},
          {"seconds", lines.bucket_seconds() * static_cast<double>(factor)},
          {"from", from},
          {"charts", charts},
          {"phases", phases}};
}

}  // namespace egt
