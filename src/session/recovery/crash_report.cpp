#include "session/recovery/crash_report.hpp"

#include <fmt/format.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <future>
#include <memory>
#include <set>
#include <utility>

#include "egt/core/clock.hpp"
#include "egt/core/exit_code.hpp"
#include "egt/core/file_io.hpp"
#include "egt/core/json_access.hpp"
#include "egt/core/process_limits.hpp"
#include "egt/core/record_text.hpp"
#include "judge/result.hpp"
#include "report/export/result_files.hpp"
#include "report/history/history_files.hpp"
#include "report/journal/journal.hpp"
#include "session/journal_gathering.hpp"
#include "session/recovery/failure_detector.hpp"
#include "session/run_report.hpp"
#include "workload/file/file_claim.hpp"

namespace egt {
namespace {

// mpirun kills the other ranks a second after a rank has died, so all waits are short.
constexpr double main_thread_s = 0.4, journals_s = 0.3;
constexpr double sync_s = 0.1;    // for the journal; the disk may complete it later
constexpr double warn_s = 0.1;    // for the console, before the disk is used
constexpr double say_s = 0.5;     // for the console, whose terminal may be stopped
constexpr double clean_up_s = 3;  // for the main thread to remove its files
constexpr double result_s = 5;
constexpr double told_late_s = 2;  ///< shorter activities are not reported
constexpr int reprieve_s = 3;      // before an unresponsive process is killed
constexpr const char* journal_word = "journal written";

std::string exit_word(int code) {
  return fmt::format("exit {}", code);
}

bool has_said(const Peer& peer, const std::string& word) {
  const auto news = parse_watch_news(peer.text);
  return news && std::find(news->words.begin(), news->words.end(), word) != news->words.end();
}

/// Forks a child that outlives this process and kills unresponsive ones. mpirun does so on its own.
void kill_later(const std::vector<int>& processes) {
  if (processes.empty() || _Fork() != 0) return;
  ::syscall(SYS_close_range, 0u, ~0u, 0u);  // closes pipes that others read to EOF, and journal locks
  std::vector<int> handles;                 // pidfds, since pids may be reused
  for (const int process : processes)
    handles.push_back(static_cast<int>(::syscall(SYS_pidfd_open, process, 0)));
  const timespec reprieve{.tv_sec = reprieve_s, .tv_nsec = 0};
  ::nanosleep(&reprieve, nullptr);
  for (const int handle : handles)
    if (handle >= 0) ::syscall(SYS_pidfd_send_signal, handle, SIGKILL, nullptr, 0);
  ::_exit(0);
}

/// Removes files on its own thread, so that a disk that hangs cannot keep this process alive.
void remove_within(double seconds, std::function<void()> remove) {
  auto removed = std::make_shared<std::promise<void>>();
  const std::future<void> end = removed->get_future();
  auto thread = start_thread("the removal of test files", [removed, remove = std::move(remove)] {
    remove();
    removed->set_value();
  });
  if (!thread.ok()) return;
  thread.value().detach();
  end.wait_for(std::chrono::duration<double>(seconds));
}

}  // namespace

void CrashReport::execute(const std::vector<Loss>& losses, Watchdog& watchdog) {
  const bool is_lost = std::any_of(losses.begin(), losses.end(),
                                   [this](const Loss& loss) { return loss.rank == context_.place.rank; });
  for (const Loss& loss : losses) context_.records.emit(RecordKind::loss, loss.step, to_json(loss));
  if (watchdog.is_deputy()) warn_of_disk(losses, watchdog);
  keep_faults_of_peers(watchdog);
  write_journal();
  if (watchdog.is_deputy()) static_cast<void>(store(report()));  // mpirun may end the job at any moment
  watchdog.wait_until([this] { return work_is_over_.load(); }, main_thread_s);
  write_journal();
  watchdog.report_all(journal_word);
  if (is_lost) clean_up(watchdog, 0);  // remaining ranks exit soon, and mpirun then ends this one
  int code = exit_code::incomplete;
  if (watchdog.is_deputy()) {
    watchdog.wait_until(
        [&] {
          const auto peers = watchdog.peers();
          return std::all_of(peers.begin(), peers.end(), [](const Peer& peer) {
            return !peer.connected() || has_said(peer, journal_word);
          });
        },
        journals_s);
    code = write_result(watchdog);
    watchdog.report_all(exit_word(code));
  } else {
    code = await_result(watchdog);
  }
  clean_up(watchdog, clean_up_s);
  end_silent(losses, watchdog);
  remove_within(clean_up_s, [directory = context_.io_directory, hostname = context_.place.hostname] {
    remove_leftover_files(directory, hostname);  // of killed processes
  });
  std::fflush(nullptr);
  std::_Exit(code);
}

void CrashReport::write_ahead(const std::vector<LateStop>& stops) {
  context_.stop_background();
  const std::vector<Record> taken = context_.route.take_for_journal();
  unwritten_.insert(unwritten_.end(), taken.begin(), taken.end());
  std::vector<Record> all;
  for (const LateStop& stop : stops)
    all.push_back({RecordKind::late_stop, unix_now(), stop.rank, stop.step, to_json(stop)});
  for (const Record& record : all)
    if (record.rank == context_.place.rank) unwritten_.push_back(record);
  const Status written = append_records(context_.directory, unwritten_, context_.record_count, sync_s);
  // A timeout is not a failure, since a slow disk may still complete the write.
  if (!written.ok() && written.code() != StatusCode::timeout) context_.route.fail_journal(written);
  if (context_.place.rank != 0) return;
  const std::lock_guard lock(ahead_mutex_);
  if (superseded_) return;
  // The journals are not read, because that needs seconds in a long run. Meanwhile this thread would answer
  // no peer.
  std::vector<Record> known = context_.route.kept();
  known.insert(known.end(), taken.begin(), taken.end());
  known.insert(known.end(), all.begin(), all.end());
  RunReport ahead = report_of(known);
  ahead.verdict.reasons.push_back("this was written before the end: the command report judges the journals");
  set_verdict(ahead.result, ahead.verdict);
  static_cast<void>(store(ahead));
  report_late(stops);
}

/// Reports the ranks that block the others for long.
void CrashReport::report_late(const std::vector<LateStop>& stops) {
  for (const LateStop& stop : stops) {
    if (stop.waits_for_peers || stop.seconds < told_late_s) continue;
    context_.console.show([text = fmt::format("rank {}: {}", stop.rank, late_stop_text(to_json(stop)))](
                              Console& console) { console.on_warning(text); });
  }
}

void CrashReport::supersede() {
  const std::lock_guard lock(ahead_mutex_);
  superseded_ = true;
}

/// The journal of a peer whose device failed may be on another disk, so its faults are kept here as well.
/// They are provisional, since the peer's own record has precedence if both are read.
void CrashReport::keep_faults_of_peers(Watchdog& watchdog) {
  for (const Peer& peer : watchdog.peers()) {
    const auto news = parse_watch_news(peer.text);
    if (!news || !news->fault.is_object()) continue;
    Json fault = news->fault;
    fault["provisional"] = true;
    const auto step = value_at<std::int64_t>(fault, "step").value_or(-1);
    context_.records.emit(RecordKind::fault, step, std::move(fault));
  }
}

/// Warns before anything is written, since the rank may be stuck on the disk of the run directory.
void CrashReport::warn_of_disk(const std::vector<Loss>& losses, Watchdog& watchdog) const {
  for (const Loss& loss : losses) {
    if (!loss.phase.starts_with("journal")) continue;
    context_.console.show([text = loss_text(to_json(loss)) + "; the result is written when the disk answers"](
                              Console& console) { console.on_warning(text); });
    watchdog.wait_until([] { return false; }, warn_s);
  }
}

/// Records that the disk rejects now are retried next time.
void CrashReport::write_journal() {
  for (Record& record : context_.records.drain()) unwritten_.push_back(std::move(record));
  static_cast<void>(append_records(context_.directory, unwritten_, context_.record_count, sync_s));
}

/// The main thread removes this process's files, unless it is the thread that hangs.
void CrashReport::clean_up(Watchdog& watchdog, double patience_seconds) const {
  if (watchdog.wait_until([this] { return work_is_over_.load(); }, patience_seconds)) return;
  remove_within(clean_up_s, [directory = context_.io_directory, hostname = context_.place.hostname] {
    remove_test_files_of(::getpid(), directory, hostname);
  });
}

/// Built from the journals and, for ranks whose journals are on other nodes, from the records they sent.
RunReport CrashReport::report(Sink* see) const {
  std::vector<Record> records;
  std::vector<std::string> problems;
  std::set<int> read;
  if (auto journals = read_journals(context_.directory, JournalContent::evidence, see); journals.ok()) {
    records = std::move(journals.value().records);
    problems = std::move(journals.value().problems);
    read.insert(journals.value().ranks.begin(), journals.value().ranks.end());
  }
  for (const Record& record : context_.route.kept())
    if (!read.contains(record.rank)) records.push_back(record);
  records.insert(records.end(), unwritten_.begin(), unwritten_.end());
  return report_of(records, problems);
}

Status CrashReport::store(const RunReport& known) const {
  return write_atomically(context_.directory + "/result.json", result_text(known.result), Durability::system);
}

/// Writes the result again, with the records received since, and prints the verdict.
int CrashReport::write_result(Watchdog& watchdog) const {
  TimeLines lines;
  RunReport last = report(&lines);
  const Status written = store(last);
  last.warnings = write_result_files(context_.directory, last.result, lines, Durability::system);
  for (std::string& problem : write_requested_files(context_.requested_files, last.result))
    last.warnings.push_back(std::move(problem));
  if (!context_.history.empty())
    if (const Status kept = append_history(context_.history, last.result, Durability::system); !kept.ok())
      last.warnings.push_back(kept.what());
  if (!written.ok()) {
    last.verdict.reasons.push_back(written.what());
    last.warnings.clear();  // they failed for the same reason
  }
  for (std::string& elsewhere :
       report_journals_elsewhere(context_.run_directories, context_.place.rank, "a rank was lost"))
    last.warnings.push_back(std::move(elsewhere));
  const int code = last.verdict.exit_code;
  say(watchdog, std::move(last), written.ok());
  return code;
}

void CrashReport::say(Watchdog& watchdog, RunReport report, bool has_result) const {
  QueuedSink& sink = context_.console.sink();
  context_.console.show(
      [report = std::move(report), has_result, directory = context_.directory](Console& shown) {
        for (const std::string& warning : report.warnings) shown.on_warning(warning);
        if (!report.summary.empty()) shown.on_summary(report.summary);
        shown.on_verdict(report.verdict, report.result, directory, has_result);
      });
  sink.close();
  watchdog.wait_until([&] { return sink.ended(); }, say_s);
}

int CrashReport::await_result(Watchdog& watchdog) const {
  int code = code_without_verdict;
  watchdog.wait_until(
      [&] {
        for (const int known : exit_code::all)
          if (watchdog.heard(exit_word(known))) {
            code = known;
            return true;
          }
        const auto peers = watchdog.peers();
        return std::none_of(peers.begin(), peers.end(), [](const Peer& peer) { return peer.connected(); });
      },
      result_s);
  return code;
}

void CrashReport::end_silent(const std::vector<Loss>& losses, Watchdog& watchdog) const {
  if (!watchdog.is_deputy()) return;
  std::vector<int> processes;
  for (const Peer& peer : watchdog.peers())
    for (const Loss& loss : losses)
      if (loss.rank == peer.rank && loss.how == Loss::How::silent && peer.hostname == context_.place.hostname)
        processes.push_back(peer.pid);
  kill_later(processes);
}

}  // namespace egt
