#include "egt/workload/incident_teller.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace egt {

namespace {

std::string incident(const std::string& kind, int rank) {
  return fmt::format("{} {}", kind, rank);
}

std::string incident(const std::string& kind, const Dissent& dissent) {
  return dissent.rank >= 0 ? incident(kind, dissent.rank)
                           : fmt::format("{} of {}", kind, fmt::join(dissent.suspects, " "));
}

}  // namespace

void IncidentTeller::tell(Fault fault, const Dissent& dissent) {
  const int own = environment_.place.rank;
  const auto& suspects = dissent.suspects;
  if (dissent.rank == own || std::find(suspects.begin(), suspects.end(), own) != suspects.end())
    own_doubted_ = true;
  const std::string name = incident(fault.kind, dissent);
  current_.insert(name);
  if (last_.contains(name) || own != std::max(dissent.rank, 0)) return;
  fault.blame = dissent.blame;
  if (dissent.rank < 0) {
    fault.rank = -1;
    fault.hostname.clear();
    fault.device_uuid.clear();
    fault.suspects = suspects;
    fault.where += fmt::format(", unlike on ranks {}", fmt::join(suspects, ", "));
  }
  environment_.records.emit(fault);
}

bool IncidentTeller::found(const std::string& kind, int rank) const {
  return current_.contains(incident(kind, rank));
}

bool IncidentTeller::end_check() {
  last_ = std::exchange(current_, {});
  return std::exchange(own_doubted_, false);
}

}  // namespace egt
