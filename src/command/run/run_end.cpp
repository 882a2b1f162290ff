#include <cstdio>
#include <cstdlib>

#include "command/run/run.hpp"
#include "egt/core/exit_code.hpp"
#include "egt/core/file_io.hpp"
#include "egt/core/wait.hpp"
#include "egt/ranks/agreement.hpp"
#include "report/export/result_files.hpp"

/// The end of a run: the last records, the verdict, the result, and the final output.
namespace egt {
namespace {

constexpr double last_words_timeout_s = 180.0;  // exceeds the time that workloads need to finish
constexpr double hurried_last_words_timeout_s = 5.0;
constexpr double last_words_reserve_s = 120;  // for the result and the broadcast of rank 0's code
constexpr double console_timeout_s = 30;      // for a terminal or pipe to accept queued output
constexpr double hurried_console_timeout_s = 0.5;
constexpr double journals_timeout_s = 600;  // for the journals of all other nodes to arrive
constexpr double hurried_journals_timeout_s = 0.4;

}  // namespace

/// Only rank 0 has all the evidence, so every rank returns its code.
Result<int> Run::share_verdict(const Status& failure) {
  if (!failure.ok()) platform_.communicator->abort();
  const bool hurry = !failure.ok() || StopSignal::leaves_little_time();
  const double patience = hurry ? hurried_last_words_timeout_s : last_words_timeout_s;
  board_.line("main").begin("last words", -1, patience + last_words_reserve_s);
  const Status reported = route_->pump_to_the_end(patience);
  if (recovery_->was_given_up()) {
    recovery_->await_crash_report();
    leave(code_without_verdict);
  }
  const bool all_is_well = failure.ok() && reported.ok();
  const int code = is_root() ? conclude(reported, all_is_well) : code_without_verdict.load();
  if (!all_is_well) leave(code);
  if (!is_root()) EGT_TRY(offer_journals(gathering()));
  EGT_TRY_ASSIGN(const std::string shared, control_.broadcast(std::to_string(code)));
  recovery_->leave();
  return std::atoi(shared.c_str());
}

/// A device failed before the first step; `own` is set if it is this rank's. Reports a fault with a result,
/// as in a run. Collective; returns only if that cannot be written.
Status Run::report_failed_start(const Status& own) {
  Status ready = directory_.path().empty() ? open_directory() : Status();
  if (ready.ok() && !route_) {
    ready = journal_ ? Status() : open_journal();
    if (ready.ok()) ready = open_console();
    ready = agree(control_, ready);
    if (ready.ok()) open_route();
    records_.emit(RecordKind::start, -1, to_json(start_body()));
  }
  if (ready.ok() && directories_.empty()) ready = find_directories();
  EGT_TRY(ready);
  if (!own.ok()) records_.emit(make_device_fault(monitored_device(), own, -1, "start"));
  const Status ended = own.ok() ? Status(StatusCode::aborted, "a peer's device failed") : own;
  records_.emit(RecordKind::end, -1, {{"reason", "error"}, {"steps", 0}, {"error", error_to_json(ended)}});
  const Status reported = route_->pump_to_the_end(last_words_reserve_s);
  const int own_code = is_root() ? conclude(reported, true) : exit_code::fault;
  if (!is_root()) EGT_TRY(offer_journals(gathering()));
  EGT_TRY_ASSIGN(const std::string code, control_.broadcast(std::to_string(own_code)));
  if (recovery_) recovery_->leave();
  leave(std::atoi(code.c_str()));
}

/// Ends the run on rank 0: judges the records, writes result.json and its derived files, gathers the journals
/// of other nodes, and prints the verdict. Returns the exit code.
int Run::conclude(const Status& reported, bool can_gather) {
  if (crash_report_) crash_report_->supersede();
  if (log_sink_) {  // it may have failed at the last record
    static_cast<void>(wait_until([this]() -> Result<bool> { return log_sink_->settled(); },
                                 {.seconds = hurried_console_timeout_s, .what = "the log file"}));
    static_cast<void>(route_->pump());
  }
  compare_with_past();
  const std::vector<Record> records = route_->kept();
  Verdict verdict = purpose_.judge(records);
  if (!reported.ok()) lose_evidence(verdict, {reported.what()});
  if (!route_->journal_failure().ok())
    lose_evidence(verdict, {route_->journal_failure().what()});  // a failure after the end record
  if (verdict.exit_code == exit_code::pass)
    if (const Status ended = check_ends(directory_.path(), ranks_here()); !ended.ok())
      lose_evidence(verdict, {ended.what()});
  if (verdict.exit_code == exit_code::pass)
    if (const Status kept = purpose_.keep_answers(); !kept.ok()) lose_evidence(verdict, {kept.what()});
  Json result = purpose_.result(records, verdict);
  const Status written = write_result(result);
  if (!written.ok()) {
    lose_evidence(verdict, {written.what()});
    set_verdict(result, verdict);
  }
  std::vector<std::string> warnings =
      write_result_files(directory_.path(), result, time_lines_, durability());
  if (!written.ok()) warnings.clear();  // same cause, already in the verdict
  for (std::string& problem : write_requested_files(options_.common.requested_files, result))
    warnings.push_back(std::move(problem));
  if (const std::string& history = options_.common.history; !history.empty())
    if (const Status kept = append_history(history, result, durability()); !kept.ok())
      warnings.push_back(kept.what());
  if (live_server_) live_server_->finish(result);
  for (std::string& missing :
       can_gather ? gather_journals(gathering())
                  : report_journals_elsewhere(directories_, 0, "not all ranks came to the end"))
    warnings.push_back(std::move(missing));
  say_last_words(verdict, std::move(result), std::move(warnings), written.ok());
  if (live_server_) live_server_->close();  // `leave` destroys nothing
  return verdict.exit_code;
}

/// Findings on GPUs that became worse than in their earlier runs. The preliminary verdict decides whether
/// this run shows what they can do.
void Run::compare_with_past() {
  if (past_.empty()) return;
  const std::vector<Record> records = route_->kept();
  for (const Finding& finding :
       egt::compare_with_past(past_, purpose_.result(records, purpose_.judge(records))))
    records_.emit(finding);
  static_cast<void>(route_->pump());
}

/// Ranks that write their journals to rank 0's directory.
std::vector<int> Run::ranks_here() const {
  std::vector<int> ranks;
  for (std::size_t rank = 0; rank < directories_.size(); ++rank)
    if (directories_[rank] == directories_.front()) ranks.push_back(static_cast<int>(rank));
  return ranks;
}

GatheringSetup Run::gathering() {
  return {
      .control = control_,
      .directory = directory_.path(),
      .directories = directories_,
      .total_seconds =
          [] { return StopSignal::leaves_little_time() ? hurried_journals_timeout_s : journals_timeout_s; },
      .begin_request = [this] { board_.line("main").begin("journals", -1, last_words_reserve_s); }};
}

/// Prints the final output, with a time limit: a pager may be in use, or a stopped terminal reads nothing.
void Run::say_last_words(const Verdict& verdict, Json result, std::vector<std::string> warnings,
                         bool has_result) {
  std::string summary = purpose_.summary(result);
  console_->show([=, result = std::move(result), warnings = std::move(warnings),
                  directory = directory_.path()](Console& console) {
    for (const std::string& warning : warnings) console.on_warning(warning);
    if (!summary.empty()) console.on_summary(summary);
    console.on_verdict(verdict, result, directory, has_result);
  });
  console_->sink().close();
  if (log_sink_) log_sink_->close();
  const auto started = Clock::now();
  const auto said = [&]() -> Result<bool> {
    const bool hurry = StopSignal::received() != 0 && seconds_since(started) > hurried_console_timeout_s;
    return hurry || (console_->sink().ended() && (!log_sink_ || log_sink_->ended()));
  };
  static_cast<void>(wait_until(said, {.seconds = console_timeout_s, .what = "the console"}));
}

/// Durability of result files. mpirun grants one second after a signal, but a busy disk may need more.
Durability Run::durability() {
  return StopSignal::leaves_little_time() ? Durability::system : Durability::disk;
}

Status Run::write_result(const Json& result) const {
  const std::string text = result_text(result), copy = purpose_.result_copy();
  EGT_TRY(write_atomically(directory_.file("result.json"), text, durability()));
  return copy.empty() ? Status() : write_atomically(copy, text, durability());
}

/// Exits without waiting for threads, streams or peers, since a collective with a lost peer or a stuck kernel
/// may never end. All output was written before. No other function abandons such work.
void Run::leave(int code) {
  mpi_.abandon();
  journal_.reset();
  std::fflush(nullptr);
  std::_Exit(code);
}

}  // namespace egt
