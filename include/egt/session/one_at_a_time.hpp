#pragma once

#include <map>
#include <mutex>
#include <optional>

#include "egt/core/clock.hpp"
#include "egt/core/injection.hpp"
#include "egt/report/sink.hpp"
#include "egt/session/selftest_plan.hpp"

namespace egt {

/// Hands the faults of a rank's memory and files out one at a time, whatever the speed of the patrol and of
/// the disk: the next one when the detector told of the last, or did not within `patience_seconds` after it
/// struck. Injections of the other detectors are spread by the plan and pass at once.
class OneAtATime : public Sink {
 public:
  explicit OneAtATime(double patience_seconds) : patience_seconds_(patience_seconds) {}

  /// The rank's InjectionGate; any thread.
  bool admits(const Injection& injection);

  /// This rank's records, as they happen.
  Status write(const Record& record) override;
  Status flush() override { return {}; }

 private:
  const double patience_seconds_;
  std::mutex mutex_;
  std::map<Detector, std::optional<Clock::time_point>> awaited_;  ///< when it struck, if it did
};

}  // namespace egt
