#include "report/console/console_text.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <optional>
#include <set>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "egt/core/clock.hpp"
#include "egt/core/json_access.hpp"
#include "egt/core/part_report.hpp"
#include "egt/core/record_text.hpp"
#include "egt/core/units.hpp"
#include "judge/record_schema.hpp"
#include "report/tables/text_table.hpp"

namespace egt {
namespace {

constexpr std::uint64_t mib = 1ull << 20;  // "MB" in these lines, as in the user's document
constexpr const char* arrow = " → ";

const Json& identity_of(const Json& start) {
  return member(start, "identity");
}
const Json& device_of(const Json& start) {
  return member(identity_of(start), "device");
}

/// "1.5 unit"; empty if not measured.
std::optional<std::string> figure(const Json& json, const char* key, const char* format) {
  const auto value = value_at<double>(json, key);
  return value ? std::optional(fmt::format(fmt::runtime(format), *value)) : std::nullopt;
}

/// The latest value of a telemetry metric: its last, else its average.
std::optional<double> current(const Json& progress, const char* quantity) {
  const Json& summary = member(member(progress, "telemetry"), quantity);
  const auto last = value_at<double>(summary, "last");
  return last ? last : value_at<double>(summary, "avg");
}

std::uint64_t verified_bytes(const Json& progress) {
  const VerifiedWork work = work_in(progress);
  return work.bytes_patrolled + work.bytes_file_verified;
}

}  // namespace

std::optional<double> fraction_done(const Json& start, const Json& progress) {
  std::optional<double> done;
  const auto further = [&](const char* planned_key, const char* key) {
    const auto planned = value_at<double>(start, planned_key);
    if (planned && *planned > 0)
      done = std::clamp(value_at<double>(progress, key).value_or(0) / *planned, done.value_or(0), 1.0);
  };
  further("requested_duration_seconds", "elapsed_seconds");
  further("requested_steps", "steps");
  return done;
}

std::string coloured(bool has_colours, Colour colour, const std::string& text) {
  constexpr int codes[] = {31, 32, 33};
  return has_colours ? fmt::format("\x1b[{}m{}\x1b[0m", codes[static_cast<int>(colour)], text) : text;
}

std::string banner_text(const ConsoleStyle& style) {
  return style.utf8 ? "🔥🔥🔥 EXTREME GPU MEMORY STRESS TEST 🔥🔥🔥" : "*** EXTREME GPU MEMORY STRESS TEST ***";
}

bool several_hosts(const std::vector<Json>& starts) {
  std::set<std::string> hosts;
  for (const Json& start : starts) hosts.insert(text_at(identity_of(start), "hostname"));
  return hosts.size() > 1;
}

std::string device_text(const Json& start, bool name_host) {
  const Json& device = device_of(start);
  const auto mebibytes = [&](const char* key) {
    return value_at<std::uint64_t>(device, key).value_or(0) / mib;
  };
  const std::string host = name_host ? fmt::format(" on {}", text_at(identity_of(start), "hostname")) : "";
  return fmt::format("{} ({}): {} MB total, {} MB free{}", device_label(identity_of(start), false),
                     text_at(device, "name"), mebibytes("memory_total_bytes"), mebibytes("memory_free_bytes"),
                     host);
}

std::string network_text(const Json& start) {
  std::vector<std::string> layers;
  for (const Json& neurons : member(start, "layers")) layers.push_back(neurons.dump());
  return fmt::format("Network configuration:\n  Batch size: {}\n  Architecture: {}",
                     value_at<std::int64_t>(start, "global_batch").value_or(0), fmt::join(layers, arrow));
}

std::string host_defaults_text(const Json& start) {
  std::vector<std::string> defaults;
  for (const Json& text : member(start, "host_defaults"))
    if (text.is_string()) defaults.push_back(text.get<std::string>());
  return defaults.empty() ? "" : fmt::format("Defaults of the host backend: {}", fmt::join(defaults, " "));
}

std::string memory_text(const std::string& label, std::uint64_t used_bytes, std::uint64_t total_bytes) {
  const double percent =
      total_bytes ? 100.0 * static_cast<double>(used_bytes) / static_cast<double>(total_bytes) : 0;
  return fmt::format("{} Memory: {}/{} MB ({:.1f}%)", label, used_bytes / mib, total_bytes / mib, percent);
}

std::string epoch_text(const Json& epoch, std::size_t ranks) {
  const auto ms = value_at<double>(epoch, "ms");
  std::string text =
      fmt::format("EXTREME EPOCH {} completed", value_at<std::int64_t>(epoch, "epoch").value_or(0));
  if (ms) text += fmt::format(" in {:.0f} ms", *ms);
  std::vector<std::string> figures;
  const auto note = [&](std::optional<std::string> one) {
    if (one) figures.push_back(*one);
  };
  note(figure(epoch, "samples_per_second", "{:.0f} samples/s"));
  note(figure(epoch, "tflops", "{:.3g} TFLOP/s"));
  if (ranks > 1 && !figures.empty() && value_at<double>(epoch, "tflops")) figures.back() += " per rank";
  note(figure(epoch, "loss", "loss {:.6g}"));
  note(figure(epoch, "all_reduce_gb_per_s", "all-reduce {:.3g} GB/s"));
  if (!text_at(epoch, "precision").empty()) figures.push_back(text_at(epoch, "precision"));
  return figures.empty() ? text : fmt::format("{}: {}", text, fmt::join(figures, ", "));
}

/// " (bit 20)" or " (3 bits)"; empty: the wrong bits are unknown.
std::string bits_text(const Json& fault) {
  const std::string text = text_at(fault, "xor");
  std::string_view digits = text;
  std::uint64_t mask = 0;
  if (!digits.starts_with("0x")) return "";
  digits.remove_prefix(2);
  if (!parse_whole(digits, mask, 16) || mask == 0) return "";
  return std::has_single_bit(mask) ? fmt::format(" (bit {})", std::countr_zero(mask))
                                   : fmt::format(" ({} bits)", std::popcount(mask));
}

std::string fault_text(const Record& record, const Json& start, bool name_host) {
  const Json& fault = record.body;
  const auto rank = value_at<int>(fault, "rank");
  std::vector<std::string> suspects;
  for (const Json& suspect : member(fault, "suspects")) suspects.push_back(one_line(suspect));
  const std::string device = !start.is_null() ? device_identity(identity_of(start), name_host)
                             : rank           ? fmt::format("on rank {}", *rank)
                             : suspects.empty()
                                 ? "on an unknown device"
                                 : fmt::format("on one of ranks {}", fmt::join(suspects, ", "));
  std::string what = text_at(fault, "kind");
  if (!text_at(fault, "where").empty()) what += " in " + text_at(fault, "where");
  std::vector<std::string> details;
  if (value_at<bool>(fault, "provisional").value_or(false)) details.emplace_back("not located yet");
  if (rank && !start.is_null()) details.push_back(fmt::format("rank {}", *rank));
  if (!suspects.empty() && (rank || !start.is_null()))
    details.push_back(fmt::format("one of ranks {}", fmt::join(suspects, ", ")));
  if (const auto step = value_at<std::int64_t>(fault, "step").value_or(-1); step >= 0)
    details.push_back(fmt::format("step {}", step));
  if (const auto byte = value_at<std::uint64_t>(fault, "offset").value_or(0); byte > 0)
    details.push_back(fmt::format("byte {}", byte));
  const auto count = value_at<std::uint64_t>(fault, "count").value_or(1);
  if (count > 1) details.push_back(fmt::format("{} elements", count));
  const std::string expected = text_at(fault, "expected"), actual = text_at(fault, "actual");
  if (!expected.empty() || !actual.empty())
    details.push_back(fmt::format("expected {}, actual {}{}", expected, actual, bits_text(fault)));
  details.push_back(
      fmt::format("detected by {}, blame {}", text_at(fault, "detector"), text_at(fault, "blame")));
  return fmt::format("FAULT {}: {}\n  {}", device, what, fmt::join(details, ", "));
}

std::string injection_text(const Record& record) {
  const Json& injection = record.body;
  std::string text = fmt::format("Injected on rank {}", record.rank);
  if (record.step >= 0) text += fmt::format(", step {}", record.step);
  text += fmt::format(": {}", text_at(injection, "kind"));
  if (const auto layer = value_at<int>(injection, "layer")) text += fmt::format(", layer {}", *layer);
  const auto words = value_at<std::uint64_t>(injection, "count").value_or(1);
  if (words > 1) text += fmt::format(", {} words", words);
  if (!text_at(injection, "mask").empty()) text += fmt::format(", bits {}", text_at(injection, "mask"));
  if (!text_at(injection, "where").empty()) text += fmt::format(" ({})", text_at(injection, "where"));
  return text;
}

std::string progress_text(const Json& progress) {
  std::string text =
      fmt::format("step {}, {} elapsed, {} verified", value_at<std::int64_t>(progress, "steps").value_or(0),
                  format_duration(std::floor(value_at<double>(progress, "elapsed_seconds").value_or(0))),
                  format_bytes(verified_bytes(progress)));
  const auto note = [&](std::optional<double> value, const char* format) {
    if (value) text += fmt::format(", {}", fmt::format(fmt::runtime(format), *value));
  };
  note(value_at<double>(figures_in(progress, "train"), "tflops"), "{:.3g} TFLOP/s");
  note(current(progress, "temperature_c"), "{:.0f} C");
  note(current(progress, "power_w"), "{:.0f} W");
  return text;
}

namespace {

std::string start_text(const Json& body) {
  std::string text = fmt::format("started: {}", text_at(body, "command"));
  for (const Json& argument : member(body, "arguments"))
    if (argument.is_string() && argument != member(body, "command"))
      text += fmt::format(" {}", argument.get<std::string>());
  return fmt::format("{}; {}", text, device_text(body, true));
}

std::string end_text(const Json& body) {
  const std::string reason = text_at(body, "reason"), error = text_at(member(body, "error"), "what");
  const std::string signal = text_at(body, "signal");
  std::string text = fmt::format("ended ({}): {}", reason, progress_text(body));
  if (!signal.empty()) text += fmt::format("; {}", signal);
  if (!error.empty()) text += fmt::format("; {}", error);
  return text;
}

}  // namespace

std::string line_of(const Record& record, const Json& start, std::size_t ranks, bool name_host) {
  switch (record.kind) {
    case RecordKind::start:
      return start_text(record.body);
    case RecordKind::epoch:
      return epoch_text(record.body, ranks);
    case RecordKind::progress:
      return progress_text(record.body);
    case RecordKind::fault:
      return fault_text(record, start, name_host);
    case RecordKind::injection:
      return injection_text(record);
    case RecordKind::notice:
      return text_at(record.body, "text");
    case RecordKind::loss:
      return loss_text(record.body);
    case RecordKind::late_stop:
      return late_stop_text(record.body);
    case RecordKind::finding:
      return finding_text(record.body);
    case RecordKind::restart:
      return restart_text(record.body);
    case RecordKind::end:
      return end_text(record.body);
  }
  return {};
}

namespace {

/// "42 %  21 s elapsed, 29 s left, step 120"
std::string status_text(std::optional<double> done, const Json& progress) {
  const double elapsed = value_at<double>(progress, "elapsed_seconds").value_or(0);
  const std::string left =
      done.value_or(0) > 0 ? format_duration(std::round(elapsed / *done - elapsed)) + " left, " : "";
  return fmt::format("{}{} elapsed, {}step {}", done ? fmt::format("{:3.0f} %  ", 100 * *done) : "",
                     format_duration(std::floor(elapsed)), left,
                     value_at<std::int64_t>(progress, "steps").value_or(0));
}

}  // namespace

std::string bar_text(const ConsoleStyle& style, const Json& start, const Json& progress) {
  const auto done = fraction_done(start, progress);
  if (!done) return status_text(done, progress);
  const std::string tail = "] " + status_text(done, progress);
  const int cells = std::clamp(style.size.columns - static_cast<int>(tail.size()) - 2, 10, 60);
  const int filled = static_cast<int>(std::lround(*done * cells));
  return fmt::format("[{:#<{}}{:-<{}}{}", "", filled, "", cells - filled, tail);
}

std::string status_line(double time, const Json& start, const std::map<int, Json>& progress,
                        const std::string& epoch, std::uint64_t faults, bool is_locating) {
  if (progress.empty()) return "";
  const Json& first = progress.begin()->second;
  std::string text = utc_at(time) + " " + status_text(fraction_done(start, first), first);
  if (!epoch.empty()) text += ", " + epoch;
  std::optional<double> hottest;
  for (const auto& [rank, body] : progress)
    if (const auto celsius = current(body, "temperature_c")) hottest = std::max(hottest, celsius);
  if (hottest) text += fmt::format(", hottest {:.0f} C", *hottest);
  if (is_locating && faults == 0) return text + ", 1 fault, not located yet";
  return fmt::format("{}, {}", text, counted(faults, "fault"));
}

std::string row_header() {
  return fmt::format("{:<14} {:>6} {:>8} {:>6} {:>9} {:>8} {:>10} {:>7}", "device", "util", "memory", "temp",
                     "power", "TFLOP/s", "verified", "faults");
}

std::string row_text(const std::string& label, const Json& start, const Json& progress,
                     std::uint64_t faults) {
  std::optional<double> memory = current(progress, "memory_used_bytes");
  const auto total = value_at<double>(device_of(start), "memory_total_bytes");
  if (memory && total && *total > 0) *memory *= 100 / *total;
  const bool has_share = memory && total && *total > 0;
  const auto power = current(progress, "power_w"),
             limit = value_at<double>(device_of(start), "power_limit_w");
  return fmt::format(
      "{:<14} {:>6} {:>8} {:>6} {:>9} {:>8} {:>10} {:>7}", label,
      cell(current(progress, "gpu_utilization_percent"), "{:.0f} %"),
      has_share ? cell(memory, "{:.1f} %") : "-", cell(current(progress, "temperature_c"), "{:.0f} C"),
      power && limit ? fmt::format("{:.0f}/{:.0f} W", *power, *limit) : cell(power, "{:.0f} W"),
      cell(value_at<double>(figures_in(progress, "train"), "tflops"), "{:.3g}"),
      format_bytes(verified_bytes(progress)), faults);
}

namespace {

/// Display width of the character that starts with this byte; 0 for continuation bytes.
int columns_of(char first) {
  const auto byte = static_cast<unsigned char>(first);
  return (byte & 0xC0u) == 0x80u ? 0 : byte >= 0xF0u ? 2 : 1;
}

}  // namespace

int columns_of(const std::string& text) {
  int columns = 0;
  for (const char c : text) columns += columns_of(c);
  return columns;
}

std::string clipped(const std::string& text, int columns) {
  int used = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    used += columns_of(text[i]);
    if (used > columns) return text.substr(0, i);
  }
  return text;
}

}  // namespace egt
