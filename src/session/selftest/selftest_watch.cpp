#include "session/selftest/selftest_watch.hpp"

#include <algorithm>
#include <utility>

namespace egt {

SelftestWatch::SelftestWatch(SelftestPlan plan, double patience_seconds)
    : plan_(std::move(plan)), patience_seconds_(patience_seconds) {
  for (const Injection& injection : plan_.injections)
    if (looks_every_period(detector_of(injection.kind))) last_step_ = std::max(last_step_, injection.step);
}

Status SelftestWatch::write(const Record& record) {
  if (record.kind != RecordKind::injection && record.kind != RecordKind::fault) return {};
  records_.push_back(record);
  last_news_ = Clock::now();
  return {};
}

bool SelftestWatch::is_done(std::int64_t step) {
  if (step <= last_step_ + longest_latency(plan_)) {
    last_news_ = Clock::now();
    return false;
  }
  if (!is_settled()) return seconds_since(last_news_) >= patience_seconds_;
  if (!settled_step_) settled_step_ = step;
  return step >= *settled_step_ + 2 * plan_.period;
}

bool SelftestWatch::is_settled() {
  if (scored_ == records_.size()) return settled_;
  scored_ = records_.size();
  return settled_ = score().settled();
}

}  // namespace egt
