#include "report/html/page.hpp"

#include <cmath>
#include <map>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "egt/core/json_access.hpp"
#include "egt/core/part_report.hpp"
#include "egt/core/record_text.hpp"
#include "egt/core/text.hpp"
#include "report/compare/comparison_parts.hpp"
#include "report/console/console_text.hpp"
#include "report/fleet/fleet.hpp"
#include "report/html/assets.hpp"
#include "report/tables/summary.hpp"

namespace egt {
namespace {

using Values = std::map<std::string_view, std::string_view>;

constexpr const char* live_footer =
    "<p>What the run's first rank knows, about a second old; times are UTC. At its end the run writes "
    "report.html.</p>";

/// Links to the files next to the page.
std::string footer_of(const Json& result) {
  constexpr int max_links = 16;
  std::string links = "<a href=\"result.json\">result.json</a>";
  for (const Json& identity : member(result, "ranks"))
    if (const auto rank = value_at<int>(identity, "rank"); rank && *rank < max_links)
      links += fmt::format(" <a href=\"journal.rank{0}.jsonl\">journal.rank{0}.jsonl</a>", *rank);
  return "<p>All data: " + links +
         "</p>\n<p>Times are UTC. <code>extreme_gpu_trainer report DIR</code> rebuilds this file.</p>";
}

/// Replaces each {{name}} in the template. Inserted text is not expanded again.
std::string filled(std::string_view page, const Values& values) {
  std::string text;
  for (;;) {
    const std::size_t open = page.find("{{"), close = page.find("}}", open);
    text += page.substr(0, open);
    if (open == std::string_view::npos || close == std::string_view::npos) return text;
    const auto value = values.find(page.substr(open + 2, close - open - 2));
    if (value != values.end()) text += value->second;
    page.remove_prefix(close + 2);
  }
}

/// `values`: the parts that differ between the kinds of pages. `text`: the text report.
std::string page_of(Values values, const std::string& title, const std::string& text, const Json& data) {
  const std::string safe_title = html_text(title), safe_text = html_text(text), json = script_json(data);
  values.insert(
      {{"title", safe_title}, {"text", safe_text}, {"data", json}, {"css", page_css}, {"js", page_js}});
  return filled(page_html, values);
}

/// Amounts of verified work, by their place on the page: [["Memory verified", "5.43 GB"], ..]
Json work_of(const Json& result) {
  const VerifiedWork work = work_from_json(member(result, "verified_work"));
  std::map<int, Json> by_place;
  for (const WorkField& field : work_fields)
    if (field.place > 0 && !field.is_minor && any(work, field))
      by_place[field.place] = Json::array({field.tile, amount_text(work, field)});
  Json all = Json::array();
  for (const auto& [place, one] : by_place) all.push_back(one);
  return all;
}

Json events_of(const Json& result) {
  Json events = Json::array();
  const auto add = [&](const char* what, const Json& entries, const auto& text) {
    for (const Json& entry : entries)
      events.push_back({{"what", what},
                        {"rank", member(entry, "rank")},
                        {"time", text_at(entry, "time")},
                        {"text", text(entry)}});
  };
  add("loss", member(result, "losses"), loss_text);
  add("finding", member(result, "findings"), finding_text);
  add("restart", member(result, "restarts"), restart_text);
  return events;
}

/// "PASS node7 burn 2026-11-25"
std::string title_of(const Json& result, const Json& devices) {
  const Json& headline = member(devices, "headline");
  const std::string command = text_at(result, "command");
  if (headline.size() < 2) return text_at(result, "verdict") + ": " + command;
  return fmt::format("{} {} {} {}", headline[0].get<std::string>(), headline[1].get<std::string>(), command,
                     text_at(member(result, "system_info"), "started_at").substr(0, 10));
}

/// Data for the page's script: the result, and texts derived from it as for the console and files.
Json run_data(const Json& result) {
  const Json devices = device_cells(result);
  Json data = {{"result", result},        {"title", title_of(result, devices)},
               {"devices", devices},      {"summary", summary_text(result)},
               {"work", work_of(result)}, {"events", events_of(result)}};
  if (text_at(result, "command") != "bench") return data;
  const auto alone = compare_results({{.path = "", .label = "", .result = result, .problem = ""}}, {});
  if (alone.ok()) data["comparison"] = comparison_json(alone.value());
  return data;
}

std::string run_page(Values values, const Json& result, const TimeLines& lines, Json data) {
  data["lines"] = time_lines_json(lines, result);
  values.insert({{"charts_css", page_charts_css}, {"charts_js", page_charts_js}});
  return page_of(std::move(values), text_at(data, "title"), summary_text(result) + "\n" + report_text(result),
                 data);
}

Json live_data(const Json& result, const LiveState& state) {
  Json data = run_data(result);
  data["live"] = {{"report", state.report},
                  {"now", state.now},
                  {"heard", state.heard},
                  {"done", state.done},
                  {"elapsed_seconds", state.elapsed_seconds}};
  return data;
}

/// Converts integers above 2^53, such as seeds, to text, since JavaScript would round them.
void quote_long_integers(Json& json) {
  if (json.is_structured())
    for (Json& one : json) quote_long_integers(one);
  else if (json.is_number_integer() && std::abs(json.get<double>()) > 0x1p53)
    json = json.dump();
}

}  // namespace

std::string script_json(Json json) {
  quote_long_integers(json);
  std::string text;
  // ASCII output also escapes U+2028 and U+2029, which some parsers treat as line ends.
  for (const char c : json.dump(-1, ' ', true, Json::error_handler_t::replace))
    if (c == '<' || c == '>' || c == '&')  // occur only within strings
      text += fmt::format("\\u{:04x}", c);
    else
      text += c;
  return text;
}

std::string page_text(const Json& result, const TimeLines& lines) {
  const std::string footer = footer_of(result);
  return run_page({{"footer", footer}}, result, lines, run_data(result));
}

std::string live_page_text(const Json& result, const TimeLines& lines, const LiveState& state) {
  return run_page({{"live_period", " data-live=\"2000\""},  // polling interval in milliseconds
                   {"policy", " connect-src 'self';"},
                   {"reload", "<noscript><meta http-equiv=\"refresh\" content=\"5\"></noscript>\n"},
                   {"footer", live_footer}},
                  result, lines, live_data(result, state));
}

std::string live_data_text(const Json& result, const LiveState& state) {
  return script_json(live_data(result, state));
}

std::string fleet_page(const Fleet& fleet) {
  const std::string text = fleet_text(fleet, 0);
  return page_of({}, fmt::format("{}: fleet", fleet.verdict), text,
                 {{"fleet", fleet_json(fleet)}, {"text", text}});
}

std::string comparison_page(const Comparison& comparison) {
  const std::string text = problems_text(comparison.files) + comparison_text(comparison);
  Json tests = Json::array();
  for (const TestRow& row : tests_table(comparison))
    tests.push_back({{"cells", row.cells},
                     {"gain_percent", or_null(row.gain_percent)},
                     {"is_worse", row.is_worse},
                     {"is_within", row.is_within}});
  return page_of({}, "compare", text,
                 {{"comparison", comparison_json(comparison)}, {"tests", std::move(tests)}, {"text", text}});
}

}  // namespace egt
