#include "egt/session/one_at_a_time.hpp"

#include "egt/core/json_access.hpp"

namespace egt {

bool OneAtATime::admits(const Injection& injection) {
  const Detector detector = detector_of(injection.kind);
  if (looks_every_period(detector)) return true;
  const std::lock_guard lock(mutex_);
  const auto awaited = awaited_.find(detector);
  if (awaited != awaited_.end() && seconds_since(awaited->second) < patience_seconds_) return false;
  awaited_[detector] = Clock::now();
  return true;
}

Status OneAtATime::write(const Record& record) {
  if (record.kind != RecordKind::fault) return {};
  const std::string kind = text_at(record.body, "kind");
  const std::lock_guard lock(mutex_);
  if (kind == "memory") awaited_.erase(Detector::memory);
  if (kind.starts_with("file")) awaited_.erase(Detector::file);
  return {};
}

}  // namespace egt
