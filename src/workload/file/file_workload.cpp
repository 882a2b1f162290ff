#include "workload/file/file_workload.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "egt/core/pattern.hpp"
#include "egt/core/units.hpp"
#include "workload/common/findings.hpp"
#include "workload/file/disk_reserve.hpp"
#include "workload/file/file_claim.hpp"
#include "workload/file/injecting_file_layer.hpp"

namespace egt {
namespace {

constexpr double first_pass_seconds = 30;  ///< at the end, if no pass was verified before
constexpr double last_pass_seconds = 2;    ///< at the end, for the pass in progress
constexpr int max_last_passes = 8;         ///< at the end, for pending injections
constexpr double stop_seconds = 30;        ///< for one chunk on the slowest disks
constexpr double remove_seconds = 30;      ///< the disk may flush open files first

/// Returns the layer unchanged if no file faults are planned.
std::unique_ptr<FileLayer> with_injections(std::unique_ptr<FileLayer> layer, Environment& environment,
                                           const std::atomic<std::int64_t>& step) {
  const auto& all = environment.injector.all();
  if (std::none_of(all.begin(), all.end(), [](const Injection& one) { return is_of_files(one.kind); }))
    return layer;
  return make_injecting_file_layer(
      std::move(layer), environment.injector, [&step] { return step.load(); }, environment.seed);
}

Json by_kind(const std::array<std::uint64_t, file_fault_kinds>& blocks) {
  Json counts = Json::object();
  for (std::size_t i = 0; i < blocks.size(); ++i) counts[to_string(static_cast<FileFault>(i))] = blocks[i];
  return counts;
}

}  // namespace

FileWorkload::FileWorkload(Environment& environment, const FileOptions& options,
                           std::unique_ptr<FileLayer> layer)
    : environment_(environment),
      options_(options),
      layer_(with_injections(std::move(layer), environment, step_)),
      paths_(test_file_paths<FilePass::files>(options.directory, environment.place)) {}

FileWorkload::~FileWorkload() {
  // Ignore a failure, which finish() has reported.
  static_cast<void>(thread_.stop(stop_seconds));
  static_cast<void>(remove_files_within(remove_seconds));
}

Status FileWorkload::prepare() {
  if (!options_.enabled) return {};
  if (options_.every < 1 || options_.repeats < 1)
    return {StatusCode::invalid_argument,
            "--io-every and --io-repeats: at least 1 is allowed; --no-io for none"};
  environment_.board.line("file").begin_file_operation("look into the folder", options_.directory);
  remove_leftovers();
  auto bytes = file_bytes();
  environment_.board.line("file").rest();
  EGT_TRY(bytes.status());
  bytes_ = bytes.value();
  if (bytes_ == 0) return {};
  EGT_TRY(find_file_system());
  auto made = std::make_unique<FilePass>(
      environment_, *layer_,
      FilePass::Plan{.paths = paths_, .directory = options_.directory, .bytes = bytes_});
  made_ = true;
  if (const Status status = made->prepare(); !status.ok()) {
    remove_files();
    if (!made->file_failed()) return status;
    return {status.code(), fmt::format("--io-dir {}: {}", options_.directory, status.what()),
            status.native()};
  }
  pass_ = std::move(made);
  return {};
}

/// Requested size, reduced to the limits of free space and budget, in whole blocks; 0: nothing is planned.
Result<std::uint64_t> FileWorkload::file_bytes() {
  const Result<DiskSpace> found = layer_->space(options_.directory);
  if (!found.ok())
    return Status(found.status().code(), fmt::format("--io-dir {}", found.status().what()),
                  found.status().native());
  if (options_.size == 0) return std::uint64_t{0};
  const DiskSpace& space = found.value();
  std::uint64_t bytes = std::max(options_.size, FilePass::block_bytes);
  if (const std::uint64_t most =
          max_file_bytes(space, environment_.place.local_size, FilePass::largest_chunk);
      bytes > most) {
    if (most < FilePass::block_bytes)
      return Status(
          StatusCode::no_space,
          fmt::format("--io-dir {}: {} are free there, of which {} must stay free; "
                      "name another folder, or use --no-io",
                      options_.directory, format_bytes(space.free_bytes), format_bytes(reserve_of(space))));
    bytes = most;
    environment_.records.notice(
        fmt::format("io: the files are {} instead of {}: at most 5 % of the {} that are free in {}, and {} "
                    "must stay free",
                    format_bytes(bytes), format_bytes(options_.size), format_bytes(space.free_bytes),
                    options_.directory, format_bytes(reserve_of(space))));
  }
  if (options_.budget && bytes > *options_.budget) {
    bytes = *options_.budget;
    environment_.records.notice(
        fmt::format("io: the files are {}: --io-budget allows no more", format_bytes(bytes)));
  }
  return bytes / FilePass::block_bytes * FilePass::block_bytes;
}

Status FileWorkload::find_file_system() {
  file_system_ = layer_->file_system(options_.directory);
  EGT_TRY(refuse_memory(options_, file_system_));
  if (!file_system_.memory.empty())
    environment_.records.warning(
        fmt::format("io: the files in {} are {}; name a directory on a disk with --io-dir",
                    options_.directory, mistrusted(file_system_, false).get<std::string>()));
  return {};
}

Status FileWorkload::start() {
  if (!pass_) return {};
  EGT_TRY(measure_rate());
  return start_thread();
}

Status FileWorkload::start_thread() {
  return thread_.start([this](std::stop_token stop) { return work(stop); });
}

/// Measures only if the budget covers this and a pass. A disk failure ends the part, as in a pass.
Status FileWorkload::measure_rate() {
  if (options_.rate_seconds <= 0 || (options_.budget && *options_.budget < 2 * bytes_)) return {};
  const Result<FileRates> rate = pass_->measure_rates_alone(options_.rate_seconds);
  environment_.board.line("file").rest();
  rate_is_measured_ = rate.ok();
  if (rate.ok() || !pass_->file_failed()) return rate.status();
  end_by_failure(rate.status());
  return {};
}

Status FileWorkload::enqueue(const Step& step) {
  if (!pass_) return {};
  step_ = step.index;
  pass_->set_step(step.index);
  if (step.index % options_.every != 0) return {};
  const std::lock_guard lock(mutex_);
  requested_ = true;
  changed_.notify_all();
  return {};
}

Status FileWorkload::retire(std::int64_t, StepOutcome&) {
  return thread_.failure();
}

Status FileWorkload::work(const std::stop_token& stop) {
  ProgressBoard::Line& line = environment_.board.line("file");
  Status status;
  line.rest();
  while (status.ok() && await_request(stop)) {
    status = cycle(stop);
    line.rest();
  }
  if (!status.ok() || stop.stop_requested()) return status;
  line.begin_file_operation("remove", paths_.front(), step_, remove_seconds);
  remove_files();  // no longer needed
  line.rest();
  return {};
}

/// Waits until a cycle is requested or due at the end. Returns false if no more cycles follow.
bool FileWorkload::await_request(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, stop, [this] { return requested_ || closing_ || over_; });
  if (stop.stop_requested() || over_) return false;
  return !closing_ || wants_last_pass();
}

