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
#include "judge/record_schema.hpp"
#include "judge/result.hpp"
#include "judge/verdict.hpp"
#include "ranks/mpi/mpi_session.hpp"
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
#include "workload/common/injector.hpp"

namespace egt {

/// What a command makes of a run: what it changes before the run, sees of it, and concludes from it. The
/// platform, the parts, the records and the reports are the same for all. All calls come from the main
/// thread, the gate aside; `refine` is called on all ranks and must do the same.
class RunPurpose {
 public:
  virtual ~RunPurpose() = default;
  /// Puts the command's own defaults into `options`, where the host's are already. An error refuses the run.
  /// The faults on purpose, of all ranks, are then those of `options.run.injections`.
  virtual Status refine(Options& options, Backend backend, const RankPlace& place) = 0;

  /// Chooses what the options mean on this device. Collective: all ranks leave with the same Status.
  virtual Status choose(const Options& options, const Platform& platform, Control& control) = 0;
  /// What loads the device, in the order in which it takes memory and is served each step. May be called
  /// again, after `make_smaller`. The environment outlives it.
  virtual Session::Workloads make_workloads(Environment& environment) = 0;
  /// The first workload found too little memory on some rank: makes its load smaller, the same on all ranks;
  /// false: it cannot be.
  virtual bool make_smaller(RecordQueue&) { return false; }
  /// When the run ends by itself; asked after all workloads are prepared.
  virtual SessionPlan plan(const Options& options) = 0;
  /// Adds what it loads the device with to the start record.
  virtual void describe(StartBody&) const {}
  /// Where its test files are written; empty: it writes none.
  virtual std::string io_directory() const { return {}; }
  /// A file, beside the run directory's, that gets the result too; empty: none.
  virtual std::string result_copy() const { return {}; }
  /// On rank 0, after a run that passed: writes what later runs need of it.
  virtual Status keep_answers() { return {}; }

  /// This process alone writes the journals of `directory` from now on. An error refuses the run.
  virtual Status claim(const std::string& /*directory*/) { return {}; }

  /// The run takes shape; `records` outlives the purpose's use and takes notices from the main thread.
  virtual void begin(RecordQueue&) {}
  /// Are faults without end counted instead of told?
  virtual FaultLimit fault_limit() const { return FaultLimit::flood; }
  /// May hold an injection back that is due; see Injector.
  virtual InjectionGate gate() { return {}; }
  /// This rank's records as they happen; null: nobody cares.
  virtual Sink* own_records() { return nullptr; }
  /// On rank 0: all ranks' records as they arrive; null: nobody cares.
  virtual Sink* all_records() { return nullptr; }
  /// Are ranks compared with the others of their device model, and slow ones told?
  virtual bool compares_peers() const { return true; }
  /// Is it for people to see while the run goes on?
  virtual bool is_shown(const Record&) const { return true; }
  /// On rank 0, after the run: what it came to, ..
  virtual Verdict judge(const std::vector<Record>& records) { return egt::judge(records); }
  /// .. the content of result.json, ..
  virtual Json result(const std::vector<Record>& records, const Verdict& verdict) {
    return build_result(records, verdict);
  }
  /// .. and what people read above the verdict; empty: nothing.
  virtual std::string summary(const Json& result) { return summary_text(result); }
};

/// One run on this rank, from the platform to the verdict. Members end in the reverse order of their making.
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

  /// All that can be refused; a failure leaves nothing behind. `stopped`: somebody wants it to end, and it
  /// had no directory yet; with one it is a run, which then does nothing but end.
  Status prepare();
  /// To the exit code, the same on every rank.
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
  std::unique_ptr<Device> with_injections(std::unique_ptr<Device> device);
  Status choose_options(const BackendChoice& choice);
  void leave_nothing_behind();
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
  void open_environment();
  Status take_memory();
  Status open_journal();
  Status open_log();
  Status introduce();
  Status open_console();
  void show_devices(const std::vector<std::string>& cards);
  void open_route();
  void open_live_server(std::vector<Record> earlier);
  Result<std::unique_ptr<Communicator>> connect();
  double peer_timeout() const;
  Status open_recovery();
  Status open_pulse();
  Status open_telemetry();
  std::string fixed_mix() const;
  Result<int> share_verdict(const Status& failure);
  int conclude(const Status& told, bool can_gather);
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
  InjectingDevice* injecting_device_ = nullptr;  ///< the platform's, if a fault of it is planned
  MemoryInfo memory_before_;
  SensorLimits limits_;
  std::optional<Result<SensorCounters>> counters_before_;  ///< when the sensor was opened
  std::unique_ptr<Injector> injector_;
  std::optional<Environment> environment_;
  Session::Workloads workloads_;
  RunDirectory directory_;
  std::string run_id_;
  std::vector<std::string> directories_;  // of all ranks, see find_run_directories
  std::unique_ptr<StopFile> stop_file_;   // on one rank of each host
  bool stopped_early_ = false;            // before anything was started; the same on all ranks
  std::unique_ptr<Journal> journal_;
  std::unique_ptr<QueuedConsole> console_;
  std::shared_ptr<LogFile> log_;  // on rank 0; null: none is wanted
  std::unique_ptr<QueuedSink> log_sink_;
  std::unique_ptr<LiveServer> live_server_;  // on rank 0; null: none is wanted, or none could be
  TimeLines time_lines_;                     // on rank 0
  std::unique_ptr<Sink> own_records_, shown_, straggler_detector_;
  std::unique_ptr<RecordRouter> route_;
  std::unique_ptr<Pulse> pulse_;  ///< null: the load is steady
  std::unique_ptr<Telemetry> telemetry_;
  std::unique_ptr<StallInjection> stalls_;
  std::unique_ptr<CrashReport> crash_report_;
  std::unique_ptr<RecoveryCoordinator> recovery_;
};

}  // namespace egt
