#pragma once

#include <string>

#include "egt/core/record.hpp"

namespace egt {

/// What a command tells above the verdict, in lines for people: a pure function of its result (see
/// build_result), so that `report DIR` tells the same. Empty: the command has nothing to tell.
std::string summary_text(const Json& result);

}  // namespace egt
