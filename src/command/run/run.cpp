#include "command/run/run.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <random>
#include <system_error>

#include "egt/core/exit_code.hpp"
#include "egt/core/file_io.hpp"
#include "egt/core/process_limits.hpp"
#include "egt/core/wait.hpp"
#include "egt/ranks/agreement.hpp"
#include "judge/expectations.hpp"
#include "judge/version.hpp"
#include "report/console/console_style.hpp"
#include "workload/file/file_claim.hpp"
#include "workload/reproduce/repeat.hpp"

namespace egt {
namespace {

/// The run id from a script, so that it can identify its run among others; empty if not set.
Result<std::string> given_run_id() {
  constexpr std::size_t longest = 64;
  constexpr const char* letters = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-";
  const char* const given = std::getenv("EGT_RUN_ID");
  std::string id = given ? given : "";
  if (id.size() <= longest && id.find_first_not_of(letters) == id.npos) return id;
  return Status(StatusCode::invalid_argument,
                fmt::format("EGT_RUN_ID={}: up to {} letters, digits and - are allowed", id, longest));
}

std::string new_run_id() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}", random(), random());
}

}  // namespace

Status Run::prepare() {
  const Status ready = begin();
  constexpr StatusCode of_no_device[] = {StatusCode::ok, StatusCode::stopped, StatusCode::invalid_argument,
                                         StatusCode::timeout};
  if (std::find(std::begin(of_no_device), std::end(of_no_device), ready.code()) == std::end(of_no_device)) {
    const Status own = own_device_error();
    if (!agree(control_, own).ok()) return report_failed_start(own);
  }
  if (!ready.ok() && environment_) leave_nothing_behind(ready.code() != StatusCode::timeout);
  return ready;
}

Status Run::begin() {
  EGT_TRY(check_stop());
  EGT_TRY(open_platform());
  StopSignal::keep();
  EGT_TRY(purpose_.choose(options_, platform_, control_));
  StopSignal::end_start();
  EGT_TRY(check_stop());
  EGT_TRY(open_directory());
  open_environment();
  Status ready = agree(control_, open_log());
  if (ready.ok()) ready = agree(control_, open_past());
  // Rank 0 opens its journal first. If two runs start in one directory, one of them then gets all journals.
  const bool is_first = control_.place().rank == 0;
  if (ready.ok()) ready = agree(control_, is_first ? open_journal() : Status());
  if (ready.ok()) ready = agree(control_, is_first ? Status() : open_journal());
  if (ready.ok()) ready = find_directories();
  if (ready.ok()) ready = agree(control_, purpose_.claim(directory_.path()));
  if (ready.ok()) ready = take_memory_or_stop();
  return ready.ok() ? introduce() : ready;
}

/// The error of this rank's failed device, else ok. A failed device returns it from every call.
Status Run::own_device_error() const {
  const Status device = platform_.device ? platform_.device->memory().status() : device_opened_;
  return device.code() == StatusCode::device_error ? device : Status();
}

/// `stopped` if any rank received a stop signal. Collective, since the signal may reach only some ranks.
Status Run::check_stop() {
  const int number = StopSignal::received();
  return agree(control_,
               number == 0 ? Status()
                           : Status(StatusCode::stopped,
                                    fmt::format("stopped by {} before the run began", signal_name(number))));
}

void Run::open_environment() {
  purpose_.begin(records_);
  environment_.emplace(Environment{
      *platform_.device, *platform_.communicator, records_, control_.place(), options_.common.seed,
      *injector_, describe_device_model(platform_.device->info(), limits_), board_, load_, peer_timeout()});
  environment_->publish = [this] { return route_ ? route_->pump() : Status(); };
  environment_->reading = [this] { return telemetry_ ? telemetry_->latest() : SensorReading(); };
  environment_->directory = directory_.path();
  environment_->program_version = program_version();
  environment_->host_load = [this] { return telemetry_ ? telemetry_->latest_host() : HostLoad(); };
  workloads_ = purpose_.make_workloads(*environment_);
}

