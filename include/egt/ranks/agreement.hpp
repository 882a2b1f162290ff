#pragma once

#include <string>
#include <vector>

#include "egt/core/clock.hpp"
#include "egt/core/status.hpp"
#include "egt/ranks/control.hpp"

namespace egt {

/// Gathers every rank's text on all ranks, in rank order. Collective.
Result<std::vector<std::string>> all_gather(Control& control, const std::string& text);

/// All ranks return the same Status: ok, or the failure of the lowest failing rank, prefixed with "rank 2:
/// .." unless it is rank 0. So all ranks end alike, and rank 0 can print it for all. Collective.
Status agree(Control& control, const Status& own);

/// Fails on every rank if their texts differ. `what` describes them in the error: "the options". Collective.
Status agree_on_text(Control& control, const std::string& text, const std::string& what);

/// A point in time that all ranks know, each by its own clock.
struct AgreedMoment {
  Clock::time_point moment;
  double error_seconds = 0;  ///< max difference between the ranks' moments
};
/// Runs several barriers and uses the one with the smallest error, which `error_seconds` states. Collective.
Result<AgreedMoment> agree_on_moment(Control& control);

}  // namespace egt
