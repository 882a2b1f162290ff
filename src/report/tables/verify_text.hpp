#pragma once

#include <string>

#include "egt/core/record.hpp"

namespace egt {

/// What `verify` tells, as the seeds' quick check does: the configuration, every device's use, the table of
/// operations. A pure function of the result.
std::string verify_text(const Json& result);

}  // namespace egt
