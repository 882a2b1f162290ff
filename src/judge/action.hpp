#pragma once

#include "egt/core/record.hpp"

/// The recommended action after a run, by its evidence. Pure functions of entries of the result.
namespace egt {

/// Sorted by severity: the most severe action of a node is recommended.
enum class Action {
  none,
  finish_run,
  run_longer,
  test_links,
  check_node,
  check_power,
  check_cooling,
  reseat,
  reset_gpu,
  reboot_node,
  replace_drive,
  isolate_gpu,
  replace_gpu,
};

/// `is_certain`: all suspects of the fault are on one node.
Action action_of_fault(const Json& fault, bool is_certain);
Action action_of_finding(const Json& finding);
/// Of a lost rank, or of one that ended with an error.
constexpr Action action_of_loss = Action::check_node;

/// {name, text, command, rank}. `rank` is the rank with the evidence, -1 for none (null).
Json to_json(Action action, int rank);
/// The action none, with the action that the same evidence would recommend without --inject in its text.
/// `rank`: with the evidence, -1 for none.
Json none_since_injected(Action action, int rank);

}  // namespace egt
