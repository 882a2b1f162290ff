#pragma once

#include <string>

#include "egt/core/record.hpp"

/// What a run says of each of its hosts: pure functions of its result.
namespace egt {

/// [{hostname, slurm_node, verdict, reasons}], in the order of their first ranks. verdict: "fail": a fault, a
/// loss, a finding or an error is of one of its ranks, or all suspects of a fault are; "suspect": some of
/// them are, or ranks of all hosts were lost; "injected": either of these in a run with --inject or of
/// selftest, which is no evidence against the node; "unknown": nothing speaks against it, but the run was
/// not done, or what went wrong is not known to be any host's; else "pass". Of a run that passed, all did.
/// Without `has_all_evidence` none does.
Json node_verdicts(const Json& result, bool has_all_evidence);

/// A line a host, "VERDICT HOST REASONS", and for each that failed a line that takes it out of Slurm's
/// service: scontrol update NodeName=.. State=DRAIN Reason=.., quoted for a shell. `nodes`: of node_verdicts.
std::string node_list_text(const Json& nodes);

}  // namespace egt
