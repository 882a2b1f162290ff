#pragma once

#include <set>
#include <string>

#include "egt/core/record.hpp"
#include "egt/workload/digest_vote.hpp"
#include "egt/workload/workload.hpp"

namespace egt {

/// Tells what the ranks' common checks find. The rank that is wrong tells it himself; where it is not known
/// which, rank 0 names all suspects. An incident (a kind of fault, and who) is told once, until a check in
/// between finds it gone. All ranks make the same calls but for what only one of them knows of itself.
class IncidentTeller {
 public:
  /// `environment` outlives the teller.
  explicit IncidentTeller(Environment& environment) : environment_(environment) {}

  /// `fault`: as if this rank were wrong; who really is, and on what evidence, comes from `dissent`.
  void tell(Fault fault, const Dissent& dissent);
  /// Has this check found this kind on `rank`?
  bool found(const std::string& kind, int rank) const;
  /// The check is over: was this rank doubted in it?
  bool end_check();

 private:
  Environment& environment_;
  std::set<std::string> last_, current_;  ///< incidents of the last check, and of this one
  bool own_doubted_ = false;
};

}  // namespace egt
