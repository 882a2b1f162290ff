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

/// Where records go: from this rank's queue to its journal, and to rank 0, which shows them and keeps what
/// the result is made of. Main thread only.
class RecordRouter {
 public:
  /// `journal`: this rank's. `sinks`: on rank 0 those that take all ranks' records, else none. All outlive
  /// the route. `line`: where it tells that the journal is being written.
  RecordRouter(Control& control, RecordQueue& queue, Sink& journal, ProgressBoard::Line& line,
               std::vector<Sink*> sinks);

  /// How many records that rank 0 does not have yet are kept; beyond them progress and notices are dropped.
  static constexpr std::size_t most_unsent = 4096;

  /// Takes what is enqueued and, on rank 0, what others sent; never waits. Everything is in the journal
  /// before anything is sent. A journal that cannot be written is reported once and kept in
  /// `journal_failure`; any other sink that fails is reported once, in the same call. The run goes on. An
  /// error: a record could not be sent, which is kept with all behind it for the next call, or one that came
  /// cannot be read; all others were delivered.
  Status pump();
  /// On rank 0: pumps until every rank's end record is here, at most `seconds`. On the others: until all they
  /// have is on its way, a few seconds. What came late or could not be read in between is an error.
  Status pump_to_the_end(double seconds);
  const Status& journal_failure() const { return journal_failure_; }

  /// Any thread, other than the main one: what is enqueued, for the caller to write to the journal. The next
  /// pump delivers it all the same.
  std::vector<Record> take_for_journal();
  /// Any thread: what was taken could not be written, which the next pump tells as any failure of the
  /// journal.
  void fail_journal(const Status& why);
  /// Any thread. On rank 0: start, fault, injection and end records of all ranks, and the last progress of a
  /// rank that sent no end.
  std::vector<Record> kept() const;

 private:
  void note_journal(const Status& status);
  Status move();
  void keep_for_root(const Record& record);
  Status send();
  Status receive();
  void deliver(const Record& record);  // on rank 0
  struct Listener {
    Sink* sink;
    bool told = false;  // that it failed
  };
  void note(Listener& listener, const Status& status);
  void tell_failure(const Status& status);

  Control& control_;
  RecordQueue& queue_;
  Sink& journal_;
  ProgressBoard::Line& line_;
  std::vector<Listener> listeners_;
  Status journal_failure_;
  bool has_failure_to_tell_ = false;  ///< a sink's, still in the queue
  Status unreadable_;                 ///< a record that came, once there was one
  struct Unsent {
    std::string text;
    bool may_be_dropped;
  };
  std::deque<Unsent> unsent_;  ///< on ranks other than 0, oldest first
  mutable std::mutex mutex_;   ///< of what is taken out of the queue, and of what is kept
  std::vector<Record> taken_;  ///< by another thread for the journal, not delivered yet
  Status taken_failure_;       ///< why that thread could not write
  KeptRecords kept_;
};

}  // namespace egt
