#include "report/html/html_text.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "egt/core/json_access.hpp"
#include "egt/core/units.hpp"

namespace egt {

std::string script_json(const Json& json) {
  std::string text;
  // ASCII output also escapes U+2028 and U+2029, which some parsers treat as line ends.
  for (const char c : json.dump(-1, ' ', true, Json::error_handler_t::replace))
    if (c == '<' || c == '>' || c == '&')  // occur only within strings
      text += fmt::format("\\u{:04x}", c);
    else
      text += c;
  return text;
}

std::string spoken(std::string name) {
  std::replace(name.begin(), name.end(), '_', ' ');
  return name;
}

std::string figure_text(const Json& value, std::string_view key) {
  if (value.is_null()) return "-";
  if (value.is_boolean()) return value.get<bool>() ? "yes" : "no";
  if (value.is_string()) return value.get<std::string>();
  const bool is_bytes = key.starts_with("bytes") || key.ends_with("bytes");
  if (value.is_number() && is_bytes) return format_bytes(value.get<double>());
  if (value.is_number_float()) return fmt::format("{:.4g}", value.get<double>());
  return one_line(value);
}

const Json& array_at(const Json& json, const char* key) {
  static const Json none = Json::array();
  const Json& found = member(json, key);
  return found.is_array() ? found : none;
}

void HtmlTable::add(const std::vector<std::string>& cells, const std::vector<std::string>& attributes) {
  std::vector<std::string> html;
  for (const std::string& cell : cells) html.push_back(html_text(cell));
  add_html(html, attributes);
}

void HtmlTable::add_html(const std::vector<std::string>& cells, const std::vector<std::string>& attributes) {
  rows_ += cards_ ? "<tr role=\"row\">" : "<tr>";
  for (std::size_t column = 0; column < cells.size(); ++column) {
    std::string more =
        column < attributes.size() && !attributes[column].empty() ? " " + attributes[column] : "";
    if (cards_ && column < columns_.size())
      more += fmt::format("{} role=\"{}\" data-label=\"{}\"", cells[column] == "-" ? " data-none" : "",
                          column ? "cell" : "rowheader", html_text(columns_[column]));
    rows_ += column ? fmt::format("<td{}>{}</td>", more, cells[column])
                    : fmt::format("<th scope=\"row\"{}>{}</th>", more, cells[column]);
  }
  rows_ += "</tr>\n";
}

std::string HtmlTable::html() const {
  if (empty()) return "";
  std::string head;
  for (const std::string& column : columns_)
    head +=
        fmt::format("<th scope=\"col\"{}>{}</th>", cards_ ? " role=\"columnheader\"" : "", html_text(column));
  const std::string caption = html_text(caption_);
  return fmt::format(
      "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"{}\"><table{}><caption>{}</caption>"
      "<thead><tr{}>{}</tr></thead>\n<tbody>{}</tbody></table></div>\n",
      caption, cards_ ? " class=\"cards\" role=\"table\"" : "", caption, cards_ ? " role=\"row\"" : "", head,
      rows_);
}

}  // namespace egt
