#pragma once

#include "egt/core/record.hpp"

namespace egt {

/// Severity of a record, and the min severity to show. `off` shows none.
enum class LogLevel { trace, debug, info, warning, error, off };

/// Faults and ends with an error: error. Warnings: warning. Progress: debug. All others: info.
LogLevel level_of(const Record& record);

}  // namespace egt
