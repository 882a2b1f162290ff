#pragma once

#include <string>
#include <vector>

namespace egt {

constexpr const char* not_measured = "-";  ///< a cell

/// A table for people, in the seeds' form, which is Markdown's: the first row is the head, then a line, then
/// the others; the first column to the left, all others to the right. Rows have as many cells as the head.
/// Control characters in cells become '?'. Ends with a newline.
std::string table_text(std::vector<std::vector<std::string>> rows);

}  // namespace egt
