#include "session/record_router.hpp"

#include <algorithm>
#include <utility>

#include "egt/core/wait.hpp"
#include "judge/evidence.hpp"
#include "judge/record_schema.hpp"

namespace egt {
namespace {

constexpr double send_patience_s = 3;  // time for a failing send to recover

}  // namespace

RecordRouter::RecordRouter(Control& control, RecordQueue& queue, Sink& journal, ProgressBoard::Line& line,
                           std::vector<Sink*> sinks)
    : control_(control), queue_(queue), journal_{.sink = &journal}, line_(line) {
  for (Sink* sink : sinks) listeners_.push_back({.sink = sink});
}

Status RecordRouter::pump() {
  do {
    EGT_TRY(move());
  } while (std::exchange(has_failure_to_tell_, false));  // repeated only for each sink's first failure
  return unreadable_;
}

Status RecordRouter::move() {
  const bool root = control_.place().rank == 0;
  std::unique_lock lock(mutex_);
  const std::vector<Record> taken = std::exchange(taken_, {}), records = queue_.drain();
  const Status taken_failure = std::exchange(taken_failure_, Status());
  lock.unlock();
  line_.begin_file_operation("write", "the journal");
  note(journal_, taken_failure);
  for (const Record& record : records) note(journal_, journal_.sink->write(record));
  note(journal_, journal_.sink->flush());
  line_.rest();
  for (const auto* const some : {&taken, &records})
    for (const Record& record : *some) root ? deliver(record) : keep_for_root(record);
  const Status moved = root ? receive() : send();
  for (Listener& listener : listeners_) note(listener, listener.sink->flush());
  return moved;
}

std::vector<Record> RecordRouter::take_for_journal() {
  const std::lock_guard lock(mutex_);
  std::vector<Record> records = queue_.drain();
  taken_.insert(taken_.end(), records.begin(), records.end());
  return records;
}

void RecordRouter::fail_journal(const Status& why) {
  const std::lock_guard lock(mutex_);
  taken_failure_ = why;
}

void RecordRouter::keep_for_root(const Record& record) {
  if (record.kind == RecordKind::epoch) return;  // identical on all ranks, so rank 0 reports its own
  unsent_.push_back({one_line(to_json(record)), may_be_dropped(record.kind)});
  if (unsent_.size() <= max_unsent) return;
  const auto oldest = std::find_if(unsent_.begin(), unsent_.end(),
                                   [](const Unsent& unsent) { return unsent.may_be_dropped; });
  if (oldest != unsent_.end()) unsent_.erase(oldest);
}

Status RecordRouter::send() {
  for (; !unsent_.empty(); unsent_.pop_front()) EGT_TRY(control_.send_to_root(unsent_.front().text));
  return {};
}

/// An unreadable record may have been a fault, so it is an error. Later records are still delivered.
Status RecordRouter::receive() {
  for (;;) {
    EGT_TRY_ASSIGN(const auto text, control_.receive());
    if (!text) return {};
    Record record;
    const Json json = Json::parse(*text, nullptr, false);
    if (!json.is_discarded() && from_json(json, record))
      deliver(record);
    else
      unreadable_ = Status(StatusCode::internal, "a rank sent a record that cannot be read");
  }
}

void RecordRouter::deliver(const Record& record) {
  {
    const std::lock_guard lock(mutex_);
    kept_.add(record);
  }
  for (Listener& listener : listeners_) note(listener, listener.sink->write(record));
}

/// Reports the first failure only. Later records are still written, since a full disk may be temporary. A
/// closed terminal or a full disk must not stop a burn-in.
void RecordRouter::note(Listener& listener, const Status& status) {
  if (status.ok() || !listener.failure.ok()) return;
  listener.failure = status;
  queue_.warning(status.what());
  has_failure_to_tell_ = true;
}

Status RecordRouter::pump_to_the_end(double seconds) {
  const bool root = control_.place().rank == 0;
  const Status waited = wait_until(
      [&]() -> Result<bool> {
        const Status moved = move();
        if (!root) return unsent_.empty();  // a failed send may succeed on retry
        EGT_TRY(moved);
        return kept_.ended_ranks() == static_cast<std::size_t>(control_.place().size);
      },
      {.seconds = root ? seconds : std::min(seconds, send_patience_s),
       .what = root ? "the last words of all ranks" : "the sending of the last words to rank 0"});
  EGT_TRY(pump());  // a sink may have failed on the very last record
  return waited;
}

std::vector<Record> RecordRouter::kept() const {
  const std::lock_guard lock(mutex_);
  std::vector<Record> records;
  kept_.append_to(records);
  return records;
}

}  // namespace egt
