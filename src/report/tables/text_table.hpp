#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace egt {

constexpr const char* not_measured = "-";  ///< cell without a value
using Row = std::vector<std::string>;

/// `value` in that format, or a dash if not measured.
std::string cell(std::optional<double> value, const char* format);

/// A rate is unstable if the range of its measurements (max - min) exceeds this percentage of their median.
constexpr double unstable_percent = 30;

/// The table without columns in which no row has a value.
std::vector<Row> without_empty_columns(const std::vector<Row>& rows);

/// A table in the seeds' form, which is Markdown: header row, separator, then the other rows. The first
/// column is left-aligned, all others right-aligned. Rows have as many cells as the header. Control
/// characters in cells become '?'. Ends with a newline.
std::string table_text(std::vector<Row> rows);
/// The same without borders. Columns that do not fit into `columns` (0: no limit) follow below, after the
/// first column again.
std::string plain_table(std::vector<Row> rows, std::size_t columns);
/// The table below an empty line and its title; empty if it has only the header.
std::string titled_table(const std::string& title, std::vector<Row> rows);
/// Words and lines of a text, in lines of at most `columns` if its words allow that. The first line starts at
/// column `at`, all lines that do not begin one of the text are indented.
std::string wrapped(std::string_view text, std::size_t columns, std::size_t indent, std::size_t at = 0);
/// The same of all lines, but tables that do not fit are divided into parts below each other, each with the
/// columns that name its rows. `columns`: width of the terminal; 0: no limit.
std::string wrapped_prose(std::string_view text, std::size_t columns);

}  // namespace egt
