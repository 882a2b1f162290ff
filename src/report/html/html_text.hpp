#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "egt/core/record.hpp"
#include "egt/core/text.hpp"

/// Host and file names are untrusted, so all page texts pass through html_text or these functions.
namespace egt {

/// `json` for a <script type="application/json">. No content can close the element or become code.
std::string script_json(const Json& json);

/// "step ms" for "step_ms".
std::string spoken(std::string name);
/// "12.35", "yes", "-" for null; with a byte unit if `key` is a number of bytes.
std::string figure_text(const Json& value, std::string_view key = "");

/// An array of the result; empty if missing.
const Json& array_at(const Json& json, const char* key);

/// A table that is readable without styles or scripts.
class HtmlTable {
 public:
  /// `cards`: narrow screens show each row as a card; otherwise the table scrolls horizontally.
  HtmlTable(std::string caption, std::vector<std::string> columns, bool cards = false)
      : caption_(std::move(caption)), columns_(std::move(columns)), cards_(cards) {}

  /// Plain texts; the first is the row header. `attributes` is HTML, for all cells or for the first ones.
  void add(const std::vector<std::string>& cells, const std::vector<std::string>& attributes = {});
  /// Cells that are already HTML.
  void add_html(const std::vector<std::string>& cells, const std::vector<std::string>& attributes = {});
  bool empty() const { return rows_.empty(); }
  /// Empty if the table has no rows.
  std::string html() const;

 private:
  std::string caption_;
  std::vector<std::string> columns_;
  bool cards_;
  std::string rows_;
};

}  // namespace egt