/// Called if the run did not start: removes everything that was created for it, on every rank. If
/// `all_answer` is false, a rank hangs. Then the others do not wait for it, and its files stay.
void Run::leave_nothing_behind(bool all_answer) {
  recovery_.reset();  // first stop all writers of the journal
  crash_report_.reset();
  stalls_.reset();
  telemetry_.reset();
  route_.reset();
  live_server_.reset();
  stop_file_.reset();
  if (journal_) {
    journal_.reset();
    remove_journal();
  }
  workloads_.clear();  // including their test files
  // Test files of ranks that were killed.
  remove_leftover_files(purpose_.io_directory(), control_.place().hostname);
  if (all_answer) (void)control_.barrier();  // the folder is removed after all ranks' files
  if (log_) log_->discard();
  directory_.discard();
}

/// Called if the run did not start: removes its journal, unless that contains earlier parts of the run.
void Run::remove_journal() const {
  const std::string path = directory_.file(journal_name(control_.place().rank));
  std::error_code error;
  if (!is_resumed() || std::filesystem::file_size(path, error) == 0) std::filesystem::remove(path, error);
}

/// A directory that cannot be used rejects the run before it loads the devices.
Status Run::open_past() {
  return is_root() && !options_.common.history.empty() ? open_history(options_.common.history) : Status();
}

Status Run::open_platform() {
  auto choice = choose_backend(options_.common);
  EGT_TRY(agree(control_, choice.status()));
  const Backend backend = choice.value().backend;
  EGT_TRY(agree_on_text(control_, backend == Backend::host ? "host" : "cuda",
                        "the backends (a GPU here, none there)"));
  EGT_TRY(agree(control_, choose_options(choice.value())));
  EGT_TRY(agree_on_options());
  injector_ =
      std::make_unique<Injector>(options_.run.injections, control_.place(), records_, purpose_.gate());
  EGT_TRY(check_node(backend));
  auto device =
      open_device(backend, options_.common, control_.place(), [&main = board_.line("main")] { main.beat(); });
  device_opened_ = device.status();
  EGT_TRY(agree(control_, device_opened_));
  platform_.device = with_injections(std::move(device.value()));
  if (options_.burn.pulse) EGT_TRY(agree(control_, platform_.device->allow_holds()));
  EGT_TRY(refuse_shared_devices(control_, platform_.device->info()));
  backend_ = backend;
  if (control_.place().local_rank == 0 && options_.common.devices.empty()) {
    const Result<int> gpus = backend == Backend::cuda ? visible_gpus() : Result<int>(0);
    std::string text = gpus.ok() ? untested_gpus(gpus.value(), control_.place(), "/") : std::string();
    if (!text.empty()) records_.warning(std::move(text));
  }
  if (control_.place().local_rank == 0 && backend == Backend::host && control_.place().local_size > 1)
    if (const Result<int> cores = node_cores(); cores.ok())
      if (std::string text = shared_cores(cores.value(), control_.place()); !text.empty())
        records_.notice(std::move(text));
  auto communicator = connect();
  EGT_TRY(agree(control_, communicator.status()));
  platform_.communicator = std::make_unique<RestartableCommunicator>(std::move(communicator.value()));
  platform_.sensor =
      open_sensor(platform_.device->info(), platform_.sensor_note, control_.place().local_rank);
  if (platform_.sensor) {
    limits_ = platform_.sensor->limits();
    counters_before_ = platform_.sensor->counters();  // before preparation loads the device
  }
  auto memory = device_memory();
  EGT_TRY(agree(control_, memory.status()));
  memory_before_ = memory.value();
  if (!mpi_.warning().empty() && control_.place().local_size > 1 && control_.place().local_rank == 0)
    records_.warning(mpi_.warning());
  if (!platform_.sensor) records_.warning(fmt::format("no telemetry: {}", platform_.sensor_note));
  return {};
}

