#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <set>

#include "egt/command/commands.hpp"
#include "egt/command/platform.hpp"
#include "egt/ranks/agreement.hpp"
#include "egt/report/bodies.hpp"
#include "egt/report/console.hpp"
#include "egt/report/console_style.hpp"
#include "egt/report/journal.hpp"
#include "egt/report/log.hpp"
#include "egt/report/result.hpp"
#include "egt/report/run_directory.hpp"
#include "egt/report/version.hpp"
#include "egt/session/session.hpp"
#include "egt/session/stop_signal.hpp"
#include "egt/session/telemetry.hpp"
#include "egt/session/verdict.hpp"
#include "egt/workload/table.hpp"
#include "egt/workload/train.hpp"

namespace egt {

namespace {

constexpr double last_words_timeout_s = 180.0;  // above all that a rank's workloads may take to finish
constexpr double hurried_last_words_timeout_s = 5.0;
constexpr int incomplete_exit_code = 4;

Result<std::vector<Precision>> choose_precisions(const std::string& wanted, const Device& device) {
  constexpr Precision cycle[] = {Precision::bf16, Precision::tf32, Precision::fp16, Precision::fp32,
                                 Precision::fp64};
  if (wanted != "cycle") {
    const Precision one = *parse_precision(wanted);
    const Support support = device.supports(one);
    if (!support.yes())
      return Status(StatusCode::unsupported, fmt::format("--precision {}: {}", wanted, support.why_not));
    return std::vector<Precision>{one};
  }
  std::vector<Precision> supported;
  for (const Precision precision : cycle)
    if (device.supports(precision).yes()) supported.push_back(precision);
  return supported;
}

Result<BatchShare> choose_batch(const BurnOptions& burn, const RankPlace& place) {
  const std::int64_t global = burn.global_batch.value_or(burn.train.batch * place.size);
  if (global < place.size)
    return Status(
        StatusCode::invalid_argument,
        fmt::format("--global-batch {}: use at least one sample a rank, {} here", global, place.size));
  return share_batch(global, place.rank, place.size);
}

/// Fails where two ranks took the same device, which CUDA_VISIBLE_DEVICES or a scheduler can bring about.
Status refuse_shared_devices(Control& control, const DeviceInfo& device) {
  EGT_TRY_ASSIGN(const auto devices,
                 control.gather(device.uuid.empty() ? "" : control.place().hostname + " " + device.uuid));
  std::set<std::string> seen;
  Status own;
  for (const std::string& one : devices)
    if (!one.empty() && !seen.insert(one).second)
      own = Status(StatusCode::unavailable,
                   fmt::format("two ranks have the same device ({}): start one rank a device", one));
  return agree(control, own);
}

/// Without its result a run has no evidence: it cannot pass.
void lose_result(Verdict& verdict, const Status& why) {
  if (verdict.exit_code == 0 || verdict.exit_code == 6)
    verdict = {.name = "incomplete", .exit_code = 4, .reasons = {}};
  verdict.reasons.push_back(why.what());
}

/// One run of the main job on this rank, from the platform to the verdict. Members end in the reverse order
/// of their making.
class Burn {
 public:
  Burn(const Options& options, MpiSession& mpi, Control& control, Clock::time_point started)
      : options_(options),
        mpi_(mpi),
        control_(control),
        process_started_(started),
        records_(control.place().rank) {}

  /// All that can be refused; a failure leaves nothing behind.
  Status prepare();
  /// To the exit code, the same on every rank.
  Result<int> run();

 private:
  bool is_root() const { return control_.place().rank == 0; }
  bool is_gpu() const { return platform_.device->info().backend == "cuda"; }
  Status open_platform();
  void leave_nothing_behind();
  Status agree_on_options();
  Result<MemoryInfo> device_memory();
  Status choose_parts();
  Status open_directory();
  Status take_memory();
  Status open_journal();
  Status open_log();
  Status introduce();
  void open_console(const std::vector<std::string>& cards);
  int conclude();
  Status write_result(const std::vector<Record>& records, const Verdict& verdict) const;
  [[noreturn]] void leave(int code);
  StartBody start_body() const;

