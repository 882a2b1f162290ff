#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "egt/core/injection.hpp"
#include "egt/core/record_queue.hpp"
#include "egt/ranks/control.hpp"

namespace egt {

/// The faults that a run suffers on purpose. Workloads ask it at their own places whether one is due there,
/// put it into the real data, and tell what they did; detectors know nothing of it. Safe from any thread.
class Injector {
 public:
  Injector(std::vector<Injection> all, const RankPlace& place, RecordQueue& records);

  /// The next of `kind` that is due on this rank at `step`, which is thereby taken; call it until it gives
  /// nothing.
  std::optional<Injection> take(InjectionKind kind, std::int64_t step);
  /// Tells that it struck: a record of kind injection, with `where` it did.
  void tell(const Injection& injection, std::int64_t step, const Flip& flip, std::string where);
  /// Those of all ranks, taken or not.
  const std::vector<Injection>& all() const { return all_; }
  /// Is any of this kind planned, on any rank?
  bool plans(InjectionKind kind) const;

 private:
  const std::vector<Injection> all_;
  const int rank_;
  RecordQueue& records_;
  std::mutex mutex_;
  std::vector<Injection> waiting_;  ///< of this rank, by step
};

}  // namespace egt
