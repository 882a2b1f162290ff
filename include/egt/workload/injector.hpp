#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "egt/core/injection.hpp"
#include "egt/core/record_queue.hpp"
#include "egt/ranks/control.hpp"

namespace egt {

/// May defer a due injection of this rank by returning false. Runs on the thread that requests the injection.
using InjectionGate = std::function<bool(const Injection&)>;

/// The injected faults of a run. Workloads ask whether one is due, inject it into the real data and report
/// it. Detectors do not know of injections. Thread-safe.
class Injector {
 public:
  /// An empty `gate` defers nothing.
  Injector(std::vector<Injection> all, const RankPlace& place, RecordQueue& records, InjectionGate gate = {});

  /// Removes and returns the next injection of `kind` that is due on this rank at `step` and that `which`
  /// accepts. Call it until it returns nothing.
  std::optional<Injection> take(InjectionKind kind, std::int64_t step, const InjectionGate& which = {});
  /// True if an injection of `kind` is due and pending on this rank at `step`.
  bool waits(InjectionKind kind, std::int64_t step) const;
  /// Emits an injection record; `where`: the location of the flip.
  void report(const Injection& injection, std::int64_t step, const Flip& flip, std::string where);
  /// The same for a kind that flips no words.
  void report(const Injection& injection, std::int64_t step, std::string where);
  /// Injections of all ranks, including past ones.
  const std::vector<Injection>& all() const { return all_; }
  /// True if any rank has a planned injection of this kind.
  bool plans(InjectionKind kind) const;

 private:
  const std::vector<Injection> all_;
  const int rank_;
  RecordQueue& records_;
  const InjectionGate gate_;
  mutable std::mutex mutex_;
  std::vector<Injection> waiting_;  ///< this rank's pending injections, by step
};

}  // namespace egt