  Options options_;
  MpiSession& mpi_;
  Control& control_;
  const Clock::time_point process_started_;
  StopSignal stop_signal_;
  RecordQueue records_;
  Platform platform_;
  MemoryInfo memory_before_;
  SensorLimits limits_;
  BurnParts parts_;
  std::unique_ptr<Injector> injector_;
  std::optional<Environment> environment_;
  Session::Workloads workloads_;
  RunDirectory directory_;
  std::unique_ptr<Journal> journal_;
  std::unique_ptr<Console> console_;  // on rank 0, as the log
  std::unique_ptr<LogFile> log_;      // null: none is wanted
  std::unique_ptr<RecordRoute> route_;
  std::unique_ptr<Telemetry> telemetry_;
};

Status Burn::prepare() {
  EGT_TRY(open_platform());
  EGT_TRY(agree(control_, choose_parts()));
  EGT_TRY(open_directory());
  injector_ = std::make_unique<Injector>(options_.burn.injections, control_.place(), records_);
  environment_.emplace(Environment{*platform_.device, *platform_.communicator, records_, control_.place(),
                                   options_.common.seed, *injector_,
                                   describe_device_model(platform_.device->info(), limits_)});
  workloads_ = make_burn_workloads(*environment_, parts_);
  Status ready = agree(control_, open_log());
  if (ready.ok()) ready = agree(control_, take_memory());
  if (ready.ok()) ready = agree(control_, open_journal());
  if (!ready.ok()) leave_nothing_behind();
  return ready.ok() ? introduce() : ready;
}

/// The run did not begin: whatever was made for it goes, on every rank.
void Burn::leave_nothing_behind() {
  if (journal_) {
    journal_.reset();
    std::remove(directory_.file(journal_name(control_.place().rank)).c_str());
  }
  (void)control_.barrier();  // the folder goes last, when all ranks' files are gone
  if (log_) log_->discard();
  directory_.discard();
}

Status Burn::open_platform() {
  auto choice = choose_backend(options_.common);
  EGT_TRY(agree(control_, choice.status()));
  const Backend backend = choice.value().backend;
  EGT_TRY(agree_on_text(control_, backend == Backend::host ? "host" : "cuda",
                        "the backends (a GPU here, none there)"));
  if (backend == Backend::host) {
    apply_host_defaults(options_);
    records_.notice(fmt::format("host backend: {}", choice.value().why));
  }
  EGT_TRY(agree_on_options());
  auto device = open_device(backend, options_.common, control_.place());
  EGT_TRY(agree(control_, device.status()));
  platform_.device = std::move(device.value());
  EGT_TRY(refuse_shared_devices(control_, platform_.device->info()));
  auto communicator = open_communicator(backend, mpi_, control_);
  EGT_TRY(agree(control_, communicator.status()));
  platform_.communicator = std::move(communicator.value());
  platform_.sensor = open_sensor(platform_.device->info(), platform_.sensor_note);
  if (platform_.sensor) limits_ = platform_.sensor->limits();
  auto memory = device_memory();
  EGT_TRY(agree(control_, memory.status()));
  memory_before_ = memory.value();
  if (!platform_.sensor) records_.warning(fmt::format("no telemetry: {}", platform_.sensor_note));
  return {};
}

/// As nvidia-smi tells it, where the sensor does: it also counts what the driver keeps for itself.
Result<MemoryInfo> Burn::device_memory() {
  if (platform_.sensor) {
    const auto reading = platform_.sensor->read();
    if (reading.ok() && reading.value().memory_total_bytes && reading.value().memory_used_bytes && is_gpu()) {
      const std::uint64_t total = *reading.value().memory_total_bytes;
      return MemoryInfo{.total_bytes = total, .free_bytes = total - *reading.value().memory_used_bytes};
    }
  }
  return platform_.device->memory();
}

Status Burn::agree_on_options() {
  EGT_TRY(agree_on_text(control_, program_version(), "the program's versions"));
  return agree_on_text(control_, effective_options(options_).dump(), "the options");
}

Status Burn::choose_parts() {
  parts_.train = options_.burn.train;
  parts_.collective = options_.burn.collective;
  parts_.memory = options_.burn.memory;
  parts_.file = options_.burn.file;
  EGT_TRY_ASSIGN(parts_.train.precisions, choose_precisions(options_.burn.precision, *platform_.device));
  EGT_TRY_ASSIGN(parts_.batch, choose_batch(options_.burn, control_.place()));
  return {};
}

Status Burn::open_directory() {
  Status made;
  if (is_root()) {
    auto created = RunDirectory::create(options_.common.output);
    made = created.status();
    if (created.ok()) directory_ = std::move(created.value());
  }
  EGT_TRY(agree(control_, made));
  EGT_TRY_ASSIGN(const std::string path, control_.broadcast(directory_.path()));
  if (!is_root()) {
    auto joined = RunDirectory::join(path);
    made = joined.status();
    if (joined.ok()) directory_ = std::move(joined.value());
  }
  const Status agreed = agree(control_, made);
  if (!agreed.ok()) directory_.discard();
  return agreed;
}

Status Burn::take_memory() {
  for (const auto& workload : workloads_) EGT_TRY(workload->prepare());
  return {};
}

Status Burn::open_journal() {
  auto journal = Journal::open(directory_.path(), control_.place().rank);
  EGT_TRY(journal.status());
  journal_ = std::move(journal.value());
  return {};
}

Status Burn::open_log() {
  if (!is_root() || options_.common.log_file.empty()) return {};
  EGT_TRY_ASSIGN(log_, LogFile::open(options_.common.log_file, options_.common.log_level));
  return {};
}

StartBody Burn::start_body() const {
  StartBody body;
  body.place = control_.place();
  body.device = platform_.device->info();
  body.memory = memory_before_;
  body.limits = limits_;
  body.batch = parts_.batch.local;
  body.system = describe_system(mpi_, limits_);
  body.command = options_.command;
  body.arguments = options_.arguments;
  body.options = effective_options(options_);
  body.host_defaults = options_.host_defaults;
  body.duration_seconds = options_.burn.duration_seconds;
  body.steps = options_.burn.steps;
  body.layers = parts_.train.layers;
  body.global_batch = parts_.batch.global;
  body.precisions = parts_.train.precisions;
  return body;
}

/// Rank 0's console opens with all ranks' devices and what they filled; from then on records flow.
Status Burn::introduce() {
  const Json start = to_json(start_body());
  EGT_TRY_ASSIGN(const MemoryInfo memory, device_memory());
  const Json card = {
      {"start", start}, {"used", memory.total_bytes - memory.free_bytes}, {"total", memory.total_bytes}};
  EGT_TRY_ASSIGN(const auto cards, control_.gather(one_line(card)));
  if (is_root()) open_console(cards);
  std::vector<Sink*> sinks;
  if (console_) sinks.push_back(console_.get());
  if (log_) sinks.push_back(log_.get());
  route_ = std::make_unique<RecordRoute>(control_, records_, *journal_, std::move(sinks));
  telemetry_ = std::make_unique<Telemetry>(std::move(platform_.sensor), options_.common.metrics_sample_rate,
                                           process_started_);
  records_.emit(RecordKind::start, -1, start);
  return {};
}

void Burn::open_console(const std::vector<std::string>& cards) {
  ConsoleStyle style = detect_console_style(options_.common.progress);
  style.messages = options_.common.log_level;
  console_ = std::make_unique<Console>(style, std::cout, std::cerr,
                                       [start = Clock::now()] { return seconds_since(start); });
  std::vector<Json> starts, filled;
  for (const std::string& card : cards) filled.push_back(Json::parse(card));
  for (const Json& card : filled) starts.push_back(card.at("start"));
  console_->on_start(starts);
  for (std::size_t rank = 0; rank < filled.size(); ++rank)
    console_->on_memory_filled(static_cast<int>(rank), filled[rank].at("used"), filled[rank].at("total"));
}

Result<int> Burn::run() {
  Session session(records_, *route_, *telemetry_, workloads_);
  const Status failure =
      session.run({.duration_seconds = options_.burn.duration_seconds, .steps = options_.burn.steps});
  if (!failure.ok()) platform_.communicator->abort();
  const bool hurry = !failure.ok() || StopSignal::received() != 0;
  const Status told = route_->pump_to_the_end(hurry ? hurried_last_words_timeout_s : last_words_timeout_s);
  const int code = is_root() ? conclude() : incomplete_exit_code;  // rank 0 alone has all the evidence
  if (!failure.ok() || !told.ok()) leave(code);
  EGT_TRY_ASSIGN(const std::string shared, control_.broadcast(std::to_string(code)));
  return std::atoi(shared.c_str());
}

/// On rank 0: the verdict, the result, the last words.
int Burn::conclude() {
  const std::vector<Record> records = route_->kept();
  Verdict verdict = judge(records);
  if (const Status written = write_result(records, verdict); !written.ok()) lose_result(verdict, written);
  console_->on_verdict(verdict, build_result(records, verdict), directory_.path());
  return verdict.exit_code;
}

Status Burn::write_result(const std::vector<Record>& records, const Verdict& verdict) const {
  // After a signal mpirun leaves a second, and a busy disk may want more.
  const Durability durability = StopSignal::received() != 0 ? Durability::system : Durability::disk;
  return write_atomically(directory_.file("result.json"), result_text(build_result(records, verdict)),
                          durability);
}

/// The one place that gives up on work that may never end (a collective whose peer is lost, a stuck kernel):
/// all is written, so the process ends without waiting for threads, streams or peers.
void Burn::leave(int code) {
  mpi_.abandon();
  journal_.reset();
  std::fflush(nullptr);
  std::_Exit(code);
}

}  // namespace

Result<int> run_burn(const Options& options, MpiSession& mpi, Control& control, Clock::time_point started) {
  Burn burn(options, mpi, control, started);
  EGT_TRY(burn.prepare());
  return burn.run();
}

}  // namespace egt
