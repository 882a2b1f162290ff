#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "egt/core/record.hpp"
#include "egt/core/record_queue.hpp"
#include "egt/ranks/control.hpp"
#include "report/export/result_files.hpp"
#include "report/journal/journal.hpp"
#include "report/queued_sink.hpp"
#include "session/record_router.hpp"
#include "session/recovery/watchdog.hpp"
#include "session/run_report.hpp"

namespace egt {

/// Ends a run that cannot continue, on every remaining rank. Losses and unwritten records go to this rank's
/// journal. One rank writes the result and prints the verdict. The process exits even if its other threads
/// hang. Runs on the watchdog's thread.
class CrashReport {
 public:
  /// All references outlive it. The main thread may use them concurrently.
  struct Context {
    const RankPlace& place;
    RecordQueue& records;
    RecordRouter& route;
    std::string directory;                            ///< run directory
    std::shared_ptr<RecordCount> record_count;        ///< number of records in this rank's journal
    std::string io_directory;                         ///< directory of test files
    RequestedFiles requested_files;                   ///< see write_requested_files
    std::string history;                              ///< see append_history; empty: none
    const std::vector<std::string>& run_directories;  ///< see find_run_directories
    QueuedConsole& console;
    std::function<void()> stop_background;  ///< see Workload; any thread
  };
  explicit CrashReport(Context context) : context_(std::move(context)) {}

  /// Reports that the main thread's work has ended, even by failure, and its files are removed. Any thread.
  void end_work() { work_is_over_ = true; }
  /// Called if the run is asked to stop and does not end at once, since this process may be killed. Journals
  /// the findings and what the rank is still doing, removes test files, and writes a result on rank 0. On the
  /// watchdog's thread.
  void write_ahead(const std::vector<LateStop>& stops);
  /// The final result is being written, so `write_ahead` writes none from here on. Any thread.
  void supersede();
  /// Called from `WatchdogHooks::on_give_up` of `watchdog`. Does not return.
  [[noreturn]] void execute(const std::vector<Loss>& losses, Watchdog& watchdog);

 private:
  void keep_faults_of_peers(Watchdog& watchdog);
  void write_journal();
  void report_late(const std::vector<LateStop>& stops);
  void warn_of_disk(const std::vector<Loss>& losses, Watchdog& watchdog) const;
  void clean_up(Watchdog& watchdog, double patience_seconds) const;
  RunReport report(Sink* see = nullptr) const;
  Status store(const RunReport& known) const;
  int write_result(Watchdog& watchdog) const;
  void say(Watchdog& watchdog, RunReport report, bool has_result) const;
  int await_result(Watchdog& watchdog) const;
  void end_silent(const std::vector<Loss>& losses, Watchdog& watchdog) const;

  Context context_;
  std::atomic<bool> work_is_over_{false};
  std::mutex ahead_mutex_;  ///< held while `write_ahead` writes the result
  bool superseded_ = false;
  std::vector<Record> unwritten_;  ///< records that the journal lacks so far
};

}  // namespace egt
