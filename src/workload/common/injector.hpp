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

/// May hold back an injection of this rank that is due (false); called on the thread that asks for one.
using InjectionGate = std::function<bool(const Injection&)>;

/// The faults that a run suffers on purpose. Workloads ask it at their own places whether one is due there,
/// put it into the real data, and tell what they did; detectors know nothing of it. Safe from any thread.
class Injector {
 public:
  /// `gate` empty: whatever is due is handed out.
  Injector(std::vector<Injection> all, const RankPlace& place, RecordQueue& records, InjectionGate gate = {});

  /// The next of `kind` that is due on this rank at `step`, and `which` says yes to, which is thereby taken;
  /// call it until it gives nothing.
  std::optional<Injection> take(InjectionKind kind, std::int64_t step, const InjectionGate& which = {});
  /// Is one of `kind` due on this rank at `step`, and not taken yet?
  bool waits(InjectionKind kind, std::int64_t step) const;
  /// Tells that it struck: a record of kind injection, with `where` it did.
  void tell(const Injection& injection, std::int64_t step, const Flip& flip, std::string where);
  /// The same for a kind that flips no words.
  void tell(const Injection& injection, std::int64_t step, std::string where);
  /// Those of all ranks, taken or not.
  const std::vector<Injection>& all() const { return all_; }
  /// Is any of this kind planned, on any rank?
  bool plans(InjectionKind kind) const;

 private:
  const std::vector<Injection> all_;
  const int rank_;
  RecordQueue& records_;
  const InjectionGate gate_;
  mutable std::mutex mutex_;
  std::vector<Injection> waiting_;  ///< of this rank, by step
};

}  // namespace egt
