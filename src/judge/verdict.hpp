#pragma once

#include <string>
#include <vector>

#include "egt/core/record.hpp"

namespace egt {

/// The outcome of a run. It is the same on every rank that reads the same records.
struct Verdict {
  std::string name;  ///< pass, fault, incomplete, degraded or interrupted: the result's `verdict`
  int exit_code = 0;
  std::vector<std::string> reasons;  ///< one short line each, the most severe first; never empty
  Json injections = Json::array();   ///< outcomes of the injected faults: see injection_match.hpp
  bool has_all_evidence = true;      ///< every record that was written was judged
};

/// Adds missing, late or unreadable records as reasons. Such records may have contained any evidence, so a
/// verdict other than `fault` becomes `incomplete`.
void lose_evidence(Verdict& verdict, const std::vector<std::string>& why);

/// Judges the start, fault, finding, loss, restart, injection, progress and end records of all ranks.
/// Precedence: fault, incomplete, degraded, interrupted. `incomplete` has exit code 3 (2 for wrong usage)
/// instead of 4 if the environment prevented the run and no step was done. A run without verified work never
/// passes. If the run has several parts, the last one determines how it ended. Faults, findings, losses and
/// errors count from all parts.
///
/// A `verify` run must verify every operation on every device, else it is incomplete. It must use every
/// device, else it is degraded, and that is the first reason: see judge/device_use.hpp.
///
/// If faults were injected, the first reason states this, and an undetected one makes the run incomplete. If
/// an injection changes data, the run never passes. Others, such as a transient stall, may pass.
Verdict judge(const std::vector<Record>& records);

/// The verdict so far during the run: `fault`, `incomplete` (a rank is lost), `degraded`, or `running` with
/// exit code `no_exit_code`. It is never pass. An injected fault not yet detected does not count as missed:
/// its `found` is null.
Verdict judge_so_far(const std::vector<Record>& records);
constexpr int no_exit_code = -1;

}  // namespace egt
