#pragma once

#include <string>
#include <vector>

#include "egt/core/status.hpp"
#include "egt/ranks/control.hpp"

namespace egt {

/// Every rank brings its own Status and all leave with the same one: ok, or the failure of the lowest rank
/// that has one (told as "rank 2: .." where that is not rank 0). Collective. So one line is printed, by rank
/// 0, and all end alike.
Status agree(Control& control, const Status& own);

/// Every rank gets all ranks' texts, of any bytes, in rank order. Collective.
Result<std::vector<std::string>> gather_for_all(Control& control, const std::string& own);

/// Fails on every rank when the ranks' texts differ; `what` names them: "the options". Collective.
Status agree_on_text(Control& control, const std::string& text, const std::string& what);

}  // namespace egt
