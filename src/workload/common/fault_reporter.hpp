#pragma once

#include <set>
#include <string>
#include <vector>

#include "egt/core/record.hpp"
#include "egt/workload/workload.hpp"
#include "workload/common/digest_vote.hpp"

namespace egt {

/// Reports what the ranks' common checks find. The rank that is wrong reports it himself; where it is not
/// known which, rank 0 names all suspects. All ranks make the same calls but for what only one of them knows
/// of itself. Equal faults of later checks are the queue's to count. Main thread only.
class FaultReporter {
 public:
  /// `environment` outlives the reporter.
  explicit FaultReporter(Environment& environment) : environment_(environment) {}

  /// `fault`: as if this rank were wrong; who really is, and on what evidence, comes from `dissent`.
  void tell(Fault fault, const Dissent& dissent);
  /// The same before it is known in full: `tell` of the same `fault.incident` follows, unless the run breaks
  /// off before. Reported at once where nothing of this kind and rank was reported yet, else by
  /// `tell_for_others` if the check breaks off, so that no fault is lost and what lasts is no flood.
  void tell_provisionally(Fault fault, const Dissent& dissent);
  /// Has this check found this kind on `rank`?
  bool found(const std::string& kind, int rank) const;
  /// The same of a rank or of these suspects.
  bool found(const std::string& kind, const Dissent& dissent) const;
  /// Was this rank found wrong in this check?
  bool own_found() const { return own_found_; }
  /// Was it one of the suspects?
  bool own_suspected() const { return own_suspected_; }
  void end_check();
  /// All ranks are over the last check: they have come to the next one.
  void confirm_last_check() { of_others_.clear(); }
  /// Ranks lost touch or the run ends: whoever is wrong may not have heard of it, so this rank reports what
  /// it knows of the last check about others. Records of one incident count once.
  void tell_for_others();

 private:
  Fault addressed(Fault fault, const Dissent& dissent) const;

  Environment& environment_;
  std::set<std::string> current_;    ///< incidents of this check: kind and who
  std::set<std::string> told_;       ///< of all checks
  std::vector<Fault> of_others_;     ///< of the last check, left to them to report
  std::set<std::string> announced_;  ///< `Fault::incident` of all that were reported provisionally
  std::vector<Fault> unannounced_;   ///< provisional, of this check, not reported yet
  bool own_found_ = false, own_suspected_ = false;
};

}  // namespace egt
