#pragma once

#include <string>
#include <vector>

#include "egt/core/record.hpp"
#include "judge/verdict.hpp"
#include "session/selftest/selftest_score.hpp"

/// A selftest's score as text and for result.json.
namespace egt {

/// The verdict of a selftest. Injected faults and their effects on the parts count only by the score. All
/// else is judged as in any run: failures, interruption, or nothing verified. Due misses, wrong blame and
/// false alarms are a fault even if the run was interrupted or degraded.
Verdict judge_selftest(const SelftestPlan& plan, const SelftestScore& score,
                       const std::vector<Record>& records);

/// One line per row: injected, found, blamed rightly, latency in steps (median, max). The kinds left out
/// follow, with their reasons.
std::string table_text(const SelftestPlan& plan, const SelftestScore& score);

/// Outcome of a selftest for people and programs.
struct SelftestOutcome {
  Verdict verdict;
  Json result;  ///< as for any run, with an entry per row instead of per part
  std::string table;
};
SelftestOutcome conclude_selftest(const SelftestPlan& plan, const std::vector<Record>& records);

/// The plan of the selftest described by the body of a start record.
SelftestPlan plan_of(const Json& start);

/// Entries of `results[]`, one per row: {test_name, test_type, description, rank, success, failure, undone,
/// planned, injected, found, blamed_rightly, late, not_due, latency_steps {p50, max} | null}. `undone`: work
/// that a stopped run did not reach; if there is no other error, `failure` has the same text.
Json to_results(const SelftestPlan& plan, const SelftestScore& score);

}  // namespace egt
