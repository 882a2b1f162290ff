#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "command/options/options.hpp"
#include "command/platform.hpp"
#include "device/injection/injecting_device.hpp"
#include "egt/core/clock.hpp"
#include "egt/core/file_io.hpp"
#include "egt/ranks/control.hpp"
#include "egt/workload/injector.hpp"
#include "judge/record_schema.hpp"
#include "judge/result.hpp"
#include "judge/verdict.hpp"
#include "ranks/mpi/mpi_session.hpp"
#include "report/history/history_files.hpp"
#include "report/html/time_lines.hpp"
#include "report/journal/journal.hpp"
#include "report/journal/run_directory.hpp"
#include "report/log.hpp"
#include "report/queued_sink.hpp"
#include "report/serve/live_server.hpp"
#include "report/tables/summary.hpp"
#include "session/health/pulse.hpp"
#include "session/health/straggler_detector.hpp"
#include "session/injection/injecting_sensor.hpp"
#include "session/injection/stall_injection.hpp"
#include "session/journal_gathering.hpp"
#include "session/recovery/crash_report.hpp"
#include "session/recovery/recovery_coordinator.hpp"
#include "session/session.hpp"
#include "session/stop_signal.hpp"

namespace egt {

/// The command-specific part of a run: its options, its view of the records, and its conclusion. All commands
/// share device setup, workloads, records and reports. The main thread makes all calls except `gate`.
/// `refine` runs on all ranks and must act the same on each.
class RunPurpose {
 public:
  virtual ~RunPurpose() = default;
  /// Adapts `options`, which have the defaults of the command and the backend. An error rejects the run.
  /// Afterwards `options.run.injections` contains the injections of all ranks.
  virtual Status refine(Options& options, Backend backend, const RankPlace& place) = 0;

  /// Resolves the options for this device. Collective: all ranks return the same Status.
  virtual Status choose(const Options& options, const Platform& platform, Control& control) = 0;
  /// The device's workloads, in the order of memory allocation and of service in each step. Called again
  /// after `make_smaller`. The environment outlives them.
  virtual Session::Workloads make_workloads(Environment& environment) = 0;
  /// Called if the first workload lacks memory on some rank: reduces its load, equally on all ranks. False if
  /// that is impossible.
  virtual bool make_smaller(RecordQueue&) { return false; }
  /// When the run ends regularly. Called after all workloads are prepared.
  virtual SessionPlan plan(const Options& options) = 0;
  /// Adds the device load to the start record.
  virtual void describe(StartBody&) const {}
  /// Directory of its test files; empty: it writes none.
  virtual std::string io_directory() const { return {}; }
  /// Additional copy of the result file; empty: none.
  virtual std::string result_copy() const { return {}; }
  /// On rank 0 after a passed run: writes data for later runs.
  virtual Status keep_answers() { return {}; }

  /// From now on only this process writes the journals of `directory`. An error rejects the run.
  virtual Status claim(const std::string& /*directory*/) { return {}; }

  /// Called when the run starts. `records` outlives this object and accepts notices from the main thread.
  virtual void begin(RecordQueue&) {}
  /// Whether excess faults are counted instead of recorded.
  virtual FaultLimit fault_limit() const { return FaultLimit::flood; }
  /// May delay an injection that is due; see Injector.
  virtual InjectionGate gate() { return {}; }
  /// Receives this rank's records as they occur; null: not needed.
  virtual Sink* own_records() { return nullptr; }
  /// Receives all ranks' records on rank 0 as they arrive; null: not needed.
  virtual Sink* all_records() { return nullptr; }
  /// Whether ranks are compared with peers of the same model, and slow ones are reported.
  virtual bool compares_peers() const { return true; }
  /// Whether to display the record during the run.
  virtual bool is_shown(const Record&) const { return true; }
  /// On rank 0 after the run: its verdict.
  virtual Verdict judge(const std::vector<Record>& records) { return egt::judge(records); }
  /// The content of result.json.
  virtual Json result(const std::vector<Record>& records, const Verdict& verdict) {
    return build_result(records, verdict);
  }
  /// The text printed above the verdict; empty: none.
  virtual std::string summary(const Json& result) { return summary_text(result); }
};

/// One run on this rank, from the platform to the verdict. Members are destroyed in reverse order.
class Run {
 public:
  /// All arguments outlive the run.
  Run(const Options& options, RunPurpose& purpose, MpiSession& mpi, Control& control,
      Clock::time_point started)
      : options_(options),
        purpose_(purpose),
        mpi_(mpi),
        control_(control),
        process_started_(started),
        records_(control.place().rank, record_capacity, purpose.fault_limit()) {}