/// Compares the inventory of each node with --expect, before a device is opened: contexts of this program
/// would count as other processes. Collective.
Status Run::check_node(Backend backend) {
  std::string violations, warnings;
  const RankPlace& place = control_.place();
  if (place.local_rank == 0 && (backend == Backend::cuda || !options_.run.expected.empty())) {
    inventory_ = read_inventory(place.hostname);
    inventory_["deviations"] = Json::array();
    for (const Deviation& one : check_inventory(options_.run.expected, inventory_)) {
      const std::string line = fmt::format("{}: {}", place.hostname, one.text);
      (one.is_usual ? warnings : violations) += "\n  " + line;
      inventory_["deviations"].push_back(one.text);
      if (one.is_usual) records_.warning(line);
    }
  }
  EGT_TRY_ASSIGN(const auto found, control_.gather(violations.empty() ? "" : violations + warnings));
  std::string all;
  for (const std::string& one : found) all += one;
  // Only rank 0 has all texts. The others must not open their devices before every node was read.
  return agree(control_, all.empty()
                             ? Status()
                             : Status(StatusCode::unavailable, "the node is not as --expect states:" + all));
}

/// Wraps the device on ranks with a planned device injection. Those for step 0 may act before the first step.
std::unique_ptr<Device> Run::with_injections(std::unique_ptr<Device> device) {
  constexpr auto any_step = std::numeric_limits<std::int64_t>::max();
  if (!injector_->waits(InjectionKind::idle, any_step) &&
      !injector_->waits(InjectionKind::device_error, any_step))
    return device;
  auto injecting = std::make_unique<InjectingDevice>(std::move(device));
  injecting_device_ = injecting.get();
  begin_device_errors(*injector_, *injecting, 0);
  return injecting;
}

/// The watchdog acts at its timeout. Waits for peers last longer, as a fallback. On the host backend a wait
/// may last for many timeouts, as long as the work progresses: other processes use the cores, too.
double Run::peer_timeout() const {
  constexpr double reserve_s = 30;
  const double timeouts = backend_ == Backend::host ? 20 : 2;
  return timeouts * options_.run.watch.collective_timeout_seconds + reserve_s;
}

Result<std::unique_ptr<Communicator>> Run::connect() {
  return open_communicator(backend_, mpi_, control_, peer_timeout());
}

Status Run::choose_options(const BackendChoice& choice) {
  apply_defaults(options_, choice.backend);
  if (choice.backend == Backend::host && control_.place().local_rank == 0)  // others have the same reason
    records_.notice(fmt::format("host backend: {}", choice.why));
  if (is_root() && options_.run.serve) {
    EGT_TRY(check_live_server());
    EGT_TRY(check_serve_token(*options_.run.serve));
  }
  return purpose_.refine(options_, choice.backend, control_.place());
}

/// Total and free memory. On a GPU from the sensor, since NVML also counts memory reserved by the driver.
Result<MemoryInfo> Run::device_memory() {
  if (platform_.sensor) {
    const auto reading = platform_.sensor->read();
    if (reading.ok() && reading.value().memory_total_bytes && reading.value().memory_used_bytes && is_gpu()) {
      const std::uint64_t total = *reading.value().memory_total_bytes;
      return MemoryInfo{.total_bytes = total, .free_bytes = total - *reading.value().memory_used_bytes};
    }
  }
  return platform_.device->memory();
}

Status Run::agree_on_options() {
  EGT_TRY(agree_on_text(control_, program_version(), "the program's versions"));
  return agree_on_text(control_, one_line(effective_options(options_)), "the options");
}

/// Called on rank 0.
Status Run::make_directory() {
  EGT_TRY_ASSIGN(run_id_, given_run_id());
  if (is_resumed()) {
    run_id_ = options_.resumed.run_id;
    EGT_TRY_ASSIGN(directory_, RunDirectory::join(options_.burn.resume));
    return {};
  }
  EGT_TRY_ASSIGN(directory_, RunDirectory::create(options_.common.output, run_id_));
  if (run_id_.empty()) run_id_ = new_run_id();
  return {};
}

Status Run::open_directory() {
  Status made = is_root() ? make_directory() : Status();
  EGT_TRY(agree(control_, made));
  EGT_TRY_ASSIGN(const std::string path, control_.broadcast(directory_.path()));
  EGT_TRY_ASSIGN(run_id_, control_.broadcast(run_id_));
  if (!is_root()) {
    auto joined = RunDirectory::join(path);
    made = joined.status();
    if (joined.ok()) directory_ = std::move(joined.value());
  }
  const Status agreed = agree(control_, made);
  if (!agreed.ok()) directory_.discard();
  EGT_TRY(agreed);
  const Status watched = agree(control_, open_stop_file());
  if (!watched.ok()) directory_.discard();
  return watched;
}

