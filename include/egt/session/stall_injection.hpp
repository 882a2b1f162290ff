#pragma once

#include <cstdint>

#include "egt/core/progress_board.hpp"
#include "egt/session/record_route.hpp"
#include "egt/workload/injector.hpp"

namespace egt {

/// Faults on purpose of this rank's process, struck by its main thread: `hang` (it does nothing for `ms`, or
/// for good), `stop` (the process is stopped, and continued after `ms`, or never) and `kill`.
class StallInjection {
 public:
  /// All outlive it.
  StallInjection(Injector& injector, RecordRoute& route) : injector_(injector), route_(route) {}

  /// What is due before `step` is enqueued; its record is on disk first. May not return.
  void strike(std::int64_t step);

 private:
  void announce(const Injection& injection, std::int64_t step, const char* where);

  Injector& injector_;
  RecordRoute& route_;
};

}  // namespace egt
