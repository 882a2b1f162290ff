#include "egt/session/record_route.hpp"

#include "egt/core/wait.hpp"
#include "egt/report/bodies.hpp"

namespace egt {
namespace {

bool lasts(RecordKind kind) {
  return kind == RecordKind::start || kind == RecordKind::fault || kind == RecordKind::finding ||
         kind == RecordKind::loss || kind == RecordKind::restart || kind == RecordKind::injection;
}

}  // namespace

RecordRoute::RecordRoute(Control& control, RecordQueue& queue, Sink& journal, std::vector<Sink*> sinks)
    : control_(control), queue_(queue), journal_(journal) {
  for (Sink* sink : sinks) listeners_.push_back({.sink = sink});
}

Status RecordRoute::pump() {
  const bool root = control_.place().rank == 0;
  for (const Record& record : queue_.drain()) {
    note_journal(journal_.write(record));
    if (root)
      deliver(record);
    else if (record.kind != RecordKind::epoch)  // all ranks' epochs are alike: rank 0 shows its own
      EGT_TRY(control_.send_to_root(one_line(to_json(record))));
  }
  note_journal(journal_.flush());
  while (root) {
    EGT_TRY_ASSIGN(const auto text, control_.receive());
    if (!text) break;
    Record record;
    const Json json = Json::parse(*text, nullptr, false);
    if (json.is_discarded() || !from_json(json, record))
      return Status(StatusCode::internal, "a rank sent a record that cannot be read");
    deliver(record);
  }
  for (Listener& listener : listeners_) note(listener, listener.sink->flush());
  return {};
}

/// Told once; but what comes after it is written where that is possible again: a disk may have been full for
/// a while only.
void RecordRoute::note_journal(const Status& status) {
  if (status.ok() || !journal_failure_.ok()) return;
  journal_failure_ = status;
  queue_.warning(status.what());
}

void RecordRoute::deliver(const Record& record) {
  {
    const std::lock_guard lock(mutex_);
    if (record.kind == RecordKind::progress) progress_[record.rank] = record;
    if (record.kind == RecordKind::end) ends_[record.rank] = record;
    if (lasts(record.kind)) lasting_.push_back(record);
  }
  for (Listener& listener : listeners_) note(listener, listener.sink->write(record));
}

/// A closed terminal or a full disk of the log is no reason to stop a burn-in.
void RecordRoute::note(Listener& listener, const Status& status) {
  if (status.ok() || listener.told) return;
  listener.told = true;
  queue_.warning(status.what());
}

Status RecordRoute::pump_to_the_end(double seconds) {
  EGT_TRY(pump());
  if (control_.place().rank != 0) return {};
  EGT_TRY(wait_until(
      [&]() -> Result<bool> {
        EGT_TRY(pump());
        return ends_.size() == static_cast<std::size_t>(control_.place().size);
      },
      {.seconds = seconds, .stop = {}, .what = "the last words of all ranks"}));
  return pump();  // a sink may have failed at the very last record
}

std::vector<Record> RecordRoute::kept() const {
  const std::lock_guard lock(mutex_);
  std::vector<Record> records = lasting_;
  for (const auto& [rank, record] : progress_)
    if (!ends_.contains(rank)) records.push_back(record);
  for (const auto& [rank, record] : ends_) records.push_back(record);
  return records;
}

}  // namespace egt
