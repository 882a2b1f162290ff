#include "session/injection/injection_serializer.hpp"

#include <cmath>

#include "judge/injection_match.hpp"

namespace egt {
bool InjectionSerializer::admits(const Injection& injection) {
  const auto detector = row_of(injection.kind).detector;
  if (!detector || looks_every_period(*detector)) return true;
  const std::lock_guard lock(mutex_);
  Awaited& awaited = detectors_[*detector];
  if (awaited.is_out && !is_lost(awaited)) return false;
  awaited = {.is_out = true, .struck = std::nullopt, .missed = awaited.missed + awaited.is_out};
  return true;
}

bool InjectionSerializer::is_lost(const Awaited& awaited) const {
  return awaited.struck && seconds_since(*awaited.struck) >= std::ldexp(patience_seconds_, -awaited.missed);
}

Status InjectionSerializer::write(const Record& record) {
  const auto detector = slow_detector(record);
  if (!detector) return {};
  const std::lock_guard lock(mutex_);
  if (record.kind == RecordKind::fault) detectors_[*detector] = {};
  if (record.kind == RecordKind::injection) detectors_[*detector].struck = Clock::now();
  return {};
}

}  // namespace egt
