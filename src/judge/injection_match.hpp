#pragma once

#include <string>
#include <vector>

#include "egt/core/record.hpp"

/// Which fault tells of which injection. Pure functions of records.
namespace egt {

/// Does `fault` (the body of a fault's record, or an entry of `fault_repeats`) tell of `injection` (the body
/// of an injection's record, or to_json of an Injection)? By kind and rank alone:
/// - its kind is that of a detector which claims to find the injection's kind: replica for weight and
///   optimizer; replay for gradient and activation; replay or gemm for gemm; for all of these also nonfinite,
///   since what is flipped may make the loss infinite first; for host-copy a link of the host copies; for
///   extreme, collective, memory, xid, ecc and the kinds of files their own name; any for idle;
/// - its rank is the injection's; a fault of no known rank has to name it, in `suspects` or as "rank 1" in
///   `where`.
bool fits(const Json& injection, const Json& fault);

/// What became of every injection that was asked for (start records' `options.inject`, in that order) and of
/// any other that struck: the entries of the result's `injections[]`,
/// {planned, kind, rank, step, struck_step, where, mask, first_word, found}; `planned` is the text that asked
/// for it, what is not known is null. Found: it struck, and a fault that fits came after it. One fault may
/// tell of several injections, since a detector tells what it sees at its next look once. Clocks of hosts
/// differ, so a fault may seem to come up to a second before its injection. Some kinds are found otherwise,
/// and on the injection's rank: hang, stop and kill by a loss or a restart (kill also by the end record that
/// the rank did not leave), slow by a finding "outlier", temperature by a finding of that name or a guard
/// that lowered the load, memory-pressure by a guard that made the fill smaller, diskfull by a file part that
/// failed, idle by any fault, loss, restart or finding, or a part that failed.
Json injection_outcomes(const std::vector<Record>& records);

/// One line on each outcome that was not found.
std::vector<std::string> missed_injections(const Json& outcomes);

}  // namespace egt
