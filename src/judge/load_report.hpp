#pragma once

#include <vector>

#include "egt/core/part_report.hpp"

namespace egt {

/// The entry `load` of a rank, of what its parts did in `seconds` of the run:
/// - power_w_mean, power_limit_w, power_ratio: of its `telemetry`;
/// - power_sensor: what is wrong with it;
/// - the shares of `load_fields`: the seconds that the work done would have taken alone, over `seconds`;
/// - work_index: their sum. 1 is one part after the other, each as fast as it goes alone;
/// - mistrusted: {name: value} of shares above 1, and of ratios in `alone` well above 1; null: none. The
///   device was busy when the rate they are compared with was measured. They are null in their own place, and
///   in no sum;
/// - alone: the rates of the parts alone;
/// - mix: what the load is made of; its `control`: "power", or why its share of products is fixed.
/// Null: not measured, or there is no such part.
PartReport load_report(const std::vector<PartReport>& parts, double seconds, const Json& telemetry);

}  // namespace egt
