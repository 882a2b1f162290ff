#include "judge/peer_review.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "egt/core/histogram.hpp"
#include "egt/core/json_access.hpp"
#include "egt/device/sensor.hpp"
#include "judge/record_schema.hpp"

namespace egt {

namespace {

constexpr double half = 1.0;  // half the bandwidth: the same work needs 100 % more time
constexpr PeerRule compute_rule{};
constexpr PeerRule bandwidth_rule{
    .limit = half, .least = half, .horizon_seconds = 240, .min_seconds = 120, .hold_seconds = 10};
/// Extra time to use the same energy at 10 % less power, as a fraction.
constexpr double power_limit = 1 / 0.9 - 1;
constexpr PeerRule power_rule{.limit = power_limit, .least = power_limit};
constexpr double full_load = 0.8;  ///< fraction of the power limit above which devices of a model are alike

/// A judged metric and its display name. A bandwidth also has the part that reports it and its byte counters.
struct Judged {
  const char* name;
  PeerRule rule;
  const char* part = nullptr;
  const char* rate = nullptr;
  std::array<const char*, 2> bytes = {};
};
constexpr std::size_t compute = 0, power = 4;  ///< the metrics that are not bandwidths
constexpr std::array<Judged, 5> figures = {
    {{"step compute time", compute_rule},
     {"memory bandwidth", bandwidth_rule, "memory", "memory_gb_per_s", {"bytes_verified", "bytes_written"}},
     {"file write bandwidth", bandwidth_rule, "io", "write_gb_per_s", {"bytes_written"}},
     {"file read bandwidth", bandwidth_rule, "io", "read_gb_per_s", {"bytes_read"}},
     {"power", power_rule}}};

/// A table column: a metric of `part`, or a telemetry mean if `part` is null.
struct Column {
  const char* name;
  const char* part;
  const char* key;
};
constexpr std::array<Column, 8> columns = {{{"compute_ms", "train", "compute_ms"},
                                            {"compute_tflops", "train", "compute_tflops"},
                                            {"memory_gb_per_s", "memory", "memory_gb_per_s"},
                                            {"write_gb_per_s", "io", "write_gb_per_s"},
                                            {"read_gb_per_s", "io", "read_gb_per_s"},
                                            {"power_w", nullptr, "power_w"},
                                            {"temperature_c", nullptr, "temperature_c"},
                                            {"sm_clock_mhz", nullptr, "sm_clock_mhz"}}};

constexpr double corrected_least = 100, corrected_ratio = 10;

double percent_more_time(double deviation) {
  return 100 * std::expm1(deviation);
}

/// Bandwidth loss in percent for the given log time ratio.
double percent_less(double deviation) {
  return -100 * std::expm1(-deviation);
}

/// Accumulated time for which heat or a power brake throttled the device, in seconds.
double held_down_seconds(const Json& telemetry) {
  double seconds = 0;
  for (const char* reason : {"sw_thermal", "hw_thermal", "hw_power_brake"})
    seconds += value_at<double>(member(telemetry, "throttle_seconds"), reason).value_or(0);
  return seconds;
}

std::string whom(const PeerStanding& standing) {
  return standing.beside ? fmt::format("rank {}'s", *standing.beside)
                         : fmt::format("the median of its {} peers", standing.peers);
}

}  // namespace

std::optional<double> new_errors(const Json& counters, const char* name) {
  const Json& counter = member(counters, name);
  if (member(counter, "after").is_null()) return std::nullopt;
  double sum = 0;
  for (const Json& by : member(counter, "moved")) sum += by.is_number() ? by.get<double>() : 0;
  return sum;
}

std::vector<Finding> PeerReview::add(const Record& record) {
  if (record.kind == RecordKind::start) start(record);
  const auto peer = peers_.find(record.rank);
  if (peer == peers_.end() || (record.kind != RecordKind::progress && record.kind != RecordKind::end))
    return {};
  peer->second.body = record.body;
  std::vector<Finding> found = compare_corrected();
  // All ranks step together and rank 0 reports the times of all, so its records delimit the windows.
  if (record.rank == 0 && record.kind == RecordKind::progress)
    for (Finding& finding : close_window(record.time)) found.push_back(std::move(finding));
  return found;
}

void PeerReview::start(const Record& record) {
  const Json& identity = member(record.body, "identity");
  const Json& device = member(identity, "device");
  Peer peer;
  peer.model = text_at(device, "name");
  peer.hostname = text_at(identity, "hostname");
  peer.device_uuid = text_at(device, "uuid");
  peer.power_limit_w = value_at<double>(device, "power_limit_w");
  peer.samples = value_at<double>(identity, "batch").value_or(0);
  peers_[record.rank] = std::move(peer);
  size_ = value_at<int>(record.body, "size").value_or(0);
  if (static_cast<int>(peers_.size()) == size_) begin();
}

void PeerReview::begin() {
  std::vector<std::string> models, models_by_limit;
  for (const auto& [rank, peer] : peers_) {
    models.push_back(peer.model);
    models_by_limit.push_back(
        peer.power_limit_w ? fmt::format("{} of {:.0f} W", peer.model, *peer.power_limit_w) : "");
  }
  comparisons_.clear();
  for (std::size_t figure = 0; figure < figures.size(); ++figure)
    comparisons_.emplace_back(figures[figure].rule, figure == power ? models_by_limit : models);
}

std::optional<PeerReview::Done> PeerReview::done(std::size_t figure, int rank) const {
  const Peer& peer = peers_.at(rank);
  if (figure == compute) {
    const Json& all = member(figures_in(peers_.at(0).body, "train"), "peers");
    const Json& sums = member(all, "compute_ms_sums");
    const auto index = static_cast<std::size_t>(rank);
    const auto steps = value_at<double>(all, "steps");
    if (!steps || !sums.is_array() || index >= sums.size() || !sums[index].is_number()) return std::nullopt;
    const double ms = sums[index].get<double>();
    if (ms < shortest_pass_ms * *steps) return std::nullopt;
    return Done{*steps * peer.samples, ms};
  }
  if (figure == power) {
    const Json& telemetry = member(peer.body, "telemetry");
    const auto joules = value_at<double>(telemetry, "energy_j"),
               watts = value_at<double>(telemetry, "power_w_mean");
    if (!joules || !watts || *watts <= 0) return std::nullopt;
    return Done{*joules, *joules / *watts * 1e3};
  }
  const Json& part = figures_in(peer.body, figures[figure].part);
  const auto rate = value_at<double>(part, figures[figure].rate);
  double bytes = 0;
  for (const char* key : figures[figure].bytes)
    if (key) bytes += value_at<double>(part, key).value_or(0);
  if (!rate || *rate <= 0 || bytes <= 0) return std::nullopt;
  return Done{bytes, bytes / *rate * 1e-6};
}

std::vector<Finding> PeerReview::close_window(double time) {
  std::vector<Finding> found;
  for (std::size_t figure = 0; figure < comparisons_.size(); ++figure) {
    std::vector<double> times;
    for (auto& [rank, peer] : peers_) {
      const auto now = done(figure, rank);
      auto& before = peer.before[figure];
      // The time is derived from a mean rate, so rounding changes its last bits even if no time was added.
      const bool worked = now && before && now->work > before->work && now->ms - before->ms > 1e-9 * now->ms;
      times.push_back(worked ? (now->ms - before->ms) / (now->work - before->work) : NAN);
      if (worked || !before || (now && now->work < before->work)) before = now;
    }
    if (figure == power) leave_out_held_down(times);
    comparisons_[figure].add(time, times);
    for (const PeerStanding& standing : comparisons_[figure].new_outliers())
      found.push_back(finding(figure, standing));
  }
  return found;
}

/// `times`: milliseconds per joule for each rank. Excludes ranks that heat or the limiter throttled in this
/// window, and all ranks below full load.
void PeerReview::leave_out_held_down(std::vector<double>& times) {
  std::map<std::string, std::vector<double>> loads;  // by model; fractions of the power limit
  std::size_t index = 0;
  for (auto& [rank, peer] : peers_) {
    double& time = times[index++];
    const Json& telemetry = member(peer.body, "telemetry");
    const double heat = held_down_seconds(telemetry);
    const bool is_hot = heat > std::exchange(peer.heat_before, heat);
    const bool rests = value_at<double>(member(telemetry, "duty"), "last").value_or(1) < 1;
    if (is_hot || rests || !peer.power_limit_w || *peer.power_limit_w <= 0) time = NAN;
    if (time > 0) loads[peer.model].push_back(1e3 / time / *peer.power_limit_w);
  }
  index = 0;
  for (const auto& [rank, peer] : peers_) {
    double& time = times[index++];
    if (time > 0 && median_of(loads[peer.model]) < full_load) time = NAN;
  }
}

std::vector<Finding> PeerReview::compare_corrected() {
  std::vector<Finding> found;
  for (const CorrectedCounter& counter : corrected_counters) {
    const auto of = [&](const Peer& peer) { return new_errors(member(peer.body, "counters"), counter.key); };
    for (auto& [rank, peer] : peers_) {
      const auto own = of(peer);
      if (peer.corrects_more.contains(counter.key) || !own || *own < corrected_least) continue;
      std::vector<double> others;
      for (const auto& [other, its] : peers_)
        if (const auto count = of(its); count && other != rank && its.model == peer.model)
          others.push_back(*count);
      if (others.empty()) continue;
      const double usual = median_of(others);
      if (*own < corrected_ratio * usual) continue;
      peer.corrects_more.insert(counter.key);
      found.push_back(
          {.kind = counter.kind,
           .rank = rank,
           .hostname = peer.hostname,
           .device_uuid = peer.device_uuid,
           .where = fmt::format("{} compared with peers", counter.text),
           .text = fmt::format("{:.0f} new {}, the median of its peers is {:.0f}", *own, counter.text, usual),
           .expected = usual,
           .actual = *own});
    }
  }
  return found;
}

Finding PeerReview::finding(std::size_t figure, const PeerStanding& standing) const {
  const Peer& peer = peers_.at(standing.rank);
  Finding finding;
  finding.kind = "outlier";
  finding.rank = standing.rank;
  finding.hostname = peer.hostname;
  finding.device_uuid = peer.device_uuid;
  finding.where = figures[figure].name;
  const double usual = standing.time / std::exp(standing.deviation);
  if (figure == compute) {
    finding.actual = standing.time * peer.samples;
    finding.expected = usual * peer.samples;
    finding.text = fmt::format("step compute time {:.1f} % above {}: {:.3g} ms, not {:.3g} ms",
                               percent_more_time(standing.deviation), whom(standing), *finding.actual,
                               *finding.expected);
    if (const double held = held_down_seconds(member(peer.body, "telemetry")); held >= 1)
      finding.text += fmt::format(
          "; thermal throttling or power brake for {:.0f} s: check its cooling and power supply", held);
  } else if (figure == power) {
    finding.actual = 1e3 / standing.time;
    finding.expected = 1e3 / usual;
    finding.text = fmt::format(
        "power {:.0f} % below {}: {:.0f} W, not {:.0f} W, of {:.0f} W, and no heat holds it down: look at "
        "its power supply, cable and voltage regulator",
        percent_less(standing.deviation), whom(standing), *finding.actual, *finding.expected,
        peer.power_limit_w.value_or(0));
  } else {
    finding.actual = 1e-6 / standing.time;
    finding.expected = 1e-6 / usual;
    finding.text =
        fmt::format("{} {:.0f} % below {}: {:.3g} GB/s, not {:.3g} GB/s", finding.where,
                    percent_less(standing.deviation), whom(standing), *finding.actual, *finding.expected);
  }
  return finding;
}

std::optional<double> PeerReview::value(std::size_t column, int rank) const {
  const Column& one = columns[column];
  const Json& body = peers_.at(rank).body;
  if (one.part != nullptr) return value_at<double>(figures_in(body, one.part), one.key);
  return value_at<double>(member(member(body, "telemetry"), one.key), "avg");
}

Json PeerReview::to_json() const {
  Json table = Json::object();
  for (const auto& [rank, peer] : peers_)
    for (std::size_t column = 0; column < columns.size(); ++column) {
      std::vector<double> values;
      for (const auto& [other, its] : peers_)
        if (const auto known = value(column, other); known && its.model == peer.model)
          values.push_back(*known);
      const std::optional<double> own = value(column, rank);
      std::optional<double> median, ratio;
      if (values.size() > 1) median = median_of(values);
      if (own && median && *median > 0) ratio = *own / *median;
      table[std::to_string(rank)][columns[column].name] = {
          {"value", or_null(own)}, {"median", or_null(median)}, {"ratio", or_null(ratio)}};
    }
  return table;
}

}  // namespace egt
