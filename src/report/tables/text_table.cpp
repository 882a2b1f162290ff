#include "report/tables/text_table.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "egt/core/text.hpp"

namespace egt {
namespace {

/// Display columns of a text, as fmt counts them for padding.
std::size_t width_of(const std::string& text) {
  constexpr std::size_t wide = 4096;
  return wide - (fmt::format("{:<{}}", text, wide).size() - text.size());
}

std::string line_of(const Row& cells, const std::vector<std::size_t>& widths) {
  std::string line = "|";
  for (std::size_t i = 0; i < cells.size(); ++i)
    line += i == 0 ? fmt::format(" {:<{}} |", cells[i], widths[i])
                   : fmt::format(" {:>{}} |", cells[i], widths[i]);
  return line + "\n";
}

/// Display columns that each column of the table needs, at least `least`. Makes the cells printable.
std::vector<std::size_t> widths_of(std::vector<Row>& rows, std::size_t least) {
  std::vector<std::size_t> widths(rows.front().size(), least);
  for (Row& row : rows)
    for (std::size_t i = 0; i < row.size(); ++i) {
      row[i] = printable(row[i]);
      widths[i] = std::max(widths[i], width_of(row[i]));
    }
  return widths;
}

}  // namespace

std::string cell(std::optional<double> value, const char* format) {
  if (!value) return not_measured;
  const std::string text = fmt::format(fmt::runtime(format), *value);
  // {:.4g} of a value above 9999 has an exponent, which is hard to compare with the rows next to it.
  return std::abs(*value) >= 1000 && text.find('e') != text.npos ? fmt::format("{:.0f}", *value) : text;
}

std::vector<Row> without_empty_columns(const std::vector<Row>& rows) {
  std::vector<Row> kept(rows.size());
  for (std::size_t column = 0; !rows.empty() && column < rows.front().size(); ++column) {
    const auto is_empty = [&](const Row& row) { return row[column] == not_measured; };
    if (std::all_of(rows.begin() + 1, rows.end(), is_empty)) continue;
    for (std::size_t i = 0; i < rows.size(); ++i) kept[i].push_back(rows[i][column]);
  }
  return kept;
}

std::string table_text(std::vector<Row> rows) {
  if (rows.empty()) return "";
  const std::vector<std::size_t> widths = widths_of(rows, 3);
  std::string text = line_of(rows.front(), widths) + "|";
  for (std::size_t i = 0; i < widths.size(); ++i)
    text += i == 0 ? std::string(widths[i] + 2, '-') + "|" : std::string(widths[i] + 1, '-') + ":|";
  text += "\n";
  for (std::size_t i = 1; i < rows.size(); ++i) text += line_of(rows[i], widths);
  return text;
}

std::string plain_table(std::vector<Row> rows, std::size_t columns) {
  if (rows.empty()) return "";
  const std::vector<std::size_t> widths = widths_of(rows, 0);
  std::string text;
  for (std::size_t first = 1, end = 1; end < widths.size(); first = end) {
    const auto wider = [&](std::size_t used) { return used + 2 + widths[end]; };
    std::size_t used = widths[0];
    do used = wider(used);
    while (++end < widths.size() && (columns == 0 || wider(used) <= columns));
    for (const Row& row : rows) {
      text += fmt::format("{:<{}}", row[0], widths[0]);
      for (std::size_t i = first; i < end; ++i) text += fmt::format("  {:>{}}", row[i], widths[i]);
      text += "\n";
    }
  }
  return text;
}

std::string titled_table(const std::string& title, std::vector<Row> rows) {
  return rows.size() < 2 ? "" : fmt::format("\n{}\n{}", title, table_text(std::move(rows)));
}

std::string wrapped(std::string_view text, std::size_t columns, std::size_t indent, std::size_t at) {
  std::string all;
  bool is_first = true;
  while (!text.empty()) {
    const std::size_t length = std::min(text.find_first_of(" \n"), text.size());
    const std::string_view word = text.substr(0, length);
    if (!is_first && at + 1 + word.size() > columns) {
      all += '\n' + std::string(indent, ' ');
      at = indent;
    } else if (!is_first) {
      all += ' ';
      ++at;
    }
    all += word;
    at += word.size();
    is_first = false;
    const bool ends_line = length < text.size() && text[length] == '\n';
    text.remove_prefix(std::min(length + 1, text.size()));
    if (!ends_line) continue;
    all += '\n';
    at = 0;
    is_first = true;
  }
  return all;
}

namespace {

/// A table of `table_text` that is wider than the terminal, in parts one below the other. Each starts with
/// the first column, or with as many as distinguish the rows.
std::string stacked(const std::vector<std::string_view>& table, std::size_t columns) {
  std::string all;
  std::vector<std::size_t> bars;
  if (table.size() > 1)
    for (std::size_t i = 0; i < table[1].size(); ++i)
      if (table[1][i] == '|') bars.push_back(i);
  const bool is_aligned = std::all_of(table.begin(), table.end(), [&](std::string_view line) {
    return line.size() == table.back().size() &&
           std::all_of(bars.begin(), bars.end(), [&](std::size_t bar) { return line[bar] == '|'; });
  });
  if (bars.size() < 3 || !is_aligned || table[1].size() <= columns) {
    for (const std::string_view line : table) all += std::string(line) + '\n';
    return all;
  }
  std::size_t keys = 1;
  const auto is_unique = [&] {
    std::set<std::string_view> seen;
    return std::all_of(table.begin(), table.end(),
                       [&](std::string_view line) { return seen.insert(line.substr(0, bars[keys])).second; });
  };
  while (keys + 2 < bars.size() && !is_unique()) ++keys;
  const auto width_of = [&](std::size_t column) { return bars[column + 1] - bars[column]; };
  for (std::size_t first = keys, end = keys; end + 1 < bars.size(); first = end) {
    std::size_t width = bars[keys] + 1;
    do width += width_of(end++);
    while (end + 1 < bars.size() && width + width_of(end) <= columns);
    if (first > keys) all += '\n';
    for (const std::string_view line : table)
      all += fmt::format("{}{}\n", line.substr(0, bars[keys] + 1),
                         line.substr(bars[first] + 1, bars[end] - bars[first]));
  }
  return all;
}

}  // namespace

std::string wrapped_prose(std::string_view text, std::size_t columns) {
  if (columns == 0) return std::string(text);
  std::string all;
  std::vector<std::string_view> table;
  while (!text.empty() || !table.empty()) {
    const std::size_t length = text.empty() ? 0 : std::min(text.find('\n'), text.size() - 1) + 1;
    const std::string_view line = text.substr(0, length);
    text.remove_prefix(length);
    if (line.ends_with("|\n")) {
      table.push_back(line.substr(0, length - 1));
      continue;
    }
    all += stacked(table, columns);
    table.clear();
    const std::size_t bar = line.rfind(" | ");  // the last cell is text
    all += wrapped(line, columns, bar == line.npos ? 4 : bar + 3);
  }
  return all;
}

}  // namespace egt
