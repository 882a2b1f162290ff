#pragma once

#include <vector>

#include "egt/core/part_report.hpp"

namespace egt {

/// The `load` entry of a rank, computed from its parts over `seconds` of the run:
/// - power_w_mean, power_limit_w, power_ratio: from `telemetry`;
/// - power_sensor: the defect of the power sensor;
/// - the shares of `load_fields`: time the work would take if it ran alone, divided by `seconds`;
/// - work_index: sum of the shares. It is 1 if the parts run one after the other, each at its standalone
///   rate;
/// - mistrusted: {name: value} of shares above 1 and of ratios in `alone` well above 1, else null. The device
///   was busy when their reference rate was measured. Their own fields are null, and work_index omits them;
/// - alone: the standalone rates of the parts;
/// - mix: composition of the load. Its `control` is "power", or the reason why the GEMM share is fixed.
/// Null means not measured, or no such part.
PartReport load_report(const std::vector<PartReport>& parts, double seconds, const Json& telemetry);

}  // namespace egt
