#pragma once

#include <string>
#include <vector>

#include "egt/core/record.hpp"
#include "judge/evidence.hpp"
#include "judge/verdict.hpp"

namespace egt {

constexpr int result_schema = 1;  ///< version of result.json's format

/// Verified share of the work over all ranks, by kind (WorkKind), 0 to 1. Null: there was no such work.
Json verified_share(const std::vector<ByRank>& parts);

/// The content of result.json: a pure function of all ranks' records, in any order, and of the verdict from
/// `judge`. A rank without an end record is represented by its last progress record. Names and units are
/// those of the contract. Unmeasured values, NaN and infinities are null. If the run has several parts,
/// metrics are those of the last part. Steps, times, verified work, faults, losses, findings and restarts
/// cover all parts.
Json build_result(const std::vector<Record>& records, const Verdict& verdict);

/// Replaces the verdict, its exit code and its reasons.
void set_verdict(Json& result, const Verdict& verdict);

/// The text of the file: indented, valid UTF-8, with a final newline.
std::string result_text(const Json& result);

}  // namespace egt
