#include "workload/common/fault_reporter.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace egt {

namespace {

std::string incident(const std::string& kind, int rank) {
  return fmt::format("{} {}", kind, rank);
}

std::string incident(const std::string& kind, const Mismatch& dissent) {
  return dissent.rank >= 0 ? incident(kind, dissent.rank)
                           : fmt::format("{} of {}", kind, fmt::join(dissent.suspects, " "));
}

}  // namespace

Fault FaultReporter::addressed(Fault fault, const Mismatch& dissent) const {
  fault.blame = dissent.blame;
  if (dissent.rank == environment_.place.rank) return fault;
  fault.rank = dissent.rank;
  fault.hostname.clear();
  fault.device_uuid.clear();
  if (dissent.rank < 0) {
    fault.suspects = dissent.suspects;
    const char* const how = dissent.expected == dissent.actual ? "on" : "different on";
    fault.where += fmt::format(", {} ranks {}", how, fmt::join(dissent.suspects, ", "));
  }
  return fault;
}

void FaultReporter::report(Fault fault, const Mismatch& dissent) {
  const int own = environment_.place.rank;
  const auto& suspects = dissent.suspects;
  if (dissent.rank == own) own_found_ = true;
  if (std::find(suspects.begin(), suspects.end(), own) != suspects.end()) own_suspected_ = true;
  const std::string name = incident(fault.kind, dissent);
  current_.insert(name);
  reported_.insert(name);
  Fault reported = addressed(std::move(fault), dissent);
  reported.settles = announced_.contains(reported.incident);
  std::erase_if(unannounced_, [&](const Fault& one) { return one.incident == reported.incident; });
  deliver(std::move(reported), dissent);
}

void FaultReporter::deliver(Fault fault, const Mismatch& dissent) {
  if (environment_.place.rank == std::max(dissent.rank, 0))
    environment_.records.emit(fault);
  else if (!fault.incident.empty())
    of_others_.push_back(std::move(fault));
}

void FaultReporter::report_provisionally(Fault fault, const Mismatch& dissent) {
  const bool is_new = reported_.insert(incident(fault.kind, dissent)).second;
  Fault reported = addressed(std::move(fault), dissent);
  reported.provisional = true;
  if (!is_new) {
    unannounced_.push_back(std::move(reported));
    return;
  }
  announced_.insert(reported.incident);
  deliver(std::move(reported), dissent);
}

bool FaultReporter::found(const std::string& kind, int rank) const {
  return current_.contains(incident(kind, rank));
}

bool FaultReporter::found(const std::string& kind, const Mismatch& dissent) const {
  return current_.contains(incident(kind, dissent));
}

void FaultReporter::end_check() {
  current_.clear();
  unannounced_.clear();
  own_found_ = own_suspected_ = false;
}

void FaultReporter::report_for_others() {
  for (const Fault& fault : std::exchange(of_others_, {})) environment_.records.emit(fault);
  for (const Fault& fault : std::exchange(unannounced_, {})) environment_.records.emit(fault);
}

}  // namespace egt
