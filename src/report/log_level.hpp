#pragma once

#include "egt/core/record.hpp"

namespace egt {

/// How grave a record is, and how grave it must be to be shown; `off`: none is.
enum class LogLevel { trace, debug, info, warning, error, off };

/// A fault and an end in error: error. A warning: warning. Progress: debug. All others: info.
LogLevel level_of(const Record& record);

}  // namespace egt
