#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "egt/core/record.hpp"
#include "egt/core/text.hpp"

/// What stands in a page comes from hosts and files of any name: all of it goes through html_text or here.
namespace egt {

/// `json` for a <script type="application/json">: nothing in it ends the element, or is more than data.
std::string script_json(const Json& json);

/// "step ms" of "step_ms"
std::string spoken(std::string name);
/// "12.35", "yes", "-" for null; bytes with their unit where `key` says that it counts some.
std::string figure_text(const Json& value, std::string_view key = "");

/// An array of the result; empty where there is none.
const Json& array_at(const Json& json, const char* key);

/// A table that can be read without style or script.
class HtmlTable {
 public:
  /// `cards`: on a narrow screen each row is a card, else the table scrolls sideways.
  HtmlTable(std::string caption, std::vector<std::string> columns, bool cards = false)
      : caption_(std::move(caption)), columns_(std::move(columns)), cards_(cards) {}

  /// Texts, the first of which names the row; `attributes`, of all cells or as many as there are, are HTML.
  void add(const std::vector<std::string>& cells, const std::vector<std::string>& attributes = {});
  /// Cells of HTML.
  void add_html(const std::vector<std::string>& cells, const std::vector<std::string>& attributes = {});
  bool empty() const { return rows_.empty(); }
  /// Empty where the table is.
  std::string html() const;

 private:
  std::string caption_;
  std::vector<std::string> columns_;
  bool cards_;
  std::string rows_;
};

}  // namespace egt
