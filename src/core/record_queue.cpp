#include "egt/core/record_queue.hpp"

#include <iterator>

#include "egt/core/clock.hpp"

namespace egt {
namespace {

bool may_be_dropped(RecordKind kind) {
  return kind == RecordKind::notice || kind == RecordKind::progress;
}

}  // namespace

void RecordQueue::emit(RecordKind kind, std::int64_t step, Json body) {
  const std::lock_guard lock(mutex_);
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

std::size_t RecordQueue::dropped() const {
  const std::lock_guard lock(mutex_);
  return dropped_;
}

}  // namespace egt
