#include "report/html/page.hpp"

#include <map>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "egt/core/json_access.hpp"
#include "report/html/assets.hpp"
#include "report/html/html_text.hpp"
#include "report/html/sections.hpp"

namespace egt {
namespace {

constexpr const char* no_lines = "<p>The journals have no time series.</p>";
constexpr const char* no_script =
    "<noscript><p>Without JavaScript there are drawings in the table only.</p></noscript>";
constexpr const char* no_charts =
    "<p>This program was built without dygraphs (Debian: libjs-dygraphs), so there are drawings in the "
    "table, "
    "and no charts to zoom into.</p>";

constexpr const char* footer =
    "All data is in result.json and journal.rank*.jsonl next to this file; times are UTC.\n"
    "<code>extreme_gpu_trainer report DIR</code> rebuilds this file.";
constexpr const char* live_footer =
    "What the run's first rank knows, about a second old; times are UTC. At its end the run writes "
    "report.html.";

/// Attributes and policy of a live page: its polling interval, and what it may request.
constexpr const char* live_period = " data-live=\"2000\"";  // milliseconds
constexpr const char* live_policy = " connect-src 'self';";
constexpr const char* reload = "<noscript><meta http-equiv=\"refresh\" content=\"5\"></noscript>\n";
constexpr const char* live_line = "<p id=\"live\" role=\"status\" data-own></p>\n";

enum class Kind { file, live, live_parts };

/// The non-empty sections, and links to them.
struct Sections {
  std::string html, nav;

  void add(const char* id, const char* title, const std::string& content) {
    if (content.empty()) return;
    nav += fmt::format("<a href=\"#{}\">{}</a>\n", id, title);
    html += fmt::format(
        "<section id=\"{0}\" aria-labelledby=\"{0}-title\"><h2 id=\"{0}-title\">{1}</h2>\n{2}</section>\n",
        id, title, content);
  }
};

/// Replaces each {{name}} in the template. Inserted text is not expanded again.
std::string filled(std::string_view page, const std::map<std::string_view, std::string>& values) {
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

std::string text_of(const Json& result, const TimeLines& lines, Kind kind) {
  const bool is_live = kind != Kind::file, is_whole = kind != Kind::live_parts;
  const auto if_whole = [is_whole](std::string_view text) { return std::string(is_whole ? text : ""); };
  const auto if_live = [is_live](std::string_view text) { return std::string(is_live ? text : ""); };
  const Json drawn = is_whole ? page::time_lines_json(lines, result) : Json();
  const std::string table = page::time_lines_section(lines);
  Sections sections;
  sections.add("happened", "What happened", page::faults_section(result));
  sections.add("ranks-and-devices", "Ranks", page::ranks_section(result));
  const std::string before = std::exchange(sections.html, "");
  sections.nav += "<a href=\"#time\">Over time</a>\n";
  sections.add("links", "Links", page::links_section(result));
  sections.add("scaling", "Scaling", page::scaling_section(result));
  sections.add("results", "Results", page::results_section(result));
  sections.add("counters", "Error counters", page::counters_section(result));
  sections.add("system", "System, for a return to the manufacturer", page::system_section(result));
  return filled(page_html,
                {{"title", html_text(text_at(result, "verdict") + ": " + text_at(result, "command"))},
                 {"live_period", if_live(live_period)},
                 {"policy", if_live(live_policy)},
                 {"reload", if_live(reload)},
                 {"live", if_live(live_line)},
                 {"css", if_whole(page_css)},
                 {"charts_css", if_whole(page_charts_css)},
                 {"verdict", page::verdict_section(result)},
                 {"nav", "<nav aria-label=\"Parts of this page\">" + sections.nav + "</nav>"},
                 {"before", before},
                 {"time_lines_note", table.empty()            ? no_lines
                                     : page_charts_js.empty() ? no_charts
                                                              : no_script},
                 {"time_lines", table},
                 {"behind", sections.html},
                 {"data", script_json(drawn)},
                 {"footer", is_live ? live_footer : footer},
                 {"charts_js", if_whole(page_charts_js)},
                 {"js", if_whole(page_js)}});
}

}  // namespace

std::string page_text(const Json& result, const TimeLines& lines) {
  return text_of(result, lines, Kind::file);
}

std::string live_page_text(const Json& result, const TimeLines& lines) {
  return text_of(result, lines, Kind::live);
}

std::string live_parts_text(const Json& result, const TimeLines& lines) {
  return text_of(result, lines, Kind::live_parts);
}

}  // namespace egt
