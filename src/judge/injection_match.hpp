#pragma once

#include <optional>
#include <string>
#include <vector>

#include "egt/core/injection.hpp"
#include "egt/core/record.hpp"

/// Matches faults to injections. Pure functions of records.
namespace egt {

/// Whether `fault` can result from `injection`, on any rank. `fault` is the body of a fault record or an
/// entry of `fault_repeats`. `injection` is the body of an injection record, or to_json of an Injection. The
/// fault must be one of the `faults` of the injection's row; any fault matches `idle`. Journals of earlier
/// versions have no `part`, so their faults match any part.
bool kinds_fit(const Json& injection, const Json& fault);

/// kinds_fit, and on the injection's rank. A fault without a rank must list that rank among its `suspects`.
bool fits(const Json& injection, const Json& fault);

/// The detector of the injection or fault in `record`, if that detector checks each rank at its own pace.
std::optional<Detector> slow_detector(const Record& record);

/// The result's `injections[]`: every requested injection (`options.inject` of the start records, in that
/// order), then any other that occurred. Entry: {planned, kind, rank, step, struck_step, where, mask,
/// first_word, found}. `planned` is the option text; unknown values are null. An injection is found if it
/// occurred and a matching fault followed. One fault can match several injections, since a detector reports
/// once per check. Clocks of nodes differ, so a fault may precede its injection by up to one second. Some
/// kinds are detected differently, on the injection's rank: see FoundBy.
Json injection_outcomes(const std::vector<Record>& records);

/// One line per outcome that was not found.
std::vector<std::string> missed_injections(const Json& outcomes);

}  // namespace egt
