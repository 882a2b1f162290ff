#pragma once

#include <string>
#include <vector>

#include "egt/core/record.hpp"
#include "judge/evidence.hpp"
#include "judge/verdict.hpp"

namespace egt {

constexpr int result_schema = 1;  ///< of result.json

/// Of all ranks, by kind (WorkKind): how much of the work was verified, 0 to 1. Null: there was no such work.
Json verified_share(const std::vector<ByRank>& parts);

/// The content of result.json: a pure function of all ranks' records (any order; a rank without an end record
/// is told by its last progress) and of what `judge` made of them. Names and units are the contract's; what
/// was not measured, NaN and infinities are null. Of a run of several parts the figures are the last part's;
/// steps, times, verified work, faults, losses, findings and restarts those of all.
Json build_result(const std::vector<Record>& records, const Verdict& verdict);

/// Puts another verdict into it, with its exit code and reasons.
void set_verdict(Json& result, const Verdict& verdict);

/// As the file holds it: indented, valid UTF-8, ends with a newline.
std::string result_text(const Json& result);

}  // namespace egt
