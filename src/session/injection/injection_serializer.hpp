#pragma once

#include <map>
#include <mutex>
#include <optional>

#include "egt/core/clock.hpp"
#include "egt/core/injection.hpp"
#include "egt/report/sink.hpp"
#include "session/selftest/selftest_plan.hpp"

namespace egt {

/// Releases a rank's memory, host copy and file injections one at a time per detector, however slow memory
/// tests and disks are. The next one follows once the detector has reported the last, or has missed it for
/// `patience_seconds` after it took effect. Every consecutive miss halves this time, so that a failing
/// detector costs little. Injections for other detectors are spaced by the plan and pass at once.
class InjectionSerializer : public Sink {
 public:
  explicit InjectionSerializer(double patience_seconds) : patience_seconds_(patience_seconds) {}

  /// The rank's InjectionGate: returns whether to execute `injection` now. Any thread.
  bool admits(const Injection& injection);

  /// Receives this rank's records as they occur.
  Status write(const Record& record) override;
  Status flush() override { return {}; }

 private:
  struct Awaited {
    bool is_out = false;  ///< an injection was released, and its fault is not reported yet
    std::optional<Clock::time_point> struck;  ///< when the injection took effect, if it did
    int missed = 0;                           ///< consecutive misses
  };

  bool is_lost(const Awaited& awaited) const;

  const double patience_seconds_;
  std::mutex mutex_;
  std::map<Detector, Awaited> detectors_;
};

}  // namespace egt
