#pragma once

#include <set>
#include <string>
#include <vector>

#include "egt/core/record.hpp"
#include "egt/workload/workload.hpp"
#include "workload/common/digest_vote.hpp"

namespace egt {

/// Reports faults found by checks that all ranks run together. The faulty rank reports its own fault; if the
/// rank is unknown, rank 0 reports all suspects. Calls are collective, except for faults that only one rank
/// sees. The record queue counts repeated equal faults of later checks. Main thread only.
class FaultReporter {
 public:
  /// `environment` outlives the reporter.
  explicit FaultReporter(Environment& environment) : environment_(environment) {}

  /// `fault`: filled in for this rank; `dissent` supplies the actual rank and the blame.
  void report(Fault fault, const Mismatch& dissent);
  /// Reports a fault whose details are not complete yet. A `report` of the same `fault.incident` follows,
  /// unless the run aborts before. The first fault of this kind and rank is reported at once. Repetitions are
  /// reported by `report_for_others` if the check aborts, so that no fault is lost and records stay few.
  void report_provisionally(Fault fault, const Mismatch& dissent);
  /// True if this check found this kind of fault on `rank`.
  bool found(const std::string& kind, int rank) const;
  /// The same for the rank or the suspects of `dissent`.
  bool found(const std::string& kind, const Mismatch& dissent) const;
  /// True if this check found this rank wrong.
  bool own_found() const { return own_found_; }
  /// True if this rank is one of the suspects.
  bool own_suspected() const { return own_suspected_; }
  void end_check();
  /// Call it when all ranks reached the next check, so that all completed the last one. `is_open`: faults
  /// were reported provisionally since then, and perhaps only this rank knows them, so they are kept.
  void confirm_last_check(bool is_open = false) {
    std::erase_if(of_others_, [&](const Fault& fault) { return !is_open || !fault.provisional; });
  }
  /// Call this when ranks lose communication or the run ends. The faulty rank may not know the result of the
  /// last check, so this rank reports its faults. Records of one incident count once.
  void report_for_others();

 private:
  Fault addressed(Fault fault, const Mismatch& dissent) const;
  void deliver(Fault fault, const Mismatch& dissent);

  Environment& environment_;
  std::set<std::string> current_;    ///< incidents of this check: kind and ranks
  std::set<std::string> reported_;   ///< incidents of all checks
  std::vector<Fault> of_others_;     ///< faults of the last check that other ranks are expected to report
  std::set<std::string> announced_;  ///< `Fault::incident` of all provisional reports
  std::vector<Fault> unannounced_;   ///< provisional faults of this check, not reported yet
  bool own_found_ = false, own_suspected_ = false;
};

}  // namespace egt
