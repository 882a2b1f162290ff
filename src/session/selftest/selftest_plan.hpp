#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "egt/core/injection.hpp"

/// Which faults a selftest puts in, where and when: so that each is over before the next that could be taken
/// for it.
namespace egt {

/// What of a run decides which faults can be put in.
struct SelftestScope {
  int ranks = 1;
  int layers = 1;           ///< with weights
  std::int64_t period = 4;  ///< steps between checks of weights, replays, chains and collectives; at least 2
  bool extreme = true;
  bool covers_all = true;  ///< --coverage full
  bool memory = true;
  bool files = true;
};

/// A kind that is not put in, and why, in words.
struct LeftOut {
  InjectionKind kind = InjectionKind::weight;
  std::string why;
};

struct SelftestPlan {
  std::vector<Injection> injections;  ///< of all ranks, by step
  std::vector<LeftOut> left_out;      ///< in the order of kinds
  std::int64_t period = 4;            ///< as in the scope
};

/// Injections of one kind that strike once: more where there are more ranks.
int injections_of_a_kind(int ranks);
/// Of each kind of a pass or all-reduce as many strike every pass up to the next check.
constexpr int persistent_injections_of_a_kind = 20;
bool is_persistent(const Injection& injection);

/// Every kind that the scope has, on every rank in turn, each bit of a word alone, then several bits and
/// strided words. Of detectors that look every
/// period at most one injection falls into a period of the whole job, and the period after it has none: there
/// the check must find all well again. What replicas and replays report makes training go back to the last
/// state that was proven, so these two take turns. Memory, host copies and files have theirs enqueued from
/// the first step on, for an InjectionSerializer gate to hand out.
SelftestPlan plan_selftest(const SelftestScope& scope);

}  // namespace egt