/// The first file operation that the disk does not complete in time; empty if there is none.
std::optional<Activity> Run::blocked_file() const {
  constexpr double patience_s = 30;
  for (const Activity& activity : board_.read())
    if (!activity.file.empty() && activity.seconds > patience_s) return activity;
  return std::nullopt;
}

/// Thread that runs during allocation and measurement, which may take longer than the second that mpirun
/// grants after a signal. A rank that must stop meanwhile exits at once, without waiting for its peers. So
/// does a rank with a blocked disk. Nothing was tested yet.
void Run::leave_when_told(const std::stop_token& stop) {
  constexpr double patience_s = 0.4, others_s = 0.3;
  std::optional<Activity> blocked;
  const auto reported = [&] {
    blocked = blocked_file();
    return Result<bool>(StopSignal::wants_the_end() || blocked);
  };
  const auto never = [] { return Result<bool>(false); };
  const WaitLimits until_told{.seconds = std::numeric_limits<double>::infinity(), .stop = stop};
  if (!wait_until(reported, until_told).ok()) return;
  if (wait_until(never, {.seconds = patience_s, .stop = stop}).code() == StatusCode::stopped) return;
  if (blocked)  // first, since later steps may need that disk
    fmt::print(stderr,
               "extreme_gpu_trainer: rank {}: --io-dir {}: {}: check the disk, name another folder, or use "
               "--no-io\n",
               control_.place().rank, purpose_.io_directory(), blocked_file_text(*blocked));
  remove_journal();
  if (log_) log_->discard();
  if (is_root()) {
    std::error_code error;  // the folder is removed after all ranks' files
    static_cast<void>(
        wait_until([&] { return Result<bool>(std::filesystem::is_empty(directory_.path(), error)); },
                   {.seconds = is_resumed() ? 0 : others_s}));
    directory_.discard();
  }
  if (blocked) leave(exit_code::no_environment);
  remove_test_files_of(::getpid(), purpose_.io_directory(), control_.place().hostname);
  remove_leftover_files(purpose_.io_directory(), control_.place().hostname);
  if (is_root())
    fmt::print(stderr, "extreme_gpu_trainer: stopped by {} before the run began\n",
               signal_name(StopSignal::received()));
  leave(exit_code::interrupted);
}

/// A stopped run allocates nothing.
Status Run::take_memory_or_stop() {
  Status going_on = check_stop();
  if (going_on.ok()) {
    const auto guard = start_thread<std::jthread>(
        "the stop of a run that begins", [this](const std::stop_token& stop) { leave_when_told(stop); });
    EGT_TRY(agree(control_, guard.status()));
    EGT_TRY(take_memory());
  }
  if (going_on.ok()) going_on = check_stop();
  stopped_early_ = going_on.code() == StatusCode::stopped;
  return stopped_early_ ? Status() : going_on;
}

/// Opens the stop file on one rank of each node.
Status Run::open_stop_file() {
  if (!is_root() && control_.place().local_rank != 0) return {};
  EGT_TRY_ASSIGN(stop_file_, StopFile::open(directory_.path(), is_resumed()));
  return {};
}

/// The first workload allocates first, and is reduced if memory is short. The others use the rest.
Status Run::take_memory() {
  Status first = agree(control_, workloads_.front()->prepare());
  while (first.code() == StatusCode::out_of_memory && purpose_.make_smaller(records_)) {
    workloads_.clear();  // frees the memory first
    workloads_ = purpose_.make_workloads(*environment_);
    first = agree(control_, workloads_.front()->prepare());
  }
  EGT_TRY(first);
  Status others;
  for (std::size_t i = 1; i < workloads_.size() && others.ok(); ++i) others = workloads_[i]->prepare();
  return agree(control_, others);
}

Status Run::open_journal() {
  auto journal = Journal::open(directory_.path(), control_.place().rank,
                               is_resumed() ? Journal::Mode::resume : Journal::Mode::create);
  EGT_TRY(journal.status());
  journal_ = std::move(journal.value());
  if (!journal_->unlocked().empty() && control_.place().local_rank == 0)  // the same on the whole node
    records_.warning(journal_->unlocked());
  return {};
}

