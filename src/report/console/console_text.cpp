#include "report/console/console_text.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "egt/core/exit_code.hpp"
#include "egt/core/json_access.hpp"
#include "egt/core/record_text.hpp"
#include "egt/core/units.hpp"
#include "judge/record_schema.hpp"
#include "report/tables/text_table.hpp"

namespace egt {
namespace {

constexpr std::uint64_t mib = 1ull << 20;  // as nvidia-smi's "MB"
constexpr const char* arrow = " → ";

const Json& identity_of(const Json& start) {
  return member(start, "identity");
}
const Json& device_of(const Json& start) {
  return member(identity_of(start), "device");
}

/// "1.5 unit", or nothing where it was not measured.
std::optional<std::string> figure(const Json& json, const char* key, const char* format) {
  const auto value = value_at<double>(json, key);
  return value ? std::optional(fmt::format(fmt::runtime(format), *value)) : std::nullopt;
}

/// The newest value of a telemetry quantity: its last, else its average.
std::optional<double> current(const Json& progress, const char* quantity) {
  const Json& summary = member(member(progress, "telemetry"), quantity);
  const auto last = value_at<double>(summary, "last");
  return last ? last : value_at<double>(summary, "avg");
}

std::uint64_t verified_bytes(const Json& progress) {
  const VerifiedWork work = work_in(progress);
  return work.bytes_patrolled + work.bytes_file_verified;
}

/// How much of the plan is done, 0 to 1: of the time or the steps, whichever is further.
double fraction_done(const Json& start, const Json& progress) {
  double done = 0;
  const auto further = [&](const char* planned_key, const char* key) {
    const auto planned = value_at<double>(start, planned_key);
    if (planned && *planned > 0)
      done = std::max(done, value_at<double>(progress, key).value_or(0) / *planned);
  };
  further("requested_duration_seconds", "elapsed_seconds");
  further("requested_steps", "steps");
  return std::clamp(done, 0.0, 1.0);
}

/// What there is of it: not every command does every kind of work.
std::string work_text(const Json& result) {
  const VerifiedWork work = work_from_json(member(result, "verified_work"));
  std::vector<std::string> parts;
  const auto add = [&](bool any, std::string text) {
    if (any) parts.push_back(std::move(text));
  };
  const auto bytes = [](std::uint64_t count) { return format_bytes(count); };
  add(work.gemm_flops > 0, fmt::format("{:.3g} TFLOP of products", work.gemm_flops * 1e-12));
  add(work.replica_checks > 0, fmt::format("{} replica checks", work.replica_checks));
  add(work.collective_elements_checked > 0,
      fmt::format("{} collective elements", work.collective_elements_checked));
  add(work.bytes_patrolled > 0, bytes(work.bytes_patrolled) + " of memory");
  add(work.bytes_file_verified > 0, bytes(work.bytes_file_verified) + " of files");
  add(work.bytes_exchanged_verified > 0, bytes(work.bytes_exchanged_verified) + " exchanged");
  add(work.outputs_verified > 0, fmt::format("{} outputs", work.outputs_verified));
  return fmt::format("  Verified: {}", parts.empty() ? "nothing" : fmt::format("{}", fmt::join(parts, ", ")));
}

/// Empty where no check of the training has anything to tell.
std::string checks_text(const Json& result) {
  const VerifiedWork work = work_from_json(member(result, "verified_work"));
  std::optional<double> fraction;  // of the rank that they cost most
  for (const Json& part : member(result, "results"))
    if (const auto own = value_at<double>(part, "checks_fraction"))
      fraction = std::max(fraction.value_or(0), *own);
  if (work.replays == 0 && !fraction) return "";
  std::string text = fmt::format("\n  Checks: {} replay{}", work.replays, work.replays == 1 ? "" : "s");
  if (fraction) text += fmt::format(", {:.2g} % of the time", 100 * *fraction);
  return text;
}

/// "0.98" or "0.98 to 1.02"
std::string range_text(const std::vector<double>& values, const char* format) {
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  const std::string low = fmt::format(fmt::runtime(format), *least),
                    high = fmt::format(fmt::runtime(format), *most);
  return low == high ? low : fmt::format("{} to {}", low, high);
}

/// Why a device did not reach its power limit, as far as its telemetry tells.
std::string why_below_limit(const Json& telemetry) {
  const Json& mix = member(telemetry, "mix");
  if (const std::string wrong = text_at(mix, "power_sensor"); !wrong.empty())
    return "its power sensor cannot be right: " + wrong;
  const auto held = [&](const char* reason) {
    return value_at<double>(member(telemetry, "throttle_seconds"), reason).value_or(0);
  };
  if (const double heat = held("sw_thermal") + held("hw_thermal"); heat > 0)
    return fmt::format("heat held its clocks down for {}", format_duration(heat));
  if (const double brake = held("hw_power_brake"); brake > 0)
    return fmt::format("a power brake held its clocks down for {}", format_duration(brake));
  if (value_at<double>(member(telemetry, "duty"), "min").value_or(1) < 1) return "the guard lowered the load";
  if (!member(member(telemetry, "pulse_power_w"), "high").is_null()) return "the load pulses";
  const double capped = held("sw_power_cap");
  if (value_at<double>(mix, "unreached_seconds").value_or(0) > capped)
    return "not capped, all parts at full duty: the load does not reach this limit";
  if (capped > 0) return fmt::format("it was at its limit for {}", format_duration(capped));
  return "nothing held its clocks down: this load does not need more";
}

/// Of the ranks whose devices count their energy: "689 to 691 W on average of 700 W (98.4 to 98.7 %)"; empty
/// where none does.
std::string power_text(const Json& result) {
  constexpr double low_percent = 90;
  std::vector<double> watts, limits, percent;
  std::string below;
  for (const auto& [rank, telemetry] : member(result, "telemetry").items()) {
    const auto mean = value_at<double>(telemetry, "power_w_mean"),
               limit = value_at<double>(telemetry, "power_limit_w");
    if (!mean || !limit || *limit <= 0) continue;
    watts.push_back(*mean);
    limits.push_back(*limit);
    percent.push_back(100 * *mean / *limit);
    if (percent.back() < low_percent)
      below += fmt::format("\n    rank {}: {:.1f} % of its limit; {}", rank, percent.back(),
                           why_below_limit(telemetry));
  }
  if (watts.empty()) return "";
  return fmt::format("\n  Power: {} W on average of {} W ({} %)", range_text(watts, "{:.0f}"),
                     range_text(limits, "{:.0f}"), range_text(percent, "{:.1f}")) +
         below;
}

/// "Pulse: 1 Hz, duty 0.5: 118 rises, at most 0.41 ms apart; 688 W high, 205 W low"; empty: the load is
/// steady.
std::string pulse_text(const Json& result) {
  std::string text;
  double apart_ms = 0;
  for (const Json& entry : member(result, "results")) {
    const Json& pulse = member(entry, "pulse");
    if (!pulse.is_object()) continue;
    text = fmt::format(
        "\n  Pulse: {:g} Hz, duty {:g}: {} rises", value_at<double>(pulse, "hertz").value_or(0),
        value_at<double>(pulse, "duty").value_or(0), value_at<std::uint64_t>(pulse, "rises").value_or(0));
    apart_ms = std::max(apart_ms, value_at<double>(member(pulse, "late_ms"), "max").value_or(0) +
                                      value_at<double>(pulse, "clock_error_ms").value_or(0));
  }
  if (text.empty()) return text;
  text += fmt::format(", at most {:.2f} ms apart", apart_ms);
  std::vector<double> high, low;
  for (const Json& rank : member(result, "telemetry")) {
    const Json& watts = member(rank, "pulse_power_w");
    const auto of_high = value_at<double>(member(watts, "high"), "avg"),
               of_low = value_at<double>(member(watts, "low"), "avg");
    if (!of_high || !of_low) continue;
    high.push_back(*of_high);
    low.push_back(*of_low);
  }
  if (high.empty()) return text + "; power is not told: no sensor, or the pulse is faster than one";
  return text + fmt::format("; {} W high, {} W low", range_text(high, "{:.0f}"), range_text(low, "{:.0f}"));
}

/// "Work index: 1.23 to 1.25 (extreme 0.66, products 0.12, memory 0.45), 1 being one part after the other,
/// each alone"; the shares are the ranks' means. Empty where no rank tells it.
std::string work_index_text(const Json& result) {
  constexpr std::string_view prefix = "share_";
  std::vector<double> indices;
  std::map<std::string, std::vector<double>> shares;
  for (const Json& entry : member(result, "results")) {
    const auto index = value_at<double>(entry, "work_index");
    if (!index) continue;
    indices.push_back(*index);
    for (const auto& [name, value] : entry.items())
      if (name.starts_with(prefix) && value.is_number())
        shares[name.substr(prefix.size())].push_back(value.get<double>());
  }
  if (indices.empty()) return "";
  std::vector<std::string> terms;
  for (const auto& [name, values] : shares)
    terms.push_back(
        fmt::format("{} {:.2f}", name,
                    std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size())));
  return fmt::format("\n  Work index: {} ({}); 1 is one part after the other, each as fast as alone",
                     range_text(indices, "{:.2f}"), fmt::join(terms, ", "));
}

/// "3 faults", and how many more were held back.
std::string fault_count_text(const Json& result) {
  std::uint64_t repeats = 0;
  for (const Json& repeat : member(result, "fault_repeats"))
    repeats += value_at<std::uint64_t>(repeat, "count").value_or(0);
  const std::size_t count = member(result, "faults").size();
  const std::string text = fmt::format("{} fault{}", count, count == 1 ? "" : "s");
  return repeats ? fmt::format("{} and {} repeats", text, repeats) : text;
}

/// A line a restart; a transient stall is nothing that a verdict tells by itself.
std::string restarts_text(const Json& result) {
  std::string text;
  for (const Json& restart : member(result, "restarts"))
    text += fmt::format("\n  Restart: {}", restart_text(restart));
  return text;
}

std::string hexadecimal_text(const Json& fault) {
  const std::string expected = text_at(fault, "expected"), actual = text_at(fault, "actual");
  return expected.empty() && actual.empty() ? "" : fmt::format(": expected {}, actual {}", expected, actual);
}

}  // namespace

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

