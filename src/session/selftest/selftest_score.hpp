#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "egt/core/injection.hpp"
#include "egt/core/record.hpp"
#include "session/selftest/selftest_plan.hpp"

namespace egt {

/// Results of one kind's one-time injections, or of its persistent ones.
struct SelftestRow {
  InjectionKind kind = InjectionKind::weight;
  bool is_persistent = false;
  int planned = 0;
  int injected = 0;
  int found = 0;
  int blamed_rightly = 0;  ///< found ones blamed on the faulty rank, with certain or majority blame
  int awaited = 0;         ///< injected ones that were neither found nor due when the run was stopped
  int late = 0;            ///< found ones that took more steps than `longest_latency`
  std::vector<std::int64_t> latencies;  ///< steps from injection to fault, ascending

  bool passed() const {
    return injected == planned && found == injected && blamed_rightly == found && late == 0;
  }
};

/// Score of a selftest.
struct SelftestScore {
  std::vector<SelftestRow> rows;          ///< of the planned kinds, in the order of kinds
  std::vector<std::string> false_alarms;  ///< faults that no injection explains, as text
  bool is_stopped = false;                ///< by a signal; injections not executed or due by then do not fail

  bool settled() const;  ///< all planned faults were injected and found
  bool passed() const;   ///< there are rows, all passed, and there was no false alarm
};

/// "gemm", "gemm-persistent"
std::string name_of(const SelftestRow& row);

/// Max steps between an injection and its fault, for detectors that check every period.
std::int64_t longest_latency(const SelftestPlan& plan);

/// Compares injection records with fault records, each rank's in the order of occurrence. Progress and end
/// records show how far the run came. All other records are ignored.
/// An injection is found by the first matching fault before the detector's next injection. A second fault of
/// the same injection is a false alarm unless another check reports it, since a check reports an incident
/// once. An injection is due when its detector's next one was executed. If the detector checks every period,
/// it is also due one period after the max latency.
SelftestScore score_selftest(const SelftestPlan& plan, const std::vector<Record>& records);

}  // namespace egt
