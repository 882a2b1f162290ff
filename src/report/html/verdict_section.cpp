#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "egt/core/exit_code.hpp"
#include "egt/core/json_access.hpp"
#include "egt/core/part_report.hpp"
#include "egt/core/record_text.hpp"
#include "egt/core/units.hpp"
#include "judge/record_schema.hpp"
#include "report/html/html_text.hpp"
#include "report/html/sections.hpp"

namespace egt::page {
namespace {

constexpr std::size_t max_reasons = 8;  // visible without expanding
constexpr std::size_t max_rows = 1000;  // fault rows; result.json has all

/// "4 ranks on 2 hosts: NVIDIA H200"
std::string machines_text(const Json& result) {
  const Json& system = member(result, "system_info");
  const std::size_t ranks = member(result, "ranks").size(), hosts = member(system, "hostnames").size();
  std::vector<std::string> names;
  for (const Json& rank : member(result, "ranks"))
    if (const std::string name = text_at(member(rank, "device"), "name");
        std::find(names.begin(), names.end(), name) == names.end())
      names.push_back(name);
  return fmt::format("{} rank{} on {}: {}", ranks, ranks == 1 ? "" : "s",
                     hosts == 1 ? text_at(system, "hostname") : fmt::format("{} hosts", hosts),
                     fmt::join(names, ", "));
}

/// Devices blamed by faults, most faults first, so that an operator can locate them.
std::string named_devices(const Json& result) {
  std::map<int, int> faults;
  for (const Json& fault : member(result, "faults"))
    if (const int rank = value_at<int>(fault, "rank").value_or(-1); rank >= 0) ++faults[rank];
  for (const Json& loss : member(result, "losses"))
    if (const int rank = value_at<int>(loss, "rank").value_or(-1); rank >= 0) faults.try_emplace(rank, 0);
  std::vector<std::pair<int, std::string>> lines;
  for (const Json& rank : member(result, "ranks")) {
    const auto found = faults.find(value_at<int>(rank, "rank").value_or(-1));
    if (found == faults.end()) continue;
    const Json& device = member(rank, "device");
    std::string line = fmt::format("<b>rank {}</b> on <b>{}</b>: {}", found->first,
                                   html_text(text_at(rank, "hostname")), html_text(text_at(device, "name")));
    for (const char* key : {"uuid", "pci_bus_id"})
      if (const std::string text = text_at(device, key); !text.empty())
        line += ", <code>" + html_text(text) + "</code>";
    line += found->second ? fmt::format(" ({})", counted(found->second, "fault")) : " (lost)";
    lines.emplace_back(-found->second, "<li>" + line + "</li>");
  }
  std::stable_sort(lines.begin(), lines.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::string html;
  for (const auto& [order, line] : lines) html += line;
  return html.empty() ? "" : "<h2>Named by the checks</h2><ul class=\"named\">" + html + "</ul>";
}

std::string tile(const std::string& name, const std::string& value) {
  return fmt::format("<div><dt>{}</dt><dd>{}</dd></div>", html_text(name), html_text(value));
}

std::string tiles(const Json& result) {
  std::string html;
  if (const auto seconds = value_at<double>(member(result, "test_summary"), "actual_duration_seconds"))
    html += tile("Duration", format_duration(*seconds));
  std::uint64_t repeats = 0;
  for (const Json& repeat : member(result, "fault_repeats"))
    repeats += value_at<std::uint64_t>(repeat, "count").value_or(0);
  const std::size_t faults = array_at(result, "faults").size();
  html += tile("Faults", repeats ? fmt::format("{} + {} repeats", faults, repeats) : std::to_string(faults));
  std::optional<double> hottest, least, most;
  for (const auto& [rank, telemetry] : member(result, "telemetry").items()) {
    if (const auto celsius = value_at<double>(member(telemetry, "temperature_c"), "max"))
      hottest = std::max(hottest.value_or(*celsius), *celsius);
    const auto watts = value_at<double>(telemetry, "power_w_mean"),
               limit = value_at<double>(telemetry, "power_limit_w");
    if (!watts || !limit || *limit <= 0) continue;
    least = std::min(least.value_or(2), *watts / *limit);
    most = std::max(most.value_or(0), *watts / *limit);
  }
  if (least)
    html += tile(
        "Power of its limit",
        (std::round(100 * *least) < std::round(100 * *most) ? fmt::format("{:.0f} to ", 100 * *least) : "") +
            fmt::format("{:.0f} %", 100 * *most));
  if (hottest) html += tile("Hottest", fmt::format("{:.0f} °C", *hottest));
  const VerifiedWork work = work_from_json(member(result, "verified_work"));
  std::map<int, std::string> work_tiles;
  for (const WorkField& field : work_fields)
    if (field.place > 0 && any(work, field))
      work_tiles[field.place] = tile(field.tile, amount_text(work, field));
  for (const auto& [place, one] : work_tiles) html += one;
  for (const auto& [kind, share] : member(result, "verified_share").items())
    if (share.is_number())
      html += tile("Verified: " + spoken(kind), fmt::format("{:.4g} %", 100 * share.get<double>()));
  return "<dl class=\"tiles\">" + html + "</dl>";
}

/// "0x02000080 (bits 7, 25)", which distinguishes a stuck bit from a lost line.
std::string xor_text(const std::string& mask) {
  constexpr int max_bits = 4;
  if (!mask.starts_with("0x") || mask.size() > 18) return mask;
  std::uint64_t bits = 0;
  for (const char c : mask.substr(2)) {
    const auto digit = std::string_view("0123456789abcdef").find(c);
    if (digit == std::string_view::npos) return mask;
    bits = bits << 4 | digit;
  }
  std::vector<int> set;
  for (int bit = 0; bit < 64; ++bit)
    if (bits >> bit & 1) set.push_back(bit);
  if (set.empty()) return mask;
  if (set.size() > max_bits) return fmt::format("{} ({} bits)", mask, set.size());
  return fmt::format("{} (bit{} {})", mask, set.size() == 1 ? "" : "s", fmt::join(set, ", "));
}

/// The script turns it into a button that shows this time in the charts.
std::string time_html(const Json& entry) {
  const std::string time = html_text(text_at(entry, "time"));
  return time.empty() ? "-" : fmt::format("<time datetime=\"{0}\">{0}</time>", time);
}

std::string fault_table(const Json& faults) {
  HtmlTable table("Faults: every wrong result",
                  {"kind", "rank", "host", "device", "time", "step", "where", "offset", "expected", "actual",
                   "xor", "count", "detector", "blame"},
                  true);
  for (std::size_t at = 0; at < std::min(faults.size(), max_rows); ++at) {
    const Json& fault = faults[at];
    std::string blame = text_at(fault, "blame");
    if (const Json& suspects = member(fault, "suspects"); !suspects.empty())
      blame += ": ranks " + one_line(suspects);
    const auto code = [](const std::string& text) { return "<code>" + html_text(text) + "</code>"; };
    const auto cell = [&](const char* key) { return html_text(figure_text(member(fault, key))); };
    table.add_html(
        {cell("kind"), cell("rank"), cell("hostname"), cell("device_uuid"), time_html(fault), cell("step"),
         cell("where"), cell("offset"), code(text_at(fault, "expected")), code(text_at(fault, "actual")),
         code(xor_text(text_at(fault, "xor"))), cell("count"), cell("detector"), html_text(blame)},
        {"", "", "", "", "", "", "class=\"wide\""});
  }
  std::string html = table.html();
  if (faults.size() > max_rows)
    html += fmt::format("<p>The first {} of {}; all are in result.json.</p>", max_rows, faults.size());
  return html;
}

/// Other events, one line each.
std::string event_table(const Json& result) {
  HtmlTable table("Losses, findings, restarts, injected faults", {"what", "rank", "time", "text"}, true);
  const auto add = [&](const char* name, const Json& entries, const auto& text) {
    for (const Json& entry : entries)
      table.add_html({html_text(name), html_text(figure_text(member(entry, "rank"))), time_html(entry),
                      html_text(text(entry))});
  };
  add("loss", member(result, "losses"), loss_text);
  add("finding", member(result, "findings"), finding_text);
  add("restart", member(result, "restarts"), restart_text);
  add("repeats", member(result, "fault_repeats"), [](const Json& entry) {
    const auto count = value_at<std::uint64_t>(entry, "count").value_or(0);
    return fmt::format("{} like one above: {}", counted(count, "more fault"), one_line(entry));
  });
  add("injected", member(result, "injections"), [](const Json& entry) {
    const Json& found = member(entry, "found");
    const std::string planned = text_at(entry, "planned");  // empty for selftest
    return fmt::format("{}: {}{}", planned.empty() ? text_at(entry, "kind") : planned,
                       text_at(entry, "where"),
                       found.is_null() ? ""
                       : found == true ? "; found"
                                       : "; NOT found");
  });
  return table.html();
}

}  // namespace

bool is_selftest(const Json& result) {
  return text_at(result, "command") == "selftest";
}

std::string verdict_header(const Json& result, const std::string& of, const std::string& when) {
  const int code = value_at<int>(result, "exit_code").value_or(exit_code::incomplete);
  const bool is_running = value_at<bool>(result, "running").value_or(false);
  const bool is_open = is_running && text_at(result, "verdict") == "running";
  const char* kind = is_open                    ? "running"
                     : code == exit_code::pass  ? "pass"
                     : code == exit_code::fault ? "fault"
                                                : "warn";
  const char* sign = is_open ? "●" : code == exit_code::pass ? "✓" : code == exit_code::fault ? "✗" : "!";
  std::string reasons, more;
  const Json& all = array_at(result, "reasons");
  for (std::size_t at = 0; at < all.size(); ++at)
    (at < max_reasons ? reasons : more) += "<li>" + html_text(figure_text(all[at])) + "</li>";
  reasons = "<ul>" + reasons + "</ul>";
  if (!more.empty())
    reasons += fmt::format("<details><summary>{}</summary><ul>{}</ul></details>",
                           counted(all.size() - max_reasons, "more reason"), more);
  std::string not_run;
  for (const Json& one : array_at(result, "checks_not_run")) {
    const auto rank = value_at<int>(one, "rank");
    not_run += fmt::format("<li>{}{}: {}</li>", html_text(text_at(one, "check")),
                           rank ? fmt::format(" (rank {})", *rank) : "", html_text(text_at(one, "reason")));
  }
  if (!not_run.empty())
    reasons += fmt::format("<details><summary>Checks not run: {}</summary><ul>{}</ul></details>",
                           array_at(result, "checks_not_run").size(), not_run);
  const std::string verdict = text_at(result, "verdict");
  const std::string note = is_open      ? "no verdict yet"
                           : is_running ? "so far"
                                        : fmt::format("exit code {}", code);
  return fmt::format(
      "<header class=\"verdict {}\"><p>{}, {}</p>\n<h1><span aria-hidden=\"true\">{}</span> {} "
      "<small>{}</small></h1>\n{}\n<p>{}</p></header>\n",
      kind, html_text(text_at(result, "command")), html_text(of), sign,
      html_text(verdict.empty() ? "no verdict" : verdict), note, reasons, html_text(when));
}

std::string verdict_section(const Json& result) {
  const Json& system = member(result, "system_info");
  return verdict_header(
             result, machines_text(result),
             fmt::format("{} to {} (UTC)", text_at(system, "started_at"), text_at(system, "ended_at"))) +
         (is_selftest(result) ? "" : named_devices(result)) + tiles(result);
}

std::string faults_section(const Json& result) {
  const std::string all = fault_table(array_at(result, "faults")) + event_table(result);
  return is_selftest(result) && !all.empty()
             ? "<details><summary>Injected faults and their detection</summary>" + all + "</details>\n"
             : all;
}

}  // namespace egt::page
