#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "egt/core/injection.hpp"
#include "egt/core/record.hpp"
#include "session/selftest/selftest_plan.hpp"

namespace egt {

/// What became of one kind's injections that strike once, or of its persistent ones.
struct SelftestRow {
  InjectionKind kind = InjectionKind::weight;
  bool is_persistent = false;
  int planned = 0;
  int injected = 0;
  int found = 0;
  int blamed_rightly = 0;  ///< of those found: with blame certain or majority, on the rank that was hit
  int awaited = 0;         ///< of those injected: neither found nor due when the run was stopped
  int late = 0;            ///< of those found: more steps after it struck than the plan allows
  std::vector<std::int64_t> latencies;  ///< steps from striking to the fault, of those found, ascending

  bool passed() const {
    return injected == planned && found == injected && blamed_rightly == found && late == 0;
  }
};

/// What a selftest came to.
struct SelftestScore {
  std::vector<SelftestRow> rows;          ///< of the kinds that are planned, in the order of kinds
  std::vector<std::string> false_alarms;  ///< each a fault that no injection explains, in words
  bool is_stopped = false;                ///< by a signal: what was not injected or due by then is no failure

  bool settled() const;  ///< all that is planned was injected and found
  bool passed() const;   ///< every row did, there are some, and there was no false alarm
};

/// "gemm", "gemm-persistent"
std::string name_of(const SelftestRow& row);

/// Steps that may lie between an injection and its fault, of detectors that look every period.
std::int64_t longest_latency(const SelftestPlan& plan);

/// Compares injections (records of kind injection) with faults, those of each rank in the order in which they
/// happened. Progress and end records show how far the run came; all other records change nothing. An
/// injection is found by the first fault that fits it after it struck and before the detector's next
/// injection. A further fault of the same injection is a false alarm unless another check reports it: one
/// incident gives one fault of a check. An injection is due when its detector's next one has struck or, if
/// the detector looks every period, a period after the max latency.
SelftestScore score_selftest(const SelftestPlan& plan, const std::vector<Record>& records);

}  // namespace egt