/// At the end: true if no pass was verified yet, or due injections have not been applied.
bool FileWorkload::wants_last_pass() const {
  if (pass_->figures().passes == 0) return true;
  return last_passes_ < max_last_passes &&
         std::any_of(injection_rows.begin(), injection_rows.end(), [this](const InjectionRow& row) {
           return is_of_files(row.kind) && environment_.injector.waits(row.kind, step_);
         });
}

Status FileWorkload::cycle(const std::stop_token& stop) {
  int passes = 0;
  for (; wants_pass(passes) && within_budget(); ++passes) EGT_TRY(pass(stop));
  const std::lock_guard lock(mutex_);
  requested_ = false;
  if (passes == options_.repeats && disk_failure_.empty()) ++cycles_;
  return {};
}

/// True if file injections of this rank were due. Their faults must be detected before the end.
bool FileWorkload::suffers_injections() const {
  const auto& all = environment_.injector.all();
  return std::any_of(all.begin(), all.end(), [&](const Injection& one) {
    return one.rank == environment_.place.rank && one.step <= step_ && is_of_files(one.kind);
  });
}

bool FileWorkload::wants_pass(int passes_of_cycle) {
  const std::lock_guard lock(mutex_);
  if (over_) return false;
  if (!closing_) return passes_of_cycle < options_.repeats;
  if (!wants_last_pass()) return false;
  ++last_passes_;
  return true;
}