/// Also gathers the journals of a resumed run on rank 0, since its verdict needs all of them.
Status Run::find_directories() {
  EGT_TRY_ASSIGN(directories_, find_run_directories(control_, directory_.path()));
  if (is_root())
    for (const std::string& line : report_journals_elsewhere(directories_, 0, "they come when the run ends"))
      records_.notice(line);
  if (!is_resumed()) return {};
  if (!is_root()) return agree(control_, offer_journals(gathering()));
  const std::vector<std::string> missing = gather_journals(gathering());
  if (missing.empty()) return agree(control_, {});
  return agree(control_,
               {StatusCode::unavailable, fmt::format("--resume {}: {}", directory_.path(), missing.front())});
}

StartBody Run::start_body() const {
  StartBody body;
  body.place = control_.place();
  if (const char* const node = std::getenv("SLURMD_NODENAME")) body.slurm_node = node;
  if (platform_.device) body.device = platform_.device->info();
  body.memory = memory_before_;
  body.limits = limits_;
  body.system = describe_system(mpi_, limits_);
  body.command = options_.command;
  body.arguments = options_.arguments;
  body.options = effective_options(options_);
  body.host_defaults = options_.host_defaults;
  if (!platform_.sensor) body.no_telemetry = platform_.sensor_note;
  body.inventory = inventory_;
  body.run_id = run_id_;
  body.part = options_.resumed.part;
  body.process = ::getpid();
  purpose_.describe(body);
  return body;
}

/// Rank 0's console shows all ranks' devices and their used memory. Records are routed from then on.
Status Run::introduce() {
  const Json start = to_json(start_body());
  const auto memory = device_memory();
  EGT_TRY(agree(control_, memory.status()));
  const Json card = {
      {"start", start}, {"used", memory.value().used_bytes()}, {"total", memory.value().total_bytes}};
  EGT_TRY_ASSIGN(const auto cards, control_.gather(one_line(card)));
  EGT_TRY(agree(control_, open_console()));
  EGT_TRY(agree(control_, read_past(cards)));
  open_route();
  records_.emit(RecordKind::start, -1, start);
  EGT_TRY(open_pulse());
  EGT_TRY(agree(control_, open_telemetry()));
  EGT_TRY(agree(control_, open_recovery()));
  if (is_root()) show_devices(cards);
  return route_->pump();  // start records, also if the run is killed before its first step
}

/// The earlier runs of all ranks' GPUs.
Status Run::read_past(const std::vector<std::string>& cards) {
  if (!is_root() || options_.common.history.empty()) return {};
  std::vector<std::string> ids;
  for (const std::string& card : cards)
    ids.push_back(history_id(member(member(Json::parse(card), "start"), "identity")));
  EGT_TRY_ASSIGN(History history, read_history(options_.common.history, ids));
  for (std::string& problem : history.problems) records_.warning(std::move(problem));
  past_ = std::move(history.lines);
  return {};
}

/// Called after all allocations and measurements; the pulse starts with the first step.
Status Run::open_pulse() {
  if (!options_.burn.pulse) return {};
  EGT_TRY_ASSIGN(const AgreedMoment origin, agree_on_moment(control_));
  auto pulse = Pulse::create(*platform_.device, *options_.burn.pulse, origin.moment, origin.error_seconds);
  EGT_TRY(agree(control_, pulse.status()));
  pulse_ = std::move(pulse.value());
  return {};
}

MonitoredDevice Run::monitored_device() const {
  constexpr std::size_t kernel_name_length = 15;
  return {.rank = control_.place().rank,
          .hostname = control_.place().hostname,
          .device_uuid = platform_.device ? platform_.device->info().uuid : "",
          .detector = backend_ == Backend::host ? "EDAC" : "NVML",
          .process = ::getpid(),
          .program = std::string(program_invocation_short_name).substr(0, kernel_name_length)};
}