  /// Does all steps that can reject the run; on failure nothing is left behind. `stopped`: a stop was
  /// requested before the directory existed. After a later request, the run starts and ends at once.
  Status prepare();
  /// Returns the exit code, the same on every rank.
  Result<int> run();

 private:
  static constexpr std::size_t record_capacity = 4096;

  bool is_root() const { return control_.place().rank == 0; }
  bool is_resumed() const { return options_.resumed.part > 0; }
  bool is_gpu() const { return platform_.device->info().backend == "cuda"; }
  Status begin();
  Status own_device_error() const;
  Status report_failed_start(const Status& own);
  MonitoredDevice monitored_device() const;
  Status open_platform();
  Status check_node(Backend backend);
  std::unique_ptr<Device> with_injections(std::unique_ptr<Device> device);
  Status choose_options(const BackendChoice& choice);
  void leave_nothing_behind(bool all_answer);
  void remove_journal() const;
  std::optional<Activity> blocked_file() const;
  void leave_when_told(const std::stop_token& stop);
  Status check_stop();
  Status take_memory_or_stop();
  Status agree_on_options();
  Result<MemoryInfo> device_memory();
  Status make_directory();
  Status open_directory();
  Status open_stop_file();
  Status find_directories();
  GatheringSetup gathering();
  std::vector<int> ranks_here() const;
  void open_environment();
  Status take_memory();
  Status open_journal();
  Status open_log();
  Status introduce();
  Status open_console();
  void show_devices(const std::vector<std::string>& cards);
  Status open_past();
  Status read_past(const std::vector<std::string>& cards);
  void compare_with_past();
  void open_route();
  void open_live_server(std::vector<Record> earlier);
  Result<std::unique_ptr<Communicator>> connect();
  double peer_timeout() const;
  Status open_recovery();
  Status open_pulse();
  Status open_telemetry();
  std::string fixed_mix() const;
  std::string light_load() const;
  Result<int> share_verdict(const Status& failure);
  int conclude(const Status& reported, bool can_gather);
  void say_last_words(const Verdict& verdict, Json result, std::vector<std::string> warnings,
                      bool has_result);
  static Durability durability();
  Status write_result(const Json& result) const;
  [[noreturn]] void leave(int code);
  StartBody start_body() const;

  Options options_;
  RunPurpose& purpose_;
  MpiSession& mpi_;
  Control& control_;
  const Clock::time_point process_started_;
  RecordQueue records_;
  ProgressBoard board_;
  LoadControl load_;
  Backend backend_ = Backend::automatic;
  Platform platform_;
  Status device_opened_;
  InjectingDevice* injecting_device_ = nullptr;  ///< the platform's device, if a device fault is planned
  MemoryInfo memory_before_;
  SensorLimits limits_;
  std::optional<Result<SensorCounters>> counters_before_;  ///< when the sensor was opened
  std::unique_ptr<Injector> injector_;
  std::optional<Environment> environment_;
  Session::Workloads workloads_;
  RunDirectory directory_;
  std::string run_id_;
  Json inventory_;                        ///< of this node, on local rank 0; null: not read
  std::vector<std::string> directories_;  // of all ranks, see find_run_directories
  std::unique_ptr<StopFile> stop_file_;   // on one rank of each node
  bool stopped_early_ = false;            // before any work; the same on all ranks
  std::unique_ptr<Journal> journal_;
  std::unique_ptr<QueuedConsole> console_;
  std::shared_ptr<LogFile> log_;  // on rank 0; null: not requested
  std::unique_ptr<QueuedSink> log_sink_;
  std::unique_ptr<LiveServer> live_server_;  // on rank 0; null: not requested or not possible
  TimeLines time_lines_;                     // on rank 0
  std::vector<Json> past_;                   // on rank 0: earlier runs of the GPUs, see --history
  std::unique_ptr<Sink> own_records_, shown_, straggler_detector_;
  std::unique_ptr<RecordRouter> route_;
  std::unique_ptr<Pulse> pulse_;  ///< null: steady load
  std::unique_ptr<Telemetry> telemetry_;
  std::unique_ptr<StallInjection> stalls_;
  std::unique_ptr<CrashReport> crash_report_;
  std::unique_ptr<RecoveryCoordinator> recovery_;
};

/// Prepares a run and runs it.
inline Result<int> execute(const Options& options, RunPurpose& purpose, MpiSession& mpi, Control& control,
                           Clock::time_point started) {
  Run run(options, purpose, mpi, control, started);
  EGT_TRY(run.prepare());
  return run.run();
}

}  // namespace egt