std::string device_label(const Json& start, bool name_host) {
  const Json& identity = identity_of(start);
  const char* kind = text_at(identity, "backend") == "cuda" ? "GPU" : "CPU";
  const int index = value_at<int>(device_of(start), "index").value_or(0);
  const std::string host = name_host ? fmt::format(" on {}", text_at(identity, "hostname")) : "";
  return fmt::format("{} {}{}", kind, index, host);
}

std::string device_text(const Json& start, bool name_host) {
  const Json& device = device_of(start);
  const auto mebibytes = [&](const char* key) {
    return value_at<std::uint64_t>(device, key).value_or(0) / mib;
  };
  const std::string host = name_host ? fmt::format(" on {}", text_at(identity_of(start), "hostname")) : "";
  return fmt::format("{} ({}): {} MB total, {} MB free{}", device_label(start, false),
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
  if (ranks > 1 && !figures.empty() && value_at<double>(epoch, "tflops")) figures.back() += " a rank";
  note(figure(epoch, "loss", "loss {:.6g}"));
  note(figure(epoch, "all_reduce_gb_per_s", "all-reduce {:.3g} GB/s"));
  if (!text_at(epoch, "precision").empty()) figures.push_back(text_at(epoch, "precision"));
  return figures.empty() ? text : fmt::format("{}: {}", text, fmt::join(figures, ", "));
}

std::string fault_text(const Record& record, const Json& start, bool name_host) {
  const Json& fault = record.body;
  const auto rank = value_at<int>(fault, "rank");
  std::string who = rank ? fmt::format("on rank {}", *rank) : "on a rank that is not known";
  if (!start.is_null())
    who += fmt::format(" ({}, {})", device_label(start, name_host), text_at(device_of(start), "name"));
  if (record.step >= 0) who += fmt::format(", step {}", record.step);
  std::string what = text_at(fault, "kind");
  if (!text_at(fault, "where").empty())
    what += fmt::format(" in {}, byte {}", text_at(fault, "where"),
                        value_at<std::uint64_t>(fault, "offset").value_or(0));
  const auto count = value_at<std::uint64_t>(fault, "count").value_or(1);
  if (count > 1) what += fmt::format(", {} elements", count);
  const bool provisional = value_at<bool>(fault, "provisional").value_or(false);
  return fmt::format("FAULT{} {}: {}{} (seen by {}, blame {})", provisional ? " to be located" : "", who,
                     what, hexadecimal_text(fault), text_at(fault, "detector"), text_at(fault, "blame"));
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

std::string verdict_text(const ConsoleStyle& style, const Verdict& verdict, const Json& result,
                         const std::string& directory, bool has_result) {
  const Colour colour = verdict.exit_code == exit_code::pass    ? Colour::green
                        : verdict.exit_code == exit_code::fault ? Colour::red
                                                                : Colour::yellow;
  std::string text = coloured(style.results_colour, colour,
                              fmt::format("Verdict: {} (exit code {})", verdict.name, verdict.exit_code));
  for (const std::string& reason : verdict.reasons) text += fmt::format("\n  {}", reason);
  text += fmt::format("{}\n{}{}{}{}{}", restarts_text(result), work_text(result), checks_text(result),
                      power_text(result), pulse_text(result), work_index_text(result));
  const Json& summary = member(result, "test_summary");
  if (const auto seconds = value_at<double>(summary, "actual_duration_seconds"))
    text += fmt::format("\n  {} in {}", fault_count_text(result), format_duration(*seconds));
  return text + fmt::format("\nFiles: {}{}/journal.rank*.jsonl",
                            has_result ? directory + "/result.json, " : "", directory);
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

std::string bar_text(const ConsoleStyle& style, const Json& start, const Json& progress) {
  const double done = fraction_done(start, progress);
  const double elapsed = value_at<double>(progress, "elapsed_seconds").value_or(0);
  const std::string left = done > 0 ? format_duration(std::round(elapsed / done - elapsed)) + " left, " : "";
  const std::string tail =
      fmt::format("] {:3.0f} %  {} elapsed, {}step {}", 100 * done, format_duration(std::floor(elapsed)),
                  left, value_at<std::int64_t>(progress, "steps").value_or(0));
  const int cells = std::clamp(style.width - static_cast<int>(tail.size()) - 2, 10, 60);
  const int filled = static_cast<int>(std::lround(done * cells));
  return fmt::format("[{:#<{}}{:-<{}}{}", "", filled, "", cells - filled, tail);
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

std::string clipped(const std::string& text, int columns) {
  int used = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if ((byte & 0xC0u) == 0x80u) continue;  // inside a character
    used += byte >= 0xF0u ? 2 : 1;
    if (used > columns) return text.substr(0, i);
  }
  return text;
}

}  // namespace egt
