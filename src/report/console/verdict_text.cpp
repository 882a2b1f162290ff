#include <algorithm>
#include <filesystem>
#include <initializer_list>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "egt/core/exit_code.hpp"
#include "egt/core/json_access.hpp"
#include "egt/core/part_report.hpp"
#include "egt/core/record_text.hpp"
#include "egt/core/text.hpp"
#include "egt/core/units.hpp"
#include "judge/record_schema.hpp"
#include "report/console/console_text.hpp"
#include "report/tables/summary.hpp"
#include "report/tables/text_table.hpp"

namespace egt {
namespace {

/// Lists only the kinds of work that the command did.
std::string work_text(const Json& result) {
  const VerifiedWork work = work_from_json(member(result, "verified_work"));
  std::vector<std::string> parts;
  for (const bool is_minor : {false, true})
    for (const WorkField& field : work_fields)
      if (field.is_minor == is_minor && any(work, field) && (parts.empty() || !is_minor))
        parts.push_back(fmt::format("{} {}", amount_text(work, field), field.console));
  return fmt::format("  Verified: {}", parts.empty() ? "nothing" : fmt::format("{}", fmt::join(parts, ", ")));
}

/// "Verified share: gemm 100 %, files 99.8 %"; empty if no part reports shares.
std::string share_text(const Json& result) {
  std::vector<std::string> shares;
  for (const auto& [kind, share] : member(result, "verified_share").items()) {
    std::string name = kind;
    std::replace(name.begin(), name.end(), '_', '-');
    if (share.is_number()) shares.push_back(fmt::format("{} {:.4g} %", name, 100 * share.get<double>()));
  }
  return shares.empty() ? "" : fmt::format("\n  Verified share: {}", fmt::join(shares, ", "));
}

/// One line for all units of the multiprocessor vote with the same rates; empty if there was no vote.
std::string vote_text(const Json& result) {
  const Json& rates = member(result, "detectable_error_rate");
  std::map<std::pair<double, double>, std::vector<std::string>> units;  // by negative rate: highest first
  for (const auto& [unit, rate] : member(rates, "vote").items())
    if (rate.is_number())
      units[{-rate.get<double>(), -value_at<double>(member(rates, "vote_one_unit"), unit).value_or(1)}]
          .push_back(unit);
  std::string text;
  for (const auto& [rate, names] : units)
    text += fmt::format("\n  Detectable by the vote: {:.2g} errors per operation, in one unit {:.2g}: {}",
                        -rate.first, -rate.second, fmt::join(names, ", "));
  return text;
}

/// Empty if no training check has anything to report.
std::string checks_text(const Json& result) {
  const VerifiedWork work = work_from_json(member(result, "verified_work"));
  std::optional<double> fraction;  // max over the ranks
  std::uint64_t compared = 0;      // steps, max over the ranks
  for (const Json& part : member(result, "results")) {
    if (const auto own = value_at<double>(part, "checks_fraction"))
      fraction = std::max(fraction.value_or(0), *own);
    compared = std::max(compared, value_at<std::uint64_t>(part, "compared_steps").value_or(0));
  }
  if (work.replays == 0 && !fraction) return "";
  std::string text = "\n  Checks: " + counted(work.replays, "replay");
  if (compared > 0) text += fmt::format(", both passes of {}", counted(compared, "step"));
  if (fraction) text += fmt::format(", {:.2g} % of the time", 100 * *fraction);
  return text;
}

/// "Not run: weight consistency check, known-answer collectives: one rank has no peers"; one line per reason.
std::string not_run_text(const Json& result) {
  std::vector<std::pair<std::string, std::vector<std::string>>> by_reason;
  for (const Json& one : member(result, "checks_not_run")) {
    const std::string reason = text_at(one, "reason");
    const auto rank = value_at<int>(one, "rank");
    const std::string check =
        text_at(one, "check") + (rank ? fmt::format(" (rank {})", *rank) : std::string());
    const auto known = std::find_if(by_reason.begin(), by_reason.end(),
                                    [&](const auto& other) { return other.first == reason; });
    if (known == by_reason.end())
      by_reason.push_back({reason, {check}});
    else
      known->second.push_back(check);
  }
  std::string text;
  for (const auto& [reason, checks] : by_reason)
    text += fmt::format("\n  Not run: {}: {}", fmt::join(checks, ", "), reason);
  return text;
}

/// "0.98" or "0.98 to 1.02"
std::string range_text(const std::vector<double>& values, const char* format) {
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  const std::string low = fmt::format(fmt::runtime(format), *least),
                    high = fmt::format(fmt::runtime(format), *most);
  return low == high ? low : fmt::format("{} to {}", low, high);
}

/// Why a device did not reach its power limit, if its telemetry shows it.
std::string why_below_limit(const Json& telemetry) {
  const Json& mix = member(telemetry, "mix");
  if (const std::string wrong = text_at(mix, "power_sensor"); !wrong.empty())
    return "its power sensor cannot be right: " + wrong;
  const auto held = [&](const char* reason) {
    return value_at<double>(member(telemetry, "throttle_seconds"), reason).value_or(0);
  };
  if (const double heat = held("sw_thermal") + held("hw_thermal"); heat > 0)
    return fmt::format("thermal throttling for {}", format_duration(heat));
  if (const double brake = held("hw_power_brake"); brake > 0)
    return fmt::format("power brake for {}", format_duration(brake));
  if (value_at<double>(member(telemetry, "duty"), "min").value_or(1) < 1)
    return "the limiter lowered the load";
  if (!member(member(telemetry, "pulse_power_w"), "high").is_null()) return "the load pulses";
  const double capped = held("sw_power_cap");
  if (value_at<double>(mix, "unreached_seconds").value_or(0) > capped)
    return "not capped, all parts at full duty cycle: the load does not reach this limit";
  if (capped > 0) return fmt::format("it was at its limit for {}", format_duration(capped));
  return "no throttling: this load needs no more";
}

/// For ranks with an energy counter: "689 to 691 W on average of 700 W (98.4 to 98.7 %)"; empty if there are
/// none.
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

/// "Pulse: 1 Hz, duty 0.5: 118 rises, at most 0.41 ms apart, half of them 0.07; 688 W high, 205 W low"; empty
/// if the load is steady.
std::string pulse_text(const Json& result) {
  std::string text;
  double apart_ms = 0, usual_ms = 0;
  for (const Json& entry : member(result, "results")) {
    const Json& pulse = member(entry, "pulse");
    if (!pulse.is_object()) continue;
    text = fmt::format("\n  Pulse: {:g} Hz, duty {:g}: {}", value_at<double>(pulse, "hertz").value_or(0),
                       value_at<double>(pulse, "duty").value_or(0),
                       counted(value_at<std::uint64_t>(pulse, "rises").value_or(0), "rise"));
    const auto apart = [&](const char* late) {
      return value_at<double>(member(pulse, "late_ms"), late).value_or(0) +
             value_at<double>(pulse, "clock_error_ms").value_or(0);
    };
    apart_ms = std::max(apart_ms, apart("max"));
    usual_ms = std::max(usual_ms, apart("p50"));
  }
  if (text.empty()) return text;
  text += fmt::format(", at most {:.2f} ms apart, half of them {:.2f}", apart_ms, usual_ms);
  std::vector<double> high, low;
  for (const Json& rank : member(result, "telemetry")) {
    const Json& watts = member(rank, "pulse_power_w");
    const auto of_high = value_at<double>(member(watts, "high"), "avg"),
               of_low = value_at<double>(member(watts, "low"), "avg");
    if (!of_high || !of_low) continue;
    high.push_back(*of_high);
    low.push_back(*of_low);
  }
  if (high.empty()) return text + "; power unknown: no sensor, or the pulse is faster than its readings";
  return text + fmt::format("; {} W high, {} W low", range_text(high, "{:.0f}"), range_text(low, "{:.0f}"));
}

/// "Work index: 1.23 to 1.25 (extreme 0.66, products 0.12, memory 0.45); 1 is one part after the other, each
/// as fast as alone". Shares are means over ranks. Mistrusted shares are only listed, not counted. Empty if
/// no rank reports it.
std::string work_index_text(const Json& result) {
  constexpr std::string_view prefix = "share_";
  std::vector<double> indices;
  std::map<std::string, std::vector<double>> shares;
  std::set<std::string> mistrusted;
  for (const Json& entry : member(result, "results")) {
    const auto index = value_at<double>(entry, "work_index");
    if (!index) continue;
    indices.push_back(*index);
    for (const auto& [name, value] : entry.items())
      if (name.starts_with(prefix) && value.is_number())
        shares[name.substr(prefix.size())].push_back(value.get<double>());
    for (const auto& [name, value] : member(entry, "mistrusted").items())
      if (name.starts_with(prefix)) mistrusted.insert(name.substr(prefix.size()));
  }
  if (indices.empty()) return "";
  std::vector<std::string> terms;
  for (const auto& [name, values] : shares)
    terms.push_back(
        fmt::format("{} {:.2f}", name,
                    std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size())));
  const std::string apart =
      mistrusted.empty()
          ? ""
          : fmt::format("; not counted: {}, whose standalone rate was measured on a busy device",
                        fmt::join(mistrusted, ", "));
  return fmt::format("\n  Work index: {} ({}); 1 is one part after the other, each as fast as alone{}",
                     range_text(indices, "{:.2f}"), fmt::join(terms, ", "), apart);
}

/// One breakdown metric of the ranks' `train` entries, and its mean.
struct PhaseMs {
  std::vector<double> of_ranks;
  double mean() const {
    return of_ranks.empty() ? 0
                            : std::accumulate(of_ranks.begin(), of_ranks.end(), 0.0) /
                                  static_cast<double>(of_ranks.size());
  }
};

PhaseMs phase_ms(const Json& result, const char* name) {
  PhaseMs phase;
  for (const Json& entry : member(result, "results"))
    if (const auto ms = value_at<double>(member(entry, "breakdown"), name)) phase.of_ranks.push_back(*ms);
  return phase;
}

/// The dominant phase of a step; empty if unknown.
std::string bottleneck_text(const std::vector<std::pair<std::string, double>>& shares, const PhaseMs& wait) {
  const auto most = std::max_element(shares.begin(), shares.end(),
                                     [](const auto& a, const auto& b) { return a.second < b.second; });
  if (most->first == "other") return "";
  if (most->first != "communication wait") return fmt::format("; most of it is {}", most->first);
  const auto least = std::min_element(wait.of_ranks.begin(), wait.of_ranks.end());
  // The slowest rank, for which all others wait, has the min wait time.
  if (*least < 0.5 * wait.mean())
    return fmt::format("; the others wait for rank {}", least - wait.of_ranks.begin());
  return "; the gradient all-reduce delays it";
}

/// "Step: 41.2 ms: GEMMs 24 %, extreme compute 70 %, update 4 %, communication wait 1 %, other 1 %; most of
/// it is extreme compute". Means over ranks and measured steps, without checks. Empty if no step was
/// measured.
std::string breakdown_text(const Json& result) {
  const double step_ms = phase_ms(result, "step_ms").mean();
  if (step_ms <= 0) return "";
  bool has_extreme = false;
  for (const Json& entry : member(result, "results"))
    has_extreme |= value_at<int>(entry, "iterations").value_or(0) > 0;
  const PhaseMs wait = phase_ms(result, "wait_ms");
  const bool has_peers = wait.of_ranks.size() > 1;
  const auto share = [&](std::initializer_list<const char*> names) {
    double ms = 0;
    for (const char* name : names) ms += phase_ms(result, name).mean();
    return ms / step_ms;
  };
  const std::vector<std::pair<std::string, double>> shares = {
      {"GEMMs", share({"forward_ms", "backward_ms"})},
      {has_extreme ? "extreme compute" : "activations", share({"activation_ms"})},
      {"second pass", share({"second_ms"})},
      {"update", share({"update_ms"})},
      {"communication wait", has_peers ? share({"wait_ms"}) : 0},
      {"other", share({"other_ms"}) + (has_peers ? 0 : share({"wait_ms"}))}};
  std::vector<std::string> terms;
  for (const auto& [name, part] : shares)
    if (part >= 0.005) terms.push_back(fmt::format("{} {:.0f} %", name, 100 * part));
  const std::string time =
      step_ms < 999.5 ? fmt::format("{:.3g} ms", step_ms) : fmt::format("{:.2f} s", step_ms / 1e3);
  return fmt::format("\n  Step: {}: {}{}", time, fmt::join(terms, ", "), bottleneck_text(shares, wait));
}

/// "Shares of a step: 171 to 341 samples per rank, its passes 1.29 times as fast as with even shares". Empty
/// if the options request even shares.
std::string balance_text(const Json& result) {
  std::vector<double> samples, gains;
  for (const Json& entry : member(result, "results")) {
    const auto own = value_at<double>(entry, "batch"), gain = value_at<double>(entry, "balance_gain");
    if (own && entry.contains("batch_changes")) samples.push_back(*own);
    if (gain) gains.push_back(*gain);
  }
  if (samples.empty()) return "";
  return fmt::format("\n  Shares of a step: {} samples per rank", range_text(samples, "{:.0f}")) +
         (gains.empty() ? ", even: too few steps were measured"
                        : fmt::format("; its passes {} times as fast as with even shares",
                                      range_text(gains, "{:.2f}")));
}

/// One line per restart, since the verdict does not mention transient stalls.
std::string restarts_text(const Json& result) {
  std::string text;
  for (const Json& restart : member(result, "restarts"))
    text += fmt::format("\n  Restart: {}", restart_text(restart));
  return text;
}

/// "Action for node7: reset the GPU .. (rank 1). First: nvidia-smi .."; one line per action, with its nodes.
std::string actions_text(const Json& result) {
  std::vector<std::pair<std::string, std::vector<std::string>>> actions;
  for (const Json& node : member(result, "nodes")) {
    const Json& action = member(node, "action");
    std::string text = text_at(action, "text");
    if (text_at(action, "name").empty() || text == "nothing to do") continue;
    if (const auto rank = value_at<int>(action, "rank")) text += fmt::format(" (rank {})", *rank);
    if (const std::string command = text_at(action, "command"); !command.empty())
      text += ". First: " + command;
    auto known = std::find_if(actions.begin(), actions.end(), [&](auto& one) { return one.first == text; });
    if (known == actions.end()) known = actions.insert(known, {text, {}});
    known->second.push_back(printable(text_at(node, "hostname")));
  }
  std::string lines;
  for (const auto& [text, nodes] : actions)
    lines += fmt::format("\n  Action for {}: {}", fmt::join(nodes, ", "), text);
  return lines;
}

bool is_file(const std::string& path) {
  std::error_code error;
  return std::filesystem::is_regular_file(path, error);
}

/// The lines below the verdict's reasons, each after a newline.
std::string summary_lines(const Json& result) {
  return fmt::format("{}\n{}{}{}{}{}{}{}{}{}{}", restarts_text(result), work_text(result), share_text(result),
                     vote_text(result), checks_text(result), not_run_text(result), breakdown_text(result),
                     balance_text(result), power_text(result), pulse_text(result), work_index_text(result)) +
         actions_text(result);
}

/// The table of the devices and an empty line, or nothing.
std::string device_lines(const Json& result, std::size_t columns) {
  const std::string table = device_table(result, columns);
  return table.empty() ? table : table + "\n";
}

}  // namespace

