#pragma once

#include <string>
#include <vector>

#include "egt/core/record.hpp"
#include "judge/verdict.hpp"
#include "session/selftest/selftest_score.hpp"

/// A selftest's score, for people and for result.json.
namespace egt {

/// The judgement of a selftest; the only one. The injected faults and what they did to the parts count by the
/// score alone; a run that broke, verified nothing or was interrupted is judged like any other. Misses that
/// were due, wrong blame and false alarms are a fault also if the run was interrupted or degraded.
Verdict judge_selftest(const SelftestPlan& plan, const SelftestScore& score,
                       const std::vector<Record>& records);

/// A line a row: injected, found, blamed rightly, latency in steps (median, max); then what is left out, and
/// why.
std::string table_text(const SelftestPlan& plan, const SelftestScore& score);

/// What people and programs read of a selftest.
struct SelftestOutcome {
  Verdict verdict;
  Json result;  ///< that of any run, with an entry a row instead of one a part
  std::string table;
};
SelftestOutcome conclude_selftest(const SelftestPlan& plan, const std::vector<Record>& records);

/// The plan of the selftest that a start record's body describes.
SelftestPlan plan_of(const Json& start);

/// Entries of `results[]`, one per row: {test_name, test_type, description, rank, success, failure, undone,
/// planned, injected, found, blamed_rightly, late, not_due, latency_steps {p50, max} | null}. `undone`: what
/// a stopped run did not come to; where that is all that is missing, `failure` is the same.
Json to_results(const SelftestPlan& plan, const SelftestScore& score);

}  // namespace egt
