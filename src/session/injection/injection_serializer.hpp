#pragma once

#include <map>
#include <mutex>
#include <optional>

#include "egt/core/clock.hpp"
#include "egt/core/injection.hpp"
#include "egt/report/sink.hpp"
#include "session/selftest/selftest_plan.hpp"

namespace egt {

/// Releases a rank's memory, host copy and file injections one at a time, independent of memory test and disk
/// speed. The next one follows once the detector has reported the last, or has missed it for
/// `patience_seconds` after it struck. Every consecutive miss halves the patience, so that a failing detector
/// is rarely awaited. Injections for other detectors are spaced by the plan and pass at once.
class InjectionSerializer : public Sink {
 public:
  explicit InjectionSerializer(double patience_seconds) : patience_seconds_(patience_seconds) {}

  /// The rank's InjectionGate. Any thread.
  bool admits(const Injection& injection);

  /// Receives this rank's records as they occur.
  Status write(const Record& record) override;
  Status flush() override { return {}; }

 private:
  struct Awaited {
    bool is_out = false;                      ///< one was released and is not reported yet
    std::optional<Clock::time_point> struck;  ///< when it struck, if it did
    int missed = 0;                           ///< consecutive misses
  };

  bool is_lost(const Awaited& awaited) const;

  const double patience_seconds_;
  std::mutex mutex_;
  std::map<Detector, Awaited> detectors_;
};

}  // namespace egt
