#pragma once

#include <map>
#include <mutex>
#include <optional>

#include "egt/core/clock.hpp"
#include "egt/core/injection.hpp"
#include "egt/report/sink.hpp"
#include "session/selftest/selftest_plan.hpp"

namespace egt {

/// Hands the faults of a rank's memory, host copies and files out one at a time, whatever the speed of the
/// patrol and of the disk: the next one when the detector reported the last, or did not within
/// `patience_seconds` after it struck (with every miss in a row half as long: a deaf detector is not waited
/// for that often). Injections of the other detectors are spread by the plan and pass at once.
class InjectionSerializer : public Sink {
 public:
  explicit InjectionSerializer(double patience_seconds) : patience_seconds_(patience_seconds) {}

  /// The rank's InjectionGate; any thread.
  bool admits(const Injection& injection);

  /// This rank's records, as they happen.
  Status write(const Record& record) override;
  Status flush() override { return {}; }

 private:
  struct Awaited {
    bool is_out = false;                      ///< one was handed out, and is not reported yet
    std::optional<Clock::time_point> struck;  ///< when it did, if it did
    int missed = 0;                           ///< in a row
  };

  bool is_lost(const Awaited& awaited) const;

  const double patience_seconds_;
  std::mutex mutex_;
  std::map<Detector, Awaited> detectors_;
};

}  // namespace egt
