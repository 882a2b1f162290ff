#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "egt/core/clock.hpp"
#include "egt/core/units.hpp"
#include "workload/ceilings/ceiling_job.hpp"
#include "workload/common/findings.hpp"
#include "workload/file/disk_reserve.hpp"
#include "workload/file/file_claim.hpp"
#include "workload/file/file_pass.hpp"

namespace egt {
namespace {

constexpr double burst_seconds = 0.1;  ///< write time per file

/// Compares the file part's cycle (write from the device, read back, verify on the device) with plain writes
/// and reads. The plain calls have the same chunk size and use another file of the same directory.
class FileCeiling final : public CeilingJob {
 public:
  FileCeiling(const CeilingWorld& world)
      : world_(world),
        layer_(make_posix_file_layer()),
        paths_(test_file_paths<FilePass::files + 1>(world.file.directory, world.environment.place)) {}
  ~FileCeiling() override;
  Status open();

  Result<CeilingBurst> ours(std::int64_t) override;
  Result<CeilingBurst> limit(std::int64_t) override;
  Result<JobReport> check() override;
  Json facts() const override {
    return {{"direct_io", pass_->figures().direct_io},
            {"directory", world_.file.directory},
            {"file_system", file_system_.type.empty() ? Json() : Json(file_system_.type)},
            {"mistrusted", mistrusted(file_system_, pass_->figures().stays_cached)}};
  }
  /// The job has no peers to wait for.
  Status give_up(double) override { return {}; }

 private:
  Result<std::uint64_t> file_bytes() const;
  Status write_raw(bool direct, std::uint64_t& bytes);
  Status read_raw(bool direct, std::uint64_t bytes);
  const std::string& raw_path() const { return paths_.back(); }

  const CeilingWorld& world_;
  const std::unique_ptr<FileLayer> layer_;
  const std::array<std::string, FilePass::files + 1> paths_;  ///< the last one is for plain writes and reads
  FileSystem file_system_;
  std::uint64_t bytes_ = 0;  ///< size limit of the plainly written file
  Buffer chunk_;
  std::unique_ptr<FileClaim> claim_;
  std::unique_ptr<FilePass> pass_;
};

FileCeiling::~FileCeiling() {
  pass_.reset();
  for (const std::string& path : paths_)
    if (const Status removed = layer_->remove(path); !removed.ok())
      world_.environment.records.warning(fmt::format("bench: a file is left behind: {}", removed.what()));
}

/// Size of each file: those of FilePass and the plainly written one.
Result<std::uint64_t> FileCeiling::file_bytes() const {
  EGT_TRY_ASSIGN(const DiskSpace space, layer_->space(world_.file.directory));
  const std::uint64_t most =
      max_file_bytes(space, world_.environment.place.local_size, FilePass::largest_chunk);
  const std::uint64_t bytes = std::min(world_.file.size, most) / paths_.size();
  if (bytes < FilePass::block_bytes)
    return Status(
        StatusCode::no_space,
        fmt::format("--io-dir {}: {} are free there, of which {} must stay free; name another "
                    "folder, or use --no-io",
                    world_.file.directory, format_bytes(space.free_bytes), format_bytes(reserve_of(space))));
  return bytes / FilePass::block_bytes * FilePass::block_bytes;
}

Status FileCeiling::open() {
  Environment& environment = world_.environment;
  Device& device = environment.device;
  static_cast<void>(layer_->remove_leftovers(world_.file.directory, environment.place.hostname));
  EGT_TRY_ASSIGN(bytes_, file_bytes());
  file_system_ = layer_->file_system(world_.file.directory);
  pass_ = std::make_unique<FilePass>(environment, *layer_,
                                     FilePass::Plan{.paths = {paths_[0], paths_[1]},
                                                    .directory = world_.file.directory,
                                                    .bytes = FilePass::files * bytes_});
  EGT_TRY(pass_->prepare());
  EGT_TRY_ASSIGN(claim_, layer_->claim(raw_path()));
  const std::size_t chunk = std::min(bytes_, FilePass::largest_chunk);
  EGT_TRY_ASSIGN(chunk_, device.allocate_pinned(chunk));
  EGT_TRY_ASSIGN(const Buffer random, device.allocate(chunk));
  EGT_TRY_ASSIGN(const auto stream,
                 device.create_stream(StreamPriority::normal, StreamUse::without_products));
  EGT_TRY(device.fill({random.as<std::uint32_t>(), chunk / sizeof(std::uint32_t)},
                      {.kind = PatternKind::random, .seed = environment.seed}, *stream));
  EGT_TRY(device.copy(chunk_.data(), random.data(), chunk, *stream));
  return device.synchronize(*stream, ready_seconds);
}

Result<CeilingBurst> FileCeiling::ours(std::int64_t) {
  const Clock::time_point start = Clock::now();
  const auto rates = pass_->measure_rates_alone(burst_seconds);
  world_.environment.board.line("file").rest();
  EGT_TRY(rates.status());
  return CeilingBurst{seconds_since(start) * 1e3, {rates.value().written, rates.value().read}};
}

Result<CeilingBurst> FileCeiling::limit(std::int64_t) {
  const bool direct = pass_->figures().direct_io;
  std::uint64_t bytes = 0;
  const Clock::time_point start = Clock::now();
  EGT_TRY(write_raw(direct, bytes));
  const double write_seconds = seconds_since(start);
  EGT_TRY(read_raw(direct, bytes));
  const double seconds = seconds_since(start);
  const auto size = static_cast<double>(bytes);
  return CeilingBurst{seconds * 1e3, {size / write_seconds, size / (seconds - write_seconds)}};
}

/// Syncs to disk like FilePass, so that the page cache holds little dirty data.
Status FileCeiling::write_raw(bool direct, std::uint64_t& bytes) {
  EGT_TRY_ASSIGN(const auto file, layer_->open(raw_path(), FileAccess::rewrite, direct));
  const Clock::time_point start = Clock::now();
  while (bytes < bytes_ && (bytes == 0 || seconds_since(start) < burst_seconds)) {
    const std::size_t size = std::min<std::uint64_t>(chunk_.bytes(), bytes_ - bytes);
    EGT_TRY(file->write(chunk_.data(), size, bytes));
    if (!direct) EGT_TRY(file->sync());
    bytes += size;
  }
  return file->sync();
}

Status FileCeiling::read_raw(bool direct, std::uint64_t bytes) {
  EGT_TRY_ASSIGN(const auto file, layer_->open(raw_path(), FileAccess::read, direct));
  EGT_TRY(file->drop_cache().status());
  for (std::uint64_t done = 0; done < bytes;) {
    const std::size_t size = std::min<std::uint64_t>(chunk_.bytes(), bytes - done);
    EGT_TRY(file->read(chunk_.data(), size, done));
    done += size;
  }
  return {};
}

Result<JobReport> FileCeiling::check() {
  const FileFigures figures = pass_->figures();
  JobReport report;
  if (mistrusted(file_system_, figures.stays_cached).is_null())
    report.work.bytes_file_verified = figures.bytes_measured;
  if (figures.mismatches > 0)
    report.failure = counted(figures.mismatches, "wrong word") + " read back from the files";
  return report;
}

}  // namespace

Result<std::unique_ptr<CeilingJob>> make_file_ceiling(const CeilingWorld& world) {
  auto made = std::make_unique<FileCeiling>(world);
  EGT_TRY(made->open());
  return std::unique_ptr<CeilingJob>(std::move(made));
}

}  // namespace egt
