#pragma once

#include <string>

#include "egt/core/record.hpp"

/// The verdict on each node of a run. Pure functions of the run's result.
namespace egt {

/// Returns [{hostname, slurm_node, verdict, reasons, action}], ordered by each node's first rank. `action` is
/// the most severe action that its evidence recommends: see judge/action.hpp. It is "none" if the node passes
/// or faults were injected (its text names the action after a real fault). If the verdict is "unknown", it is
/// "finish-run" in an interrupted run, else "run-longer". Verdicts:
/// - "fail": a fault, loss or finding belongs to one of its ranks, or all suspects of a fault are on this
///   node;
/// - "suspect": some of the suspects are on this node, one of its ranks ended with an error, or ranks of all
///   nodes were lost;
/// - "injected": would be "fail" or "suspect", but the run used --inject or was selftest, so it is no
///   evidence;
/// - "unknown": no reason against it, but the run did not complete, or a reason belongs to no known node;
/// - "pass": otherwise. If the run passed, all nodes pass. If not, a node passes only with
///   `has_all_evidence`.
Json node_verdicts(const Json& result, bool has_all_evidence);

/// One line "VERDICT HOST REASONS; action: ACTION" per node, then per failed node a line that drains it in
/// Slurm: scontrol update NodeName=.. State=DRAIN Reason=.., quoted for a shell. Outside a Slurm job, a line
/// "kubectl cordon .." follows: of the pod's node if HOST is a pod, else of the node HOST. `nodes` comes from
/// node_verdicts.
std::string node_list_text(const Json& nodes);

}  // namespace egt