std::string report_text(const Json& result) {
  std::string text =
      device_lines(result, 0) + fmt::format("Verdict: {} (exit code {})", text_at(result, "verdict"),
                                            one_line(member(result, "exit_code")));
  for (const Json& reason : member(result, "reasons"))
    text += "\n  " + (reason.is_string() ? reason.get<std::string>() : one_line(reason));
  return text + summary_lines(result);
}

std::string verdict_text(const ConsoleStyle& style, const Verdict& verdict, const Json& result,
                         const std::string& directory, bool has_result) {
  const Colour colour = verdict.exit_code == exit_code::pass    ? Colour::green
                        : verdict.exit_code == exit_code::fault ? Colour::red
                                                                : Colour::yellow;
  std::string text = device_lines(result, style.results_columns);
  text += coloured(style.results_colour, colour,
                   fmt::format("Verdict: {} (exit code {})", verdict.name, verdict.exit_code));
  std::string prose;
  for (const std::string& reason : verdict.reasons) prose += fmt::format("\n  {}", reason);
  const std::string page = directory + "/report.html";  // removed if it could not be written
  prose += fmt::format("{}\nFiles: {}{}{}/journal.rank*.jsonl", summary_lines(result),
                       is_file(page) ? page + ", " : "", has_result ? directory + "/result.json, " : "",
                       directory);
  return text + wrapped_prose(prose, style.results_columns);
}

}  // namespace egt
