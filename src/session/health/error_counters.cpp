#include "session/health/error_counters.hpp"

#include <algorithm>
#include <cstddef>
#include <iterator>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "egt/core/json_access.hpp"
#include "egt/core/text.hpp"
#include "egt/core/units.hpp"
#include "judge/xid.hpp"

namespace egt {
namespace {

constexpr std::size_t pcie_replays = 2;  ///< row of `corrected_counters`
static_assert(corrected_counters[pcie_replays].value == &SensorCounters::pcie_replay);

std::string spoken(std::string name) {
  std::replace(name.begin(), name.end(), '_', ' ');
  return name;
}

}  // namespace

std::uint64_t ErrorCounterMonitor::Counter::look(std::optional<std::uint64_t> now, const std::string& phase,
                                                 bool from_zero) {
  after = now;
  was_missing = was_missing || !now;
  if (!now) return 0;
  if (!before) before = last = peak = was_missing && from_zero ? 0 : *now;
  const bool came_back = last < peak && *now >= peak;
  const std::uint64_t from = came_back ? peak : std::min(last, *now);
  last = *now;
  peak = std::max(peak, *now);
  if (*now > from) moved[phase] += *now - from;
  return *now - from;
}

std::uint64_t ErrorCounterMonitor::Counter::grown() const {
  std::uint64_t sum = 0;
  for (const auto& [phase, by] : moved) sum += by;
  return sum;
}

Json ErrorCounterMonitor::Counter::json() const {
  Json json = {{"before", or_null(before)}, {"after", or_null(after)}};
  if (!moved.empty()) json["moved"] = moved;
  return json;
}

ErrorCounterMonitor::Flag::Change ErrorCounterMonitor::Flag::look(std::optional<bool> now) {
  if (!now) return Change::none;
  const bool is_first = !before;
  if (is_first) before = now;
  const bool last = after.value_or(false);
  after = now;
  if (!*now || last) return Change::none;
  return is_first ? Change::set_before : Change::newly_set;
}

Json ErrorCounterMonitor::Flag::json() const {
  return {{"before", or_null(before)}, {"after", or_null(after)}};
}

Json ErrorCounterMonitor::Link::json(unsigned link) const {
  const auto up = [](std::optional<bool> is_down) { return is_down ? Json(!*is_down) : Json(nullptr); };
  return {{"link", link},
          {"up", {{"before", up(down.before)}, {"after", up(down.after)}}},
          {"crc", crc.json()},
          {"replay", replay.json()},
          {"recovery", recovery.json()},
          {"recovery_failed", recovery_failed.json()}};
}

Json ErrorCounterMonitor::Lane::json() const {
  return {{"before", or_null(before)},
          {"after", or_null(after)},
          {"max", or_null(max)},
          {"under_load", or_null(under_load)}};
}

ErrorCounterMonitor::ErrorCounterMonitor(MonitoredDevice device,
                                         std::optional<CorrectedLimit> corrected_limit)
    : device_(std::move(device)), corrected_limit_(corrected_limit) {}

Fault ErrorCounterMonitor::fault(const char* kind, std::string where, std::string expected,
                                 std::string actual, std::uint64_t count) const {
  Fault fault = device_.fault(kind, std::move(where), std::move(expected), std::move(actual), moment_.step,
                              moment_.phase);
  fault.count = count;
  return fault;
}

CounterNews ErrorCounterMonitor::look(const LedgerMoment& moment, const Result<SensorCounters>& counters) {
  if (!looked_)
    for (Corrected& one : corrected_) one.reported.seconds = one.hour.seconds = moment.seconds;
  moment_ = moment;
  moved_links_.clear();
  looked_ = moment.seconds;
  CounterNews news;
  if (!counters.ok()) {
    look_at_silence(counters.status(), news);
    return news;
  }
  const SensorCounters& now = counters.value();
  look_at_xids(now, news);
  look_at_log(now, news);
  if (!now.lost.empty()) {
    report_lost(now.lost, news);
    return news;
  }
  report_answer(news);
  look_at_memory(now, news);
  look_at_remaps(now, news);
  look_at_links(now, news);
  look_at_node(now, news);
  const std::uint64_t replays_before = corrected_[pcie_replays].counter.grown();
  look_at_corrected(now, news);
  if (const std::uint64_t replays = corrected_[pcie_replays].counter.grown() - replays_before; replays > 0)
    moved_links_.push_back(fmt::format("PCIe: {} replays", replays));
  if (moment.after_link_fault && (now.pcie_replay || !now.nvlinks.empty())) report_moved_links(news);
  look_at_pcie(generation_, "generation", now.pcie.generation, now.pcie.max_generation, news);
  look_at_pcie(width_, "width", now.pcie.width, now.pcie.max_width, news);
  return news;
}

/// Shows which link a fault of copies belongs to, before other traffic moves the counters.
void ErrorCounterMonitor::report_moved_links(CounterNews& news) {
  if (moved_links_.empty() && !first("links unchanged")) return;
  news.notices.push_back(
      fmt::format("rank {}: link counters after a link fault: {}", device_.rank,
                  moved_links_.empty() ? "unchanged" : fmt::format("{}", fmt::join(moved_links_, ", "))));
}

void ErrorCounterMonitor::look_at_memory(const SensorCounters& now, CounterNews& news) {
  std::vector<std::string> places;
  for (std::size_t i = 0; i < std::size(ecc_places); ++i) {
    ecc_at_[i].corrected.look(now.ecc_at[i].corrected, moment_.phase);
    if (const auto grown = ecc_at_[i].uncorrected.look(now.ecc_at[i].uncorrected, moment_.phase); grown > 0)
      places.push_back(fmt::format("{} in {}", grown, spoken(ecc_places[i])));
  }
  if (const std::uint64_t errors =
          ecc_uncorrected_.look(now.ecc_uncorrected, moment_.phase, now.ecc_from_zero);
      errors > 0 && first("uncorrected"))
    news.faults.push_back(fault("ecc",
                                fmt::format("uncorrectable memory errors (ECC){}{}",
                                            places.empty() ? "" : ": ", fmt::join(places, ", ")),
                                fmt::format("{}", *now.ecc_uncorrected - errors),
                                fmt::format("{}", *now.ecc_uncorrected), errors));
}

void ErrorCounterMonitor::look_at_corrected(const SensorCounters& now, CounterNews& news) {
  constexpr double hour_seconds = 3600;
  for (std::size_t row = 0; row < std::size(corrected_counters); ++row) {
    const CorrectedCounter& of = corrected_counters[row];
    Corrected& one = corrected_[row];
    one.counter.look(now.*of.value, moment_.phase, now.ecc_from_zero);
    const std::uint64_t corrected = one.counter.grown();
    if (corrected == one.reported.count) one.reported.seconds = moment_.seconds;
    if (!one.reported_at || moment_.seconds - *one.reported_at >= corrected_seconds)
      report_corrected(row, news);
    if (!corrected_limit_) continue;
    const bool per_hour = corrected_limit_->per_hour;
    const std::uint64_t counted = per_hour ? corrected - one.hour.count : corrected;
    if (counted > corrected_limit_->errors && first(of.key))
      news.findings.push_back(
          device_.finding(of.kind, of.text,
                          fmt::format("{} new {}{}, the limit is {}", counted, of.text,
                                      per_hour ? " within an hour" : "", corrected_limit_->errors),
                          static_cast<double>(corrected_limit_->errors), static_cast<double>(counted)));
    if (moment_.seconds - one.hour.seconds >= hour_seconds) one.hour = {moment_.seconds, corrected};
  }
}

/// Reports the corrected errors since the last notice, if any.
void ErrorCounterMonitor::report_corrected(std::size_t row, CounterNews& news) {
  Corrected& one = corrected_[row];
  const std::uint64_t corrected = one.counter.grown();
  const std::uint64_t count = corrected - one.reported.count;
  if (count == 0 || !corrected_counters[row].is_rare) return;
  const double seconds = moment_.seconds - one.reported.seconds;
  news.notices.push_back(fmt::format(
      "rank {}: {} new {} in {:.3g} s{}", device_.rank, count, corrected_counters[row].text, seconds,
      seconds > 0 ? fmt::format(", {:.3g} per second", static_cast<double>(count) / seconds) : ""));
  one.reported = {moment_.seconds, corrected};
  one.reported_at = moment_.seconds;
}

/// Errors outside the GPU that its data passes through.
void ErrorCounterMonitor::look_at_node(const SensorCounters& now, CounterNews& news) {
  if (const std::uint64_t errors = pcie_fatal_.look(now.pcie_fatal, moment_.phase);
      errors > 0 && first("pcie fatal"))
    news.faults.push_back(fault("pcie", "fatal errors of the PCIe link (AER)",
                                fmt::format("{}", *now.pcie_fatal - errors),
                                fmt::format("{}", *now.pcie_fatal), errors));
  const auto report = [&](Counter& counter, std::optional<std::uint64_t> value, const char* kind,
                          const char* where) {
    if (const std::uint64_t errors = counter.look(value, moment_.phase); errors > 0 && first(where))
      news.findings.push_back(device_.finding(kind, where, fmt::format("{} new {}", errors, where), 0,
                                              static_cast<double>(errors)));
  };
  report(pcie_nonfatal_, now.pcie_nonfatal, "link", "uncorrected errors of the PCIe link (AER)");
  report(host_ecc_uncorrected_, now.host_ecc_uncorrected, "host-memory",
         "uncorrectable errors of the node's memory (EDAC)");
}

/// Reports each kind of message once: the kernel log has all of them.
void ErrorCounterMonitor::look_at_log(const SensorCounters& now, CounterNews& news) {
  constexpr const char* finding_kinds[] = {"nvswitch", "link", "driver"};
  constexpr const char* places[] = {"NVSwitch (SXid)", "PCIe link (AER)", "driver"};
  for (const LogMessage& message : now.log_messages) {
    const auto source = static_cast<std::size_t>(message.source);
    if (!first(fmt::format("log {} {}", source, message.is_error))) continue;
    if (message.is_error)
      news.findings.push_back(
          device_.finding(finding_kinds[source], places[source], "kernel log: " + printable(message.text)));
    else
      news.notices.push_back(fmt::format("rank {}: kernel log: {}", device_.rank, printable(message.text)));
  }
}

CounterNews ErrorCounterMonitor::finish() {
  CounterNews news;
  for (std::size_t row = 0; row < std::size(corrected_counters); ++row) report_corrected(row, news);
  return news;
}

void ErrorCounterMonitor::look_at_remaps(const SensorCounters& now, CounterNews& news) {
  remapped_rows_.look(now.remapped_rows, moment_.phase);
  remapped_rows_uncorrected_.look(now.remapped_rows_uncorrected, moment_.phase);
  for (std::size_t i = 0; i < std::size(remap_availabilities); ++i)
    remap_availability_[i].look(now.remap_availability[i], moment_.phase);
  if (const auto exhausted = now.remap_availability[std::size(remap_availabilities) - 1].value_or(0);
      exhausted > 0 && first("no spare rows"))
    news.findings.push_back(
        device_.finding("remap", "memory banks without spare rows",
                        fmt::format("{} without spare rows: another bad row there cannot be remapped",
                                    counted(exhausted, "memory bank")),
                        0, static_cast<double>(exhausted)));
  const auto pending = remap_pending_.look(now.remap_pending);
  if (pending == Flag::Change::newly_set && first("pending"))
    news.faults.push_back(fault("remap", "a row of memory waits to be remapped", "none", "pending"));
  if (pending == Flag::Change::set_before && first("pending"))
    news.findings.push_back(
        device_.finding("remap", "a row of memory waits to be remapped",
                        "a row of memory waits to be remapped since before the run: needs a reset "
                        "of the GPU"));
  const auto failed = remap_failure_.look(now.remap_failure);
  if (failed == Flag::Change::newly_set && first("failed"))
    news.faults.push_back(fault("remap", "a row of memory could not be remapped", "none", "failed"));
  if (failed == Flag::Change::set_before && first("failed"))
    news.findings.push_back(
        device_.finding("remap", "a row of memory could not be remapped",
                        "a row of memory could not be remapped before the run: have the GPU "
                        "replaced"));
}

/// Events from two sources may arrive out of order, and the detail of an Xid may arrive after its number. An
/// event is therefore identified by its number and its index among events of that number.
void ErrorCounterMonitor::look_at_xids(const SensorCounters& now, CounterNews& news) {
  xids_told_ = xids_told_ || now.xids_told;
  std::map<unsigned, std::size_t> count;
  for (const XidEvent& event : now.xids) {
    const auto [seen, is_new] = xids_.try_emplace({event.xid, count[event.xid]++});
    const bool has_new_detail = event.detail != seen->second.event.detail;
    seen->second.event = event;
    if (is_new) {
      seen->second.step = moment_.step;
      seen->second.phase = moment_.phase;
    }
    if (is_new || has_new_detail) report_xid(event, news);  // the detail may change the meaning of the number
  }
}

/// Matches "pid=7, name=python, Ch 00000001, .." by pid or name, since pids differ in a container.
bool ErrorCounterMonitor::is_of_this_process(const XidEvent& event) const {
  const std::string text = event.detail + ",";
  const auto has = [&](const std::string& field) { return text.find(field + ",") != std::string::npos; };
  return (device_.process != 0 && has(fmt::format("pid={}", device_.process))) ||
         (!device_.program.empty() && has("name=" + device_.program));
}

/// Reports each number and kind once.
void ErrorCounterMonitor::report_xid(const XidEvent& event, CounterNews& news) {
  XidKind kind = xid_meaning(event.xid, event.detail).kind;
  const bool is_own = kind == XidKind::program && is_of_this_process(event);
  if (is_own) kind = XidKind::unclear;
  if (!first(fmt::format("xid {} {}", event.xid, static_cast<int>(kind)))) return;
  std::string text = xid_name(event.xid);
  if (!event.detail.empty()) text += fmt::format(" ({})", event.detail);
  switch (kind) {
    case XidKind::hardware:
      news.faults.push_back(fault("xid", text, "none", fmt::format("{}", event.xid)));
      return;
    case XidKind::unclear:
      news.findings.push_back(
          device_.finding("xid", xid_name(event.xid),
                          text + (is_own ? ": of this process, which runs without it on other GPUs"
                                         : ": see NVIDIA's Xid catalog"),
                          std::nullopt, event.xid));
      return;
    case XidKind::program:
    case XidKind::application:
      news.notices.push_back(
          fmt::format("rank {}: {}: of a program, no sign of bad hardware", device_.rank, text));
  }
}

void ErrorCounterMonitor::look_at_links(const SensorCounters& now, CounterNews& news) {
  nvlink_recovery_.look(now.nvlink_recovery, moment_.phase);
  for (const LinkCounters& link : now.nvlinks) look_at_link(link, news);
}

void ErrorCounterMonitor::look_at_link(const LinkCounters& now, CounterNews& news) {
  Link& link = links_[now.link];
  const std::string name = fmt::format("NVLink {}", now.link);
  const auto counts = [](std::optional<std::uint64_t> after, std::uint64_t by) {
    return std::pair(fmt::format("{}", *after - by), fmt::format("{}", *after));
  };
  const auto down = link.down.look(now.up ? std::optional(!*now.up) : std::nullopt);
  if (down == Flag::Change::newly_set && first(name + " down"))
    news.faults.push_back(fault("nvlink", name + " went down", "up", "down"));
  if (down == Flag::Change::set_before && first("links down"))
    news.notices.push_back(
        fmt::format("rank {}: {} was down before the run; others may be so too", device_.rank, name));

  const std::uint64_t failed = link.recovery_failed.look(now.recovery_failed, moment_.phase);
  if (failed > 0 && first(name + " failed")) {
    const auto [expected, actual] = counts(now.recovery_failed, failed);
    news.faults.push_back(fault("nvlink", name + ": recoveries that failed", expected, actual, failed));
  }
  const std::uint64_t recovered = link.recovery.look(now.recovery, moment_.phase);
  if (recovered > 0 && !now.recovery_failed && first(name + " recovery")) {
    const auto [expected, actual] = counts(now.recovery, recovered);
    news.faults.push_back(fault("nvlink", name + ": recovery errors", expected, actual, recovered));
  }
  if (recovered > 0 && now.recovery_failed && first(name + " recovery"))
    news.findings.push_back(device_.finding(
        "link", name,
        fmt::format("{} was retrained: {}; check its seat", name, counted(recovered, "recovery event"))));

  const std::uint64_t crc = link.crc.look(now.crc, moment_.phase);
  const std::uint64_t replays = link.replay.look(now.replay, moment_.phase);
  if (crc + replays + recovered + failed > 0)
    moved_links_.push_back(fmt::format("{}: {} CRC errors, {} replays, {} recoveries, {} failed", name, crc,
                                       replays, recovered, failed));
}

/// Judges the link under load only, since an idle link slows down to save power.
void ErrorCounterMonitor::look_at_pcie(Lane& lane, const char* name, std::optional<unsigned> now,
                                       std::optional<unsigned> max, CounterNews& news) {
  if (!now) return;
  if (!lane.before) lane.before = now;
  lane.after = now;
  if (max) lane.max = max;
  const bool is_loaded = moment_.utilization_percent.value_or(0) >= load_percent;
  if (is_loaded) lane.under_load = now;
  if (!is_loaded || !lane.max || *now >= *lane.max) {
    lane.narrow_since.reset();
    return;
  }
  if (!lane.narrow_since) lane.narrow_since = moment_.seconds;
  const std::string where = fmt::format("PCIe link {}", name);
  if (moment_.seconds - *lane.narrow_since < narrow_seconds || !first(where)) return;
  news.findings.push_back(device_.finding(
      "link", where,
      fmt::format("{} is {} under load, it could be {}: check seat, riser and slot", where, *now, *lane.max),
      *lane.max, *now));
}

/// A device that never answered is treated as one without counters.
void ErrorCounterMonitor::look_at_silence(const Status& status, CounterNews& news) {
  if (status.code() == StatusCode::aborted) {
    report_lost(status.what(), news);
    return;
  }
  if (!answered_) return;
  const double silent = moment_.seconds - *answered_;
  if (silent < silent_seconds) return;
  missed_ = true;
  report_lost(fmt::format("the device answers nothing for {:.0f} s: {}", silent, status.what()), news);
}

void ErrorCounterMonitor::report_lost(const std::string& why, CounterNews& news) {
  if (first("lost")) news.faults.push_back(fault("gpu-lost", why, "an answer", "none"));
}

void ErrorCounterMonitor::report_answer(CounterNews& news) {
  if (missed_)
    news.notices.push_back(fmt::format("rank {}: the device answers again after {:.0f} s", device_.rank,
                                       moment_.seconds - answered_.value_or(moment_.seconds)));
  missed_ = false;
  answered_ = moment_.seconds;
}

CounterNews ErrorCounterMonitor::overdue(double seconds) {
  CounterNews news;
  const double unasked = seconds - asked_.value_or(seconds);
  asked_ = seconds;
  if (unasked >= paused_seconds && looked_) *looked_ += unasked;
  const double stalled = seconds - looked_.value_or(seconds);
  if (stalled < stalled_seconds || missed_) return news;
  missed_ = true;
  if (first("stalled"))
    news.findings.push_back(device_.finding(
        "sensor", "counters", fmt::format("{} does not answer since {:.0f} s", device_.detector, stalled)));
  return news;
}

Json ErrorCounterMonitor::counters() const {
  Json xids = xids_told_ || !xids_.empty() ? Json::array() : Json(nullptr);
  for (const auto& [number, seen] : xids_)
    xids.push_back({{"xid", seen.event.xid},
                    {"time", seen.event.time},
                    {"step", seen.step < 0 ? Json(nullptr) : Json(seen.step)},
                    {"phase", seen.phase},
                    {"detail", seen.event.detail}});
  Json links = Json::array();
  for (const auto& [number, link] : links_) links.push_back(link.json(number));
  Json all{{"ecc_uncorrected", ecc_uncorrected_.json()},
           {"remapped_rows", remapped_rows_.json()},
           {"remapped_rows_uncorrected", remapped_rows_uncorrected_.json()},
           {"remap_pending", remap_pending_.json()},
           {"remap_failure", remap_failure_.json()},
           {"xid", xids},
           {"pcie_nonfatal", pcie_nonfatal_.json()},
           {"pcie_fatal", pcie_fatal_.json()},
           {"host_ecc_uncorrected", host_ecc_uncorrected_.json()},
           {"pcie_generation", generation_.json()},
           {"pcie_width", width_.json()},
           {"nvlink_recovery", nvlink_recovery_.json()},
           {"nvlinks", links}};
  for (std::size_t row = 0; row < std::size(corrected_counters); ++row)
    all[corrected_counters[row].key] = corrected_[row].counter.json();
  for (std::size_t i = 0; i < std::size(remap_availabilities); ++i)
    all[fmt::format("remap_availability_{}", remap_availabilities[i])] = remap_availability_[i].json();
  for (std::size_t i = 0; i < std::size(ecc_places); ++i)
    for (const auto& [name, counter] :
         {std::pair("corrected", &ecc_at_[i].corrected), {"uncorrected", &ecc_at_[i].uncorrected}})
      if (counter->before) all[fmt::format("ecc_{}_{}", name, ecc_places[i])] = counter->json();
  return all;
}

}  // namespace egt
