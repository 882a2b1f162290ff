#pragma once

#include <cstdint>
#include <functional>
#include <utility>

#include "egt/core/progress_board.hpp"
#include "session/record_router.hpp"
#include "workload/common/injector.hpp"

namespace egt {

/// Faults on purpose of this rank's process, struck by its main thread: `idle` (its device gets no more
/// work), `hang` (it does nothing for `ms`, or for good), `stop` (the process is stopped, and continued after
/// `ms`, or never) and `kill`.
class StallInjection {
 public:
  /// All outlive it. `make_idle`: what makes the device idle; called where one is asked for.
  StallInjection(Injector& injector, RecordRouter& route, std::function<void()> make_idle)
      : injector_(injector), route_(route), make_idle_(std::move(make_idle)) {}

  /// What is due before `step` is enqueued; its record is on disk first. May not return.
  void strike(std::int64_t step);

 private:
  void announce(const Injection& injection, std::int64_t step, const char* where);

  Injector& injector_;
  RecordRouter& route_;
  const std::function<void()> make_idle_;
};

}  // namespace egt
