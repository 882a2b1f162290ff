#pragma once

#include <optional>
#include <string>
#include <vector>

namespace egt {

constexpr const char* not_measured = "-";  ///< a cell
using Row = std::vector<std::string>;

/// `value` in that format, or a dash where it was not measured.
std::string cell(std::optional<double> value, const char* format);

/// Measurements of one rate whose range (highest - lowest) is above this share of their median are unstable.
constexpr double unstable_percent = 30;

/// A table for people, in the seeds' form, which is Markdown's: the first row is the head, then a line, then
/// the others; the first column to the left, all others to the right. Rows have as many cells as the head.
/// Control characters in cells become '?'. Ends with a newline.
std::string table_text(std::vector<Row> rows);
/// Below an empty line and its title; empty where there is nothing but the head.
std::string titled_table(const std::string& title, std::vector<Row> rows);

}  // namespace egt
