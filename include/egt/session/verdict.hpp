#pragma once

#include <string>
#include <vector>

#include "egt/core/record.hpp"

namespace egt {

/// What a run came to; the same on every rank that sees the same records.
struct Verdict {
  std::string name;  ///< pass, fault, incomplete or interrupted: the result's `verdict`
  int exit_code = 0;
  std::vector<std::string> reasons;  ///< one short line each, the strongest first; never empty
  Json injections = Json::array();   ///< what became of faults on purpose: see injection_match.hpp
};

/// Judges all ranks' records (start, fault, injection, progress and end; others change nothing). The highest
/// evidence wins: fault, then incomplete, then interrupted. `incomplete` has exit code 3 (2 for wrong usage)
/// instead of 4 where the environment could not do it and no step was made. Without verified work it is never
/// pass. Nor is a run with faults on purpose: it is fault, or, where none was found, incomplete.
Verdict judge(const std::vector<Record>& records);

}  // namespace egt
