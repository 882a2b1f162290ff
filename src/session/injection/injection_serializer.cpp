#include "session/injection/injection_serializer.hpp"

#include <cmath>

#include "egt/core/json_access.hpp"

namespace egt {
namespace {

/// Of the detectors that go round at their own pace; nothing for others. `kind`: of an injection or a fault.
std::optional<Detector> slow_detector(const std::string& kind) {
  if (kind == "memory") return Detector::memory;
  if (kind == "host-copy" || kind == "link") return Detector::host_copy;
  if (kind.starts_with("file")) return Detector::file;
  return std::nullopt;
}

}  // namespace

bool InjectionSerializer::admits(const Injection& injection) {
  const auto detector = slow_detector(to_string(injection.kind));
  if (!detector) return true;
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
  const auto detector = slow_detector(text_at(record.body, "kind"));
  if (!detector) return {};
  const std::lock_guard lock(mutex_);
  if (record.kind == RecordKind::fault) detectors_[*detector] = {};
  if (record.kind == RecordKind::injection) detectors_[*detector].struck = Clock::now();
  return {};
}

}  // namespace egt
