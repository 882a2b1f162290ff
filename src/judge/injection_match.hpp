#pragma once

#include <optional>
#include <string>
#include <vector>

#include "egt/core/injection.hpp"
#include "egt/core/record.hpp"

/// Which fault tells of which injection. Pure functions of records.
namespace egt {

/// Does `fault` (the body of a fault's record, or an entry of `fault_repeats`) tell of `injection` (the body
/// of an injection's record, or to_json of an Injection), whichever rank it blames? It is one of the `faults`
/// of the injection's row; any for idle. A fault of an earlier version, whose journals have no `part`, may
/// be of any part.
bool kinds_fit(const Json& injection, const Json& fault);

/// The same, and on the injection's rank: a fault of no known rank has it among its `suspects`.
bool fits(const Json& injection, const Json& fault);

/// Whose injection or fault the record is, if of a detector that goes round a rank at its own pace.
std::optional<Detector> slow_detector(const Record& record);

/// What became of every injection that was asked for (start records' `options.inject`, in that order) and of
/// any other that struck: the entries of the result's `injections[]`,
/// {planned, kind, rank, step, struck_step, where, mask, first_word, found}; `planned` is the text that asked
/// for it, what is not known is null. Found: it struck, and a fault that fits came after it. One fault may
/// tell of several injections, since a detector tells what it sees at its next look once. Clocks of hosts
/// differ, so a fault may seem to come up to a second before its injection. Some kinds are found otherwise,
/// and on the injection's rank: see FoundBy.
Json injection_outcomes(const std::vector<Record>& records);

/// One line on each outcome that was not found.
std::vector<std::string> missed_injections(const Json& outcomes);

}  // namespace egt
