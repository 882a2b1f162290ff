#pragma once

#include <string>
#include <vector>

#include "egt/core/clock.hpp"
#include "egt/core/status.hpp"
#include "egt/ranks/control.hpp"

namespace egt {

/// Every rank gets all ranks' texts, in rank order. Collective.
Result<std::vector<std::string>> all_gather(Control& control, const std::string& text);

/// Every rank brings its own Status and all leave with the same one: ok, or the failure of the lowest rank
/// that has one (told as "rank 2: .." where that is not rank 0). Collective. So one line is printed, by rank
/// 0, and all end alike.
Status agree(Control& control, const Status& own);

/// Fails on every rank when the ranks' texts differ; `what` names them: "the options". Collective.
Status agree_on_text(Control& control, const std::string& text, const std::string& what);

/// A moment that all ranks know, each by its own clock.
struct AgreedMoment {
  Clock::time_point moment;
  double error_seconds = 0;  ///< the ranks' are at most so far apart
};
/// Of several barriers the one that all ranks left soonest after they came. Collective.
Result<AgreedMoment> agree_on_moment(Control& control);

}  // namespace egt
