#pragma once

#include <optional>
#include <string>
#include <vector>

#include "egt/workload/workload.hpp"
#include "workload/ceilings/ceiling_plan.hpp"

namespace egt {

/// What this rank measured of a row. What was not measured is empty.
struct CeilingEntry {
  CeilingRow row;
  std::string failure;              ///< what went wrong; empty: nothing
  std::vector<double> ours, limit;  ///< FLOP, bytes or turns a second, of each round
  std::optional<double> sm_clock_mhz, power_w;
  Json facts = Json::object();  ///< what else the result tells of it

  /// Ours over the limit of the same round.
  std::vector<double> ratios() const;
};

/// From the lowest to the highest, in percent of the middle one; 0 of nothing.
double spread_percent(const std::vector<double>& values);

PartReport report_of(const CeilingEntry& entry);
/// "verify: 12.3 of 14.1 GB/s (copy bandwidth), ratio 0.872, spread 1.2 %"
std::string line_of(const CeilingEntry& entry);

}  // namespace egt
