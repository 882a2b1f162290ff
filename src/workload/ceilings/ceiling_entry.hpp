#pragma once

#include <optional>
#include <string>
#include <vector>

#include "egt/workload/workload.hpp"
#include "workload/ceilings/ceiling_plan.hpp"

namespace egt {

/// Measurements of a row on this rank. Unmeasured values are empty.
struct CeilingEntry {
  CeilingRow row;
  std::string failure;              ///< the error; empty: none
  std::vector<double> ours, limit;  ///< FLOP, bytes or chain iterations per second, by round
  std::optional<double> sm_clock_mhz, power_w;
  Json facts = Json::object();  ///< further values for the result

  /// Our rate over the limit of the same round.
  std::vector<double> ratios() const;
};

PartReport report_of(const CeilingEntry& entry);
/// For example "verify: 12.3 GB/s, 0.872 of the read bandwidth (14.1), spread 1.2 %".
std::string line_of(const CeilingEntry& entry);

}  // namespace egt
