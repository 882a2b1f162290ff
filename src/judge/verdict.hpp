#pragma once

#include <string>
#include <vector>

#include "egt/core/record.hpp"

namespace egt {

/// What a run came to; the same on every rank that sees the same records.
struct Verdict {
  std::string name;  ///< pass, fault, incomplete, degraded or interrupted: the result's `verdict`
  int exit_code = 0;
  std::vector<std::string> reasons;  ///< one short line each, the strongest first; never empty
  Json injections = Json::array();   ///< what became of faults on purpose: see injection_match.hpp
  bool has_all_evidence = true;      ///< every record that was written was judged
};

/// Records that are missing, late or unreadable might have said anything: without them a run is `fault` or
/// `incomplete`.
void lose_evidence(Verdict& verdict, const std::vector<std::string>& why);

/// Judges all ranks' records (start, fault, finding, loss, restart, injection, progress and end; others
/// change nothing). The highest evidence wins: fault, then incomplete, then degraded, then interrupted.
/// `incomplete` has exit code 3 (2 for wrong usage) instead of 4 where the environment could not do it and no
/// step was made. Without verified work it is never pass. Of a run of several parts the last one tells how it
/// ended; faults, findings, losses and errors count of all.
///
/// Of a run of `verify`, every operation must have been verified on every device (else incomplete), and every
/// device have been used (else degraded, and the first reason): see report/readiness.hpp.
///
/// With faults on purpose the first reason says so, and one that nobody found makes it incomplete. So a run
/// with one that changes data is never pass; one with others (a transient stall) may be.
Verdict judge(const std::vector<Record>& records);

/// What holds already while the run goes on: `fault`, `incomplete` (a rank is lost) or `degraded` by what was
/// told, else `running`, with exit code `no_exit_code`: never pass. A fault on purpose that nobody found yet
/// is none that was missed: its `found` is null.
Verdict judge_so_far(const std::vector<Record>& records);
constexpr int no_exit_code = -1;

}  // namespace egt