bool FileWorkload::within_budget() {
  const FileFigures figures = pass_->figures();
  const std::uint64_t written = figures.bytes_written + figures.bytes_measured;
  if (!options_.budget || written + bytes_ <= *options_.budget) return true;
  environment_.records.notice(
      fmt::format("io: {} were written; one more pass of {} would go over --io-budget {}, "
                  "so the file part is done",
                  format_bytes(written), format_bytes(bytes_), format_bytes(*options_.budget)));
  const std::lock_guard lock(mutex_);
  over_ = true;
  return false;
}

Status FileWorkload::pass(const std::stop_token& stop) {
  const Status status = pass_->run(stop);
  if (status.ok() || !pass_->file_failed()) return status;
  // The files were removed because of the stop.
  if (stop.stop_requested() && status.code() == StatusCode::unavailable)
    return {StatusCode::stopped, "the file part was stopped"};
  end_by_failure(status);
  return {};
}

void FileWorkload::end_by_failure(const Status& status) {
  const std::string why = with_free_space(status);
  environment_.records.warning(fmt::format("io: the file part ends: {}", why));
  const std::lock_guard lock(mutex_);
  over_ = true;
  disk_failure_ = why;
}

/// For a full disk, adds the free space to the system's message.
std::string FileWorkload::with_free_space(const Status& status) {
  if (status.code() != StatusCode::no_space || status.native() == 0) return status.what();
  const Result<DiskSpace> space = layer_->space(options_.directory);
  if (!space.ok()) return status.what();
  return fmt::format("{}; {} of {} are free there", status.what(), format_bytes(space.value().free_bytes),
                     format_bytes(space.value().total_bytes));
}

/// Lets the pass in progress complete if that is quick, and in any case those that `wants_last_pass`.
void FileWorkload::close(double first_seconds, double pass_seconds) {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
    changed_.notify_all();
    if (wants_last_pass() || suffers_injections()) pass_seconds = first_seconds;
  }
  // Without a thread nothing is verified; the part reports this.
  if (!thread_.started()) static_cast<void>(start_thread());
  static_cast<void>(thread_.ended_within(pass_seconds));
}

/// Removes the files at once on a separate thread, because unlink may wait until the disk has written the
/// open data.
void FileWorkload::stop_background() {
  thread_.ask_to_stop();
  static_cast<void>(remove_files_within(0));
}

Status FileWorkload::finish(const Shutdown& ending) {
  finished_ = true;
  hurried_ = ending.hurry;
  if (!pass_) return {};
  if (!ending.hurry) close(first_pass_seconds, last_pass_seconds);
  const Status stopped = explain(thread_.stop(ending.seconds(stop_seconds)));
  // A disk that does not respond cannot unlink either.
  const Status removed = remove_files_within(stopped.ok() ? ending.seconds(remove_seconds) : 0);
  if (!ending.hurry) {
    EGT_TRY(stopped);
    EGT_TRY(removed);
    remove_leftovers();  // of killed processes that have ended only now
  }
  return thread_.failure();
}

/// Adds the system call that the disk does not complete. The part has failed.
Status FileWorkload::explain(const Status& stopped) {
  if (stopped.ok()) return {};
  const Activity activity = environment_.board.line("file").read();
  const std::lock_guard lock(mutex_);
  disk_failure_ = activity.file.empty() ? stopped.what() : blocked_file_text(activity);
  return {stopped.code(), disk_failure_};
}

