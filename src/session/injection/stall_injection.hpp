#pragma once

#include <cstdint>
#include "device/injection/injecting_device.hpp"
#include "session/record_router.hpp"
#include "workload/common/injector.hpp"

namespace egt {

/// Injected faults of this rank's process and device that begin with a step: `idle` (its device gets no more
/// work), `device-error` (a call of its device fails, and every later one), `hang` (the main thread does
/// nothing for `ms`, or for good), `stop` (the process is stopped, and continued after `ms`, or never) and
/// `kill`. Main thread only.
class StallInjection {
 public:
  /// All outlive it. `device`: null if no fault of the device is planned for this rank.
  StallInjection(Injector& injector, RecordRouter& route, InjectingDevice* device)
      : injector_(injector), route_(route), device_(device) {}

  /// What is due before `step` is enqueued; its record is on disk first. May not return.
  void strike(std::int64_t step);

 private:
  void announce(const Injection& injection, std::int64_t step, const char* where);

  Injector& injector_;
  RecordRouter& route_;
  InjectingDevice* const device_;
};

/// Begins the device errors that are due at `step`. The call that fails reports the injection. The injector
/// outlives the last call of the device.
void begin_device_errors(Injector& injector, InjectingDevice& device, std::int64_t step);

}  // namespace egt
