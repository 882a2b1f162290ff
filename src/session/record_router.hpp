#pragma once

#include <cstddef>
#include <deque>
#include <mutex>
#include <string>
#include <vector>

#include "egt/core/progress_board.hpp"
#include "egt/core/record.hpp"
#include "egt/core/record_queue.hpp"
#include "egt/core/status.hpp"
#include "egt/ranks/control.hpp"
#include "egt/report/sink.hpp"
#include "judge/kept_records.hpp"

namespace egt {

/// Routes records from this rank's queue to its journal and to rank 0. Rank 0 displays them and keeps those
/// that the result needs. Main thread only, unless stated otherwise.
class RecordRouter {
 public:
  /// `journal` belongs to this rank. `sinks` receive all ranks' records on rank 0 and are empty elsewhere.
  /// `line` shows that the journal is being written. All arguments outlive the router.
  RecordRouter(Control& control, RecordQueue& queue, Sink& journal, ProgressBoard::Line& line,
               std::vector<Sink*> sinks);

  /// Max number of records not yet sent to rank 0. Beyond it, progress records and notices are dropped.
  static constexpr std::size_t max_unsent = 4096;

  /// Journals and forwards queued records and, on rank 0, delivers those received. Never blocks. Records are
  /// in the journal before any is sent. A journal failure is reported once and kept in `journal_failure`. Any
  /// other sink failure is reported once, in the same call. The run continues. Returns an error if a send
  /// failed or a received record is unreadable. Unsent records are kept for the next call; all others are
  /// delivered.
  Status pump();
  /// Rank 0 pumps until every rank's end record has arrived, for up to `seconds`. Other ranks pump until all
  /// their records are sent, for a few seconds. Late or unreadable records are an error.
  Status pump_to_the_end(double seconds);
  const Status& journal_failure() const { return journal_.failure; }

  /// Returns the queued records, which the caller writes to the journal. The next pump still delivers them.
  /// Any thread but the main thread.
  std::vector<Record> take_for_journal();
  /// Reports that the taken records could not be written. The next pump handles it like any journal failure.
  /// Any thread.
  void fail_journal(const Status& why);
  /// On rank 0: all ranks' start, fault, injection and end records, and the last progress record of each rank
  /// without an end record. Any thread.
  std::vector<Record> kept() const;

 private:
  Status move();
  void keep_for_root(const Record& record);
  Status send();
  Status receive();
  void deliver(const Record& record);  // on rank 0
  struct Listener {
    Sink* sink;
    Status failure{};  ///< the first one, which was reported
  };
  void note(Listener& listener, const Status& status);

  Control& control_;
  RecordQueue& queue_;
  Listener journal_;
  ProgressBoard::Line& line_;
  std::vector<Listener> listeners_;
  bool has_failure_to_tell_ = false;  ///< a failure warning is still in the queue
  Status unreadable_;                 ///< error, once an unreadable record has arrived
  struct Unsent {
    std::string text;
    bool may_be_dropped;
  };
  std::deque<Unsent> unsent_;  ///< records to send, on ranks other than 0, oldest first
  mutable std::mutex mutex_;   ///< protects draining the queue and the members below
  std::vector<Record> taken_;  ///< drained by another thread for the journal, not delivered yet
  Status taken_failure_;       ///< write error of that thread
  KeptRecords kept_;
};

}  // namespace egt
