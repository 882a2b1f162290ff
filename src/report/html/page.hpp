#pragma once

#include <string>

#include "egt/core/record.hpp"
#include "report/html/time_lines.hpp"

namespace egt {

/// A run's result as one HTML file for people, which needs nothing else: a pure function. The result may be
/// of another version, or cut.
std::string page_text(const Json& result, const TimeLines& lines);

}  // namespace egt
