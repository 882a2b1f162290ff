#include "report/html/page.hpp"

#include <map>
#include <string_view>

#include "egt/core/json_access.hpp"
#include "report/html/assets.hpp"
#include "report/html/html_text.hpp"
#include "report/html/sections.hpp"

namespace egt {
namespace {

/// The template with each {{name}} replaced; what is put in is not looked at again.
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

}  // namespace

std::string page_text(const Json& result, const std::string& summary, const TimeLines& lines) {
  const Json drawn = page::time_lines_json(lines, result);
  const std::string table = page::time_lines_section(lines);
  const bool has_charts = !page_charts_js.empty();
  const char* note =
      table.empty() ? "<p>The journals hold no figures over time.</p>"
      : has_charts  ? "<noscript><p>Without JavaScript there are drawings in the table only.</p></noscript>"
                    : "<p>This program was built without dygraphs (Debian: libjs-dygraphs), so there are "
                      "drawings in the table, and no charts to zoom into.</p>";
  return filled(page_html,
                {{"title", escaped(text_at(result, "verdict") + ": " + text_at(result, "command"))},
                 {"css", std::string(page_css)},
                 {"charts_css", std::string(page_charts_css)},
                 {"verdict", page::verdict_section(result)},
                 {"faults", page::faults_section(result)},
                 {"ranks", page::ranks_section(result)},
                 {"time_lines_note", note},
                 {"time_lines", table},
                 {"links", page::links_section(result)},
                 {"results", page::results_section(result, summary)},
                 {"counters", page::counters_section(result)},
                 {"system", page::system_section(result)},
                 {"data", script_json(drawn)},
                 {"charts_js", std::string(page_charts_js)},
                 {"js", std::string(page_js)}});
}

Status write_page(const std::string& directory, const std::string& text, Durability durability) {
  return write_atomically(directory + "/report.html", text, durability);
}

}  // namespace egt
