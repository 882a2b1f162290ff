#include "egt/session/one_at_a_time.hpp"

#include "egt/core/json_access.hpp"

namespace egt {
namespace {

/// Of the detectors that go round at their own pace; nothing for others. `kind`: of an injection or a fault.
std::optional<Detector> slow_detector(const std::string& kind) {
  if (kind == "memory") return Detector::memory;
  if (kind.starts_with("file")) return Detector::file;
  return std::nullopt;
}

}  // namespace

bool OneAtATime::admits(const Injection& injection) {
  const auto detector = slow_detector(to_string(injection.kind));
  if (!detector) return true;
  const std::lock_guard lock(mutex_);
  if (const auto awaited = awaited_.find(*detector); awaited != awaited_.end()) {
    const auto& struck = awaited->second;
    if (!struck || seconds_since(*struck) < patience_seconds_) return false;
  }
  awaited_[*detector].reset();
  return true;
}

Status OneAtATime::write(const Record& record) {
  const auto detector = slow_detector(text_at(record.body, "kind"));
  if (!detector) return {};
  const std::lock_guard lock(mutex_);
  if (record.kind == RecordKind::fault) awaited_.erase(*detector);
  if (record.kind == RecordKind::injection) awaited_[*detector] = Clock::now();
  return {};
}

}  // namespace egt