Status Run::open_telemetry() {
  const auto& sensor = platform_.sensor;
  std::shared_ptr<Sensor> shown = sensor;
  if (!options_.run.injections.empty())
    shown = std::make_shared<InjectingSensor>(
        sensor, *injector_,
        InjectingSensor::Settings{.temperature_limit_c = options_.run.guard.temperature_limit_c,
                                  .step = [this] { return board_.line("main").read().step; }});
  double sample_seconds = options_.common.metrics_sample_rate;
  if (pulse_) sample_seconds = std::min(sample_seconds, pulse_->sample_seconds());
  telemetry_ =
      std::make_unique<Telemetry>(std::move(shown), sample_seconds, process_started_,
                                  Guarding{.options = options_.run.guard,
                                           .device = monitored_device(),
                                           .load = load_,
                                           .records = records_,
                                           .board = board_,
                                           .planned_seconds = purpose_.plan(options_).duration_seconds,
                                           .pulse = pulse_.get(),
                                           .seconds = {},
                                           .counters_before = counters_before_,
                                           .fixed_mix = fixed_mix()});
  return telemetry_->started();
}

/// Reason why MixControl does not keep the power at its limit in this run; empty: it does.
std::string Run::fixed_mix() const {
  if (options_.command != "burn") return options_.command;  // other commands have a small load
  if (pulse_) return "pulse";
  if (options_.burn.train.load == LoadKind::train) return "load train";
  return options_.burn.memory.fill.is_zero() ? "no memory is filled" : "";
}

/// Reason why devices may draw less than with the default load, so that --expect does not judge their power;
/// empty: none.
std::string Run::light_load() const {
  const std::uint64_t total = platform_.device->info().memory_total_bytes;
  std::string reason = fixed_mix();
  if (reason.empty() && options_.burn.memory.fill.of(total) < total / 2)
    reason =
        "less than half of the memory is filled";  // memory-resident GEMMs have room for small operands only
  return reason;
}

Status Run::open_recovery() {
  const RankPlace& place = control_.place();
  crash_report_ =
      std::make_unique<CrashReport>(CrashReport::Context{.place = place,
                                                         .records = records_,
                                                         .route = *route_,
                                                         .directory = directory_.path(),
                                                         .record_count = journal_->count(),
                                                         .io_directory = purpose_.io_directory(),
                                                         .requested_files = options_.common.requested_files,
                                                         .history = options_.common.history,
                                                         .run_directories = directories_,
                                                         .console = *console_,
                                                         .stop_background = [this] {
                                                           for (auto& workload : workloads_)
                                                             workload->stop_background();
                                                         }});
  stalls_ = std::make_unique<StallInjection>(*injector_, *route_, injecting_device_);
  EGT_TRY_ASSIGN(recovery_, RecoveryCoordinator::open({.control = control_,
                                                       .communicator = *platform_.communicator,
                                                       .board = board_,
                                                       .records = records_,
                                                       .options = options_.run.watch,
                                                       .device_uuid = platform_.device->info().uuid,
                                                       .connect = [this] { return connect(); },
                                                       .crash_report = *crash_report_}));
  return recovery_->start();
}

Result<int> Run::run() {
  raise_code_without_verdict(exit_code::incomplete);
  Session::Workloads none;
  Session session({.monitored = monitored_device(),
                   .device = *platform_.device,
                   .records = records_,
                   .route = *route_,
                   .telemetry = *telemetry_,
                   .board = board_,
                   .load = load_,
                   .recovery = *recovery_,
                   .pulse = pulse_.get()},
                  stopped_early_ ? none : workloads_);
  SessionPlan plan = purpose_.plan(options_);
  plan.is_interrupted = stopped_early_;
  plan.before_step = [this](std::int64_t step) { stalls_->strike(step); };
  plan.expected = options_.run.expected;
  plan.light_load = light_load();
  plan.before_end = [this] {
    constexpr double max_seconds = 10;
    repeat_for_peer(*environment_, max_seconds, [] { return StopSignal::received() != 0; });
  };
  const Status failure = session.run(plan);
  crash_report_->end_work();
  if (!failure.ok() && control_.place().size > 1) recovery_->fail(failure, session.device_fault());
  return share_verdict(failure);
}

}  // namespace egt