void FileWorkload::remove_leftovers() {
  const Leftovers removed = layer_->remove_leftovers(options_.directory, environment_.place.hostname);
  if (removed.files == 0) return;
  environment_.records.notice(fmt::format("io: {} test file{} of {} that an earlier run left in {} removed",
                                          removed.files, removed.files == 1 ? "" : "s",
                                          format_bytes(removed.bytes), options_.directory));
}

/// Runs on a separate thread, because unlink may wait for the disk. Without a thread it runs on the caller's,
/// because remaining files would fill the disk.
Status FileWorkload::remove_files_within(double seconds) {
  if (!made_) return {};
  const auto remove = [this](const std::stop_token&) {
    remove_files();
    return Status();
  };
  {
    const std::lock_guard lock(removing_);
    if (!remover_.started() && !remover_.start(remove).ok()) remove_files();
  }
  if (remover_.ended_within(seconds)) return {};
  return {StatusCode::timeout, fmt::format("--io-dir {}: the test files could not be removed within {:g} s",
                                           options_.directory, seconds)};
}

void FileWorkload::remove_files() {
  if (!made_) return;
  for (const std::string& path : paths_) {
    const Status status = layer_->remove(path);
    if (status.ok()) continue;
    environment_.records.warning(fmt::format("io: a file is left behind: {}", status.what()));
    const std::lock_guard lock(mutex_);
    if (disk_failure_.empty()) disk_failure_ = status.what();
  }
  made_ = false;
}

std::string FileWorkload::undone(const FileFigures& figures) const {
  if (!disk_failure_.empty()) return disk_failure_;
  if (const Status status = thread_.failure(); !status.ok()) return status.what();
  if (finished_ && !hurried_ && figures.passes == 0)
    return fmt::format("no pass was written and verified within {:g} s", first_pass_seconds);
  return {};
}

PartReport FileWorkload::report() const {
  PartReport report;
  report.name = name();
  report.description = "files written from the device, read back and verified there";
  report.figures = {{"planned", pass_ != nullptr}, {"directory", options_.directory}, {"file_bytes", bytes_}};
  report.figures["budget_bytes"] = options_.budget ? Json(*options_.budget) : Json();
  if (!pass_) {
    note_not_run(report, "files", options_.enabled ? "--io-size or --io-budget allow no block" : "--no-io");
    return report;
  }
  const FileFigures figures = pass_->figures();
  const std::lock_guard lock(mutex_);
  put_outcome(
      report,
      figures.mismatches ? counted(figures.mismatches, "wrong word") + " read back from the files" : "",
      undone(figures));
  report.figures.update(
      {{"cycles", cycles_},
       {"passes", figures.passes},
       {"bytes_written", figures.bytes_written},
       {"bytes_read", figures.bytes_read},
       {"bytes_reread", figures.bytes_reread},
       {"write_gb_per_s",
        ratio_or_null(static_cast<double>(figures.bytes_written) * 1e-9, figures.write_seconds)},
       {"read_gb_per_s", ratio_or_null(static_cast<double>(figures.bytes_read) * 1e-9, figures.read_seconds)},
       {"direct_io", figures.direct_io},
       {"file_system", file_system_.type.empty() ? Json() : Json(file_system_.type)},
       {"mistrusted", mistrusted(file_system_, figures.stays_cached)},
       {"mismatches", figures.mismatches},
       {"wrong_blocks", by_kind(figures.wrong_blocks)}});
  if (rate_is_measured_) {
    report.load.files = static_cast<double>(figures.bytes_written) / figures.fastest.written +
                        static_cast<double>(figures.bytes_read + figures.bytes_reread) / figures.fastest.read;
    report.load.alone = {{"file_gb_per_s", figures.fastest.both * 1e-9}};
  }
  if (!mistrusted(file_system_, figures.stays_cached).is_null()) return report;
  report.work.bytes_file_verified = figures.bytes_right;
  report.shares = {{.kind = WorkKind::files,
                    .done = static_cast<double>(figures.bytes_read + figures.bytes_reread),
                    .verified = static_cast<double>(figures.bytes_judged)}};
  return report;
}

}  // namespace egt
