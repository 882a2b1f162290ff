#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "egt/core/injection.hpp"

/// Plans which faults a selftest injects, at which place and step. Each fault is over before the next one
/// starts that could be confused with it.
namespace egt {

/// Properties of a run that decide which faults can be injected.
struct SelftestScope {
  int ranks = 1;
  int layers = 1;           ///< layers with weights
  std::int64_t period = 4;  ///< steps between two checks of each periodic detector; min 2
  bool extreme = true;
  bool covers_all = true;  ///< --coverage full
  bool memory = true;
  bool files = true;
};

/// A kind that is not injected, and the reason as text.
struct LeftOut {
  InjectionKind kind = InjectionKind::weight;
  std::string why;
};

struct SelftestPlan {
  std::vector<Injection> injections;  ///< of all ranks, by step
  std::vector<LeftOut> left_out;      ///< in the order of kinds
  std::int64_t period = 4;            ///< as in the scope
};

/// Number of one-time injections of each kind. It grows with the number of ranks.
int injections_of_a_kind(int ranks);
/// Persistent injections per kind of pass or all-reduce fault. Each acts in every pass until the next check.
constexpr int persistent_injections_of_a_kind = 20;
bool is_persistent(const Injection& injection);

/// Plans every kind in the scope, on every rank in turn: each bit of a word alone, then several bits and
/// strided words. A detector that checks every period gets at most one injection per period in the whole job.
/// The next period has none, and its check must pass. Weight consistency checks and replays both reset
/// training to the last verified state, so their injections alternate. Memory, host copy and file injections
/// are queued from the first step on, and an InjectionSerializer releases them.
SelftestPlan plan_selftest(const SelftestScope& scope);

}  // namespace egt
