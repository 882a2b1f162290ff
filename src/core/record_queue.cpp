#include "egt/core/record_queue.hpp"

#include <iterator>
#include <utility>

#include "egt/core/clock.hpp"
#include "egt/core/exit_code.hpp"

namespace egt {
void RecordQueue::emit(RecordKind kind, std::int64_t step, Json body) {
  const std::lock_guard lock(mutex_);
  put(kind, step, std::move(body));
}

void RecordQueue::emit(const Fault& fault) {
  const std::lock_guard lock(mutex_);
  has_fault_ = true;
  link_faults_ += fault.kind == "link";
  // selftest, which limits nothing, expects its faults.
  if (limit_ != FaultLimit::none) raise_code_without_verdict(exit_code::fault);
  if (!holds_back(fault)) put(RecordKind::fault, std::max(fault.step, fault.found_step), to_json(fault));
}

bool RecordQueue::holds_back(const Fault& fault) {
  if (limit_ == FaultLimit::none || fault.provisional) return false;
  Incidents& incidents = incidents_[{fault.kind, fault.detector, fault.rank}];
  const bool full = incidents.places.size() >= max_places;
  if (!full && incidents.places.emplace(fault.where, fault.offset).second) return false;
  if (fault.settles) return false;  // otherwise the provisional record would remain valid
  ++incidents.held_back;
  incidents.last_time = unix_now();
  incidents.part = fault.part;
  return true;
}

void RecordQueue::put(RecordKind kind, std::int64_t step, Json body) {
  if (records_.size() >= capacity_ && may_be_dropped(kind)) {
    ++dropped_;
    return;
  }
  records_.push_back({kind, unix_now(), rank_, step, std::move(body)});
}

std::vector<Record> RecordQueue::drain() {
  const std::lock_guard lock(mutex_);
  std::vector<Record> records(std::make_move_iterator(records_.begin()),
                              std::make_move_iterator(records_.end()));
  records_.clear();
  return records;
}

Json RecordQueue::repeats() const {
  const std::lock_guard lock(mutex_);
  Json all = Json::array();
  for (const auto& [who, incidents] : incidents_) {
    if (incidents.held_back == 0) continue;
    const auto& [kind, detector, rank] = who;
    all.push_back({{"kind", kind},
                   {"detector", detector},
                   {"part", incidents.part.empty() ? Json() : Json(incidents.part)},
                   {"rank", rank < 0 ? Json() : Json(rank)},
                   {"count", incidents.held_back},
                   {"last_time", incidents.last_time}});
  }
  return all;
}

bool RecordQueue::has_fault() const {
  const std::lock_guard lock(mutex_);
  return has_fault_;
}

std::uint64_t RecordQueue::link_faults() const {
  const std::lock_guard lock(mutex_);
  return link_faults_;
}

std::size_t RecordQueue::dropped() const {
  const std::lock_guard lock(mutex_);
  return dropped_;
}

}  // namespace egt
