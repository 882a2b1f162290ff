#pragma once

#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "egt/core/record.hpp"
#include "egt/core/record_queue.hpp"
#include "egt/core/status.hpp"
#include "egt/ranks/control.hpp"
#include "egt/report/sink.hpp"

namespace egt {

/// Where records go: from this rank's queue to its journal, and to rank 0, which shows them and keeps what
/// the result is made of. Main thread only.
class RecordRoute {
 public:
  /// `journal`: this rank's. `sinks`: on rank 0 those that take all ranks' records, else none. All outlive
  /// the route.
  RecordRoute(Control& control, RecordQueue& queue, Sink& journal, std::vector<Sink*> sinks);

  /// Takes what is in line and, on rank 0, what others sent; never waits. A journal that cannot be written is
  /// told once and kept in `journal_failure`; any other sink that fails is told once. The run goes on.
  Status pump();
  /// On rank 0: pumps until every rank's end record is here, at most `seconds`. On the others: until all they
  /// sent is on its way.
  Status pump_to_the_end(double seconds);
  const Status& journal_failure() const { return journal_failure_; }

  /// Any thread. On rank 0: start, fault, injection and end records of all ranks, and the last progress of a
  /// rank that sent no end.
  std::vector<Record> kept() const;

 private:
  void note_journal(const Status& status);
  void deliver(const Record& record);  // on rank 0
  struct Listener {
    Sink* sink;
    bool told = false;  // that it failed
  };
  void note(Listener& listener, const Status& status);

  Control& control_;
  RecordQueue& queue_;
  Sink& journal_;
  std::vector<Listener> listeners_;
  Status journal_failure_;
  mutable std::mutex mutex_;  ///< of what is kept
  std::vector<Record> lasting_;
  std::map<int, Record> progress_, ends_;
};

}  // namespace egt
