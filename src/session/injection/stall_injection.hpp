#pragma once

#include <cstdint>
#include "device/injection/injecting_device.hpp"
#include "egt/workload/injector.hpp"
#include "session/record_router.hpp"

namespace egt {

/// Injected faults of this rank's process and device that start with a step. Main thread only.
/// - `idle`: the device receives no more work.
/// - `device-error`: a call of the device fails, and every later one.
/// - `hang`: the main thread is blocked for `ms`, or forever.
/// - `stop`: the process is stopped, and continued after `ms`, or never.
/// - `kill`: the process ends by SIGKILL.
class StallInjection {
 public:
  /// All references outlive it. `device`: null if no device fault is planned for this rank.
  StallInjection(Injector& injector, RecordRouter& route, InjectingDevice* device)
      : injector_(injector), route_(route), device_(device) {}

  /// Executes the injections due before `step` is enqueued, after their records are on disk. May not return.
  void strike(std::int64_t step);

 private:
  void announce(const Injection& injection, std::int64_t step, const char* where);

  Injector& injector_;
  RecordRouter& route_;
  InjectingDevice* const device_;
};

/// Arms the device errors due at `step`. The failing call reports the injection. The injector outlives the
/// last call of the device.
void begin_device_errors(Injector& injector, InjectingDevice& device, std::int64_t step);

}  // namespace egt
