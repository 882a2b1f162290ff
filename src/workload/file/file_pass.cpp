#include "workload/file/file_pass.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <iterator>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "egt/core/clock.hpp"
#include "egt/core/units.hpp"
#include "workload/common/findings.hpp"
#include "workload/file/disk_reserve.hpp"

namespace egt {
namespace {

constexpr std::uint64_t reread_divisor = 8;  ///< one in this many chunks is read again
/// Time limit for one chunk before the disk counts as stuck. The kernel uses the same limit
/// (kernel.hung_task_timeout_secs).
constexpr double patience_seconds = 120;

/// True for errors that a block device or file system returns for its own failure (the kernel's
/// block/blk-core.c), as opposed to changes by users.
bool is_disk_error(long error) {
  constexpr long errors[] = {EIO, ENODATA, EREMOTEIO, EILSEQ, ENXIO, ENODEV, EUCLEAN, EBADMSG};
  return std::find(std::begin(errors), std::end(errors), error) != std::end(errors);
}

/// Differs for every run, even with equal seeds, so that data of an earlier run does not pass verification.
std::uint64_t identity_of_run(std::uint64_t seed) {
  const auto now = std::chrono::system_clock::now().time_since_epoch().count();
  return mix64(seed ^ mix64(static_cast<std::uint64_t>(now)));
}

}  // namespace

FilePass::FilePass(Environment& environment, FileLayer& layer, const Plan& plan)
    : environment_(environment),
      layer_(layer),
      line_(environment.board.line("file")),
      directory_(plan.directory),
      chunk_bytes_(plan.chunk_bytes),
      run_(identity_of_run(environment.seed)) {
  for (std::uint32_t i = 0; i < files; ++i) {
    File file;
    file.path = plan.paths[i];
    file.index = i;
    file.bytes = (blocks_in(plan.bytes) + files - 1 - i) / files * block_bytes;
    if (file.bytes > 0) files_.push_back(std::move(file));
  }
}

Status FilePass::prepare() {
  Device& device = environment_.device;
  for (File& file : files_) {
    begin("create", file.path);
    auto claim = layer_.claim(file.path);
    EGT_TRY(of_file(claim.status()));
    file.claim = std::move(claim.value());
    auto made = open(file, FileAccess::create);
    if (made.status().code() == StatusCode::unsupported) {
      abandon_direct(file);
      made = open(file, FileAccess::create);
    }
    EGT_TRY(made.status());
  }
  {
    const std::lock_guard lock(mutex_);
    figures_.direct_io = direct_;
  }
  EGT_TRY_ASSIGN(in_flight_, OperationPipeline::create(device, StreamPriority::normal,
                                                       StreamUse::without_products, "the file part"));
  line_.rest();
  const std::size_t chunk_bytes = std::min(files_.front().bytes, chunk_bytes_);
  for (Buffer& buffer : device_chunks_) {
    EGT_TRY_ASSIGN(buffer, device.allocate(chunk_bytes));
  }
  for (Buffer& buffer : pinned_chunks_) {
    EGT_TRY_ASSIGN(buffer, device.allocate_pinned(chunk_bytes));
  }
  return {};
}

Status FilePass::run(const std::stop_token& stop) {
  ++pass_;
  Status status;
  for (File& file : files_)
    if (status.ok()) status = renew(file, stop);
  if (!status.ok()) {
    // Discard the enqueued judgements, because they refer to a closed file.
    EGT_TRY(in_flight_->discard(OperationPipeline::deadline_seconds));
    return status;
  }
  count(&FileFigures::passes, 1);
  return {};
}

Result<FileRates> FilePass::measure_rates_alone(double seconds) {
  const bool is_new = files_.front().generation == 0;
  EGT_TRY_ASSIGN(const FileRates first, measure_once(seconds));
  return is_new ? measure_once(seconds) : first;
}

Result<FileRates> FilePass::measure_once(double seconds) {
  ++pass_;
  write_until_ =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  const Status status = renew(files_.front(), {});
  write_until_.reset();
  if (!status.ok()) EGT_TRY(in_flight_->discard(OperationPipeline::deadline_seconds));
  const std::lock_guard lock(mutex_);
  const FileRates rates = rates_since({});
  figures_.bytes_measured += std::exchange(figures_.bytes_written, 0);
  figures_.bytes_read = figures_.bytes_right = figures_.bytes_reread = figures_.bytes_judged = 0;
  figures_.write_seconds = figures_.read_seconds = 0;
  if (!status.ok()) return status;
  return rates;
}

/// Rates since the metrics were `before`; call with the lock held.
FileRates FilePass::rates_since(const FileFigures& before) const {
  const auto written = static_cast<double>(figures_.bytes_written - before.bytes_written),
             read = static_cast<double>(figures_.bytes_read - before.bytes_read);
  const double write_seconds = figures_.write_seconds - before.write_seconds,
               read_seconds = figures_.read_seconds - before.read_seconds;
  return {written / write_seconds, read / read_seconds, (written + read) / (write_seconds + read_seconds)};
}

Status FilePass::renew(File& file, const std::stop_token& stop) {
  const FileFigures before = figures();
  EGT_TRY(rewrite(file, stop));
  const std::lock_guard lock(mutex_);
  const FileRates rates = rates_since(before);
  figures_.fastest.written = std::max(figures_.fastest.written, rates.written);
  figures_.fastest.read = std::max(figures_.fastest.read, rates.read);
  figures_.fastest.both = std::max(figures_.fastest.both, rates.both);
  return {};
}

Status FilePass::rewrite(File& file, const std::stop_token& stop) {
  if (file.generation > 0) {
    EGT_TRY(spoil_buffers());
    EGT_TRY(verify(file, Reading::again, stop));
  }
  const Status written =
      timed(&FileFigures::write_seconds, [&] { return write_or_abandon_direct(file, stop); });
  if (written.code() == StatusCode::no_space && file_failed_)
    static_cast<void>(verify_what_was_written(file, stop));  // the write error is reported
  EGT_TRY(written);
  EGT_TRY(spoil_buffers());
  return timed(&FileFigures::read_seconds, [&] { return verify(file, Reading::back, stop); });
}

/// Verifies the data that was written before the disk was full.
Status FilePass::verify_what_was_written(File& file, const std::stop_token& stop) {
  EGT_TRY(in_flight_->discard(OperationPipeline::deadline_seconds));
  EGT_TRY(spoil_buffers());
  {
    EGT_TRY_ASSIGN(const std::unique_ptr<OpenFile> opened, open(file, FileAccess::rewrite));
    EGT_TRY(of_file(opened->sync()));  // else data would be read from the page cache
  }
  return timed(&FileFigures::read_seconds, [&] { return verify(file, Reading::back, stop); });
}

Status FilePass::timed(double FileFigures::*seconds, const std::function<Status()>& work) {
  const Clock::time_point start = Clock::now();
  const Status status = work();
  const std::lock_guard lock(mutex_);
  figures_.*seconds += seconds_since(start);
  return status;
}

void FilePass::count(std::uint64_t FileFigures::*figure, std::uint64_t amount) {
  const std::lock_guard lock(mutex_);
  figures_.*figure += amount;
}

FileFigures FilePass::figures() const {
  const std::lock_guard lock(mutex_);
  return figures_;
}

/// Some file systems accept direct I/O at open and refuse it at the first write.
Status FilePass::write_or_abandon_direct(File& file, const std::stop_token& stop) {
  const Status status = write(file, stop);
  if (status.code() != StatusCode::unsupported || !direct_) return status;
  EGT_TRY(in_flight_->discard(OperationPipeline::deadline_seconds));
  abandon_direct(file);
  return write(file, stop);
}

Status FilePass::write(File& file, const std::stop_token& stop) {
  if (stop.stop_requested()) return {StatusCode::stopped, "the file part was stopped"};
  file.generation = pass_;
  file.written = 0;
  file.reported.assign(blocks_in(file.bytes), false);
  file.exchanged_with.reset();
  EGT_TRY_ASSIGN(const std::unique_ptr<OpenFile> opened, open(file, FileAccess::rewrite));
  const Result<std::uint64_t> size = opened->size();
  EGT_TRY(of_file(size.status()));
  grown_to_ = size.value();
  for (std::uint64_t i = 0; i < chunks(file); ++i) {
    const Chunk next = chunk(file, i);
    const bool grows = size.value() > 0 && next.offset >= size.value();
    if (i > 0 && write_until_ && (grows || Clock::now() >= *write_until_)) break;
    EGT_TRY(fill_then_write(*opened, next, stop));
  }
  EGT_TRY(in_flight_->drain(OperationPipeline::deadline_seconds, stop));
  begin("sync", file.path);
  return of_file(opened->sync());
}

/// The copy's judge callback writes the chunk, after the copy and while the next chunk is enqueued.
Status FilePass::fill_then_write(OpenFile& open, const Chunk& chunk, const std::stop_token& stop) {
  begin("wait for the device");
  EGT_TRY_ASSIGN(const std::size_t slot, in_flight_->acquire(stop));
  const WordsView words = on_device(slot, chunk);
  void* const pinned = pinned_chunks_[slot].data();
  return in_flight_->submit(
      [&](Stream& stream, Evidence*) -> Status {
        const Pattern payload = pattern(chunk.file->index, chunk.index, chunk.file->generation);
        EGT_TRY(environment_.device.fill(words, payload, stream));
        return environment_.device.copy(pinned, words.data, chunk.bytes, stream);
      },
      [this, &open, chunk, slot, pinned, stop](const Evidence&, double) -> Status {
        if (stop.stop_requested()) return {StatusCode::stopped, "the file part was stopped"};
        stamp_blocks(slot, chunk);
        return write_chunk(open, chunk, pinned);
      },
      stop);
}

Status FilePass::write_chunk(OpenFile& open, const Chunk& chunk, const void* data) {
  const std::uint64_t end = chunk.offset + chunk.bytes;
  begin("write", chunk.file->path);
  EGT_TRY(check_room(end - std::min(end, grown_to_)));
  EGT_TRY(of_file(open.write(data, chunk.bytes, chunk.offset)));
  // Keeps the dirty page cache small, so that every sync is short.
  if (!direct_) EGT_TRY(of_file(open.sync()));
  count(&FileFigures::bytes_written, chunk.bytes);
  chunk.file->written = end;
  grown_to_ = std::max(grown_to_, end);
  return {};
}

/// Checks that the disk reserve remains free if a file grows by `growth` bytes. Counts the same growth for
/// every rank on the node, since they may share the file system and write first.
Status FilePass::check_room(std::uint64_t growth) {
  const Result<DiskSpace> space = layer_.space(directory_);
  EGT_TRY(of_file(space.status()));
  const std::uint64_t growth_of_host = growth * static_cast<std::uint64_t>(environment_.place.local_size);
  const std::uint64_t reserve = reserve_of(space.value());
  if (space.value().free_bytes >= reserve + growth_of_host) return {};
  return of_file({StatusCode::no_space,
                  fmt::format("{}: the disk is full up to its reserve: {} are free, of which {} must stay",
                              directory_, format_bytes(space.value().free_bytes), format_bytes(reserve))});
}

/// What was read is judged and reported even if the reading was stopped or failed.
Status FilePass::verify(File& file, Reading reading, const std::stop_token& stop) {
  Status status = read(file, reading, stop);
  if (!status.ok() && status.code() != StatusCode::timeout) {
    const Status judged = in_flight_->drain(OperationPipeline::deadline_seconds);
    if (status.code() == StatusCode::stopped && !judged.ok()) status = judged;
  }
  report(file, reading);
  return status;
}

Status FilePass::read(File& file, Reading reading, const std::stop_token& stop) {
  EGT_TRY_ASSIGN(const std::unique_ptr<OpenFile> opened, open(file, FileAccess::read));
  const Result<bool> dropped = opened->drop_cache();  // earlier reads may have filled the cache
  EGT_TRY(of_file(dropped.status()));
  if (!dropped.value()) {
    const std::lock_guard lock(mutex_);
    figures_.stays_cached = true;
  }
  for (const std::uint64_t index : chunks_to_read(file, reading)) {
    Chunk there = chunk(file, index);
    there.bytes = std::min(there.bytes, file.written - std::min(file.written, there.offset));
    EGT_TRY(read_then_verify(*opened, there, reading, stop));
  }
  return in_flight_->drain(OperationPipeline::deadline_seconds, stop);
}

Status FilePass::read_then_verify(OpenFile& open, Chunk chunk, Reading reading, const std::stop_token& stop) {
  begin("wait for the device");
  EGT_TRY_ASSIGN(const std::size_t slot, in_flight_->acquire(stop));
  if (stop.stop_requested()) return {StatusCode::stopped, "the file part was stopped"};
  void* const pinned = pinned_chunks_[slot].data();
  EGT_TRY(read_chunk(open, chunk, pinned));
  if (chunk.bytes == 0) return {};
  count(reading == Reading::back ? &FileFigures::bytes_read : &FileFigures::bytes_reread, chunk.bytes);
  check_identities(slot, chunk);
  const WordsView words = on_device(slot, chunk);
  return in_flight_->submit(
      [&](Stream& stream, Evidence* evidence) -> Status {
        const Pattern payload = pattern(chunk.file->index, chunk.index, chunk.file->generation);
        EGT_TRY(environment_.device.copy(words.data, pinned, chunk.bytes, stream));
        return environment_.device.verify(words, payload, &evidence->mismatches, stream);
      },
      [this, slot, chunk, reading](const Evidence& evidence, double) {
        judge(slot, chunk, reading, evidence.mismatches);
        return Status();
      },
      stop);
}

/// Reads the existing part of the chunk. The file may be truncated at any time, even between check and read.
Status FilePass::read_chunk(OpenFile& open, Chunk& chunk, void* data) {
  begin("read", chunk.file->path);
  for (;;) {
    EGT_TRY(leave_out_missing(open, chunk));
    if (chunk.bytes == 0) return {};
    const Status status = open.read(data, chunk.bytes, chunk.offset);
    const std::uint64_t wanted = chunk.bytes;
    if (!status.ok()) EGT_TRY(leave_out_missing(open, chunk));
    if (status.ok() || chunk.bytes == wanted) return of_file(status);
  }
}

/// Limits the chunk to whole blocks that still exist.
Status FilePass::leave_out_missing(OpenFile& open, Chunk& chunk) {
  const Result<std::uint64_t> size = open.size();
  EGT_TRY(of_file(size.status()));
  note_missing(*chunk.file, size.value());
  const std::uint64_t end = size.value() / block_bytes * block_bytes;
  chunk.bytes = std::min(chunk.bytes, end - std::min(end, chunk.offset));
  return {};
}

/// Call before each reading. The buffers still hold the last written data, so a read or copy that does
/// nothing would pass. It is not timed: it would be half the time of a short measurement.
Status FilePass::spoil_buffers() {
  for (std::size_t slot = 0; slot < OperationPipeline::slots; ++slot) {
    std::memset(pinned_chunks_[slot].data(), 0, pinned_chunks_[slot].bytes());
    EGT_TRY(environment_.device.set_zero(device_chunks_[slot].data(), device_chunks_[slot].bytes(),
                                         in_flight_->stream()));
  }
  return {};
}

void FilePass::stamp_blocks(std::size_t slot, const Chunk& chunk) {
  for (std::uint64_t block = 0; block < blocks_in(chunk.bytes); ++block)
    stamp(pinned_block(slot, block), identity(chunk, block));
}

Result<std::unique_ptr<OpenFile>> FilePass::open(const File& file, FileAccess access) {
  begin("open", file.path);
  EGT_TRY(of_file(file.claim->check()));
  auto opened = layer_.open(file.path, access, direct_);
  if (!opened.ok()) return of_file(opened.status());
  return opened;
}

/// Passes the status on. An error sets file_failed_: the file or its disk failed, not the device.
Status FilePass::of_file(Status status) {
  const bool direct_refused = direct_ && status.code() == StatusCode::unsupported;
  if (status.ok() || direct_refused) return status;
  file_failed_ = true;
  if (is_disk_error(status.native())) report_disk_error(status);
  return status;
}

/// Reports a failed read or write, as opposed to wrong data.
void FilePass::report_disk_error(const Status& status) {
  Fault fault = fault_of(environment_, "file-error", "system call", "io", step_);
  fault.where = status.what();
  environment_.records.emit(fault);
}

/// Publishes the current operation on the progress board, so that it is known where a stuck thread hangs.
void FilePass::begin(const char* phase) {
  line_.begin(phase, step_, patience_seconds);
}

void FilePass::begin(const char* operation, const std::string& path) {
  line_.begin_file_operation(operation, path, step_, patience_seconds);
}

void FilePass::abandon_direct(const File& file) {
  direct_ = false;
  environment_.records.notice(fmt::format(
      "{}: direct I/O is not available there; the file goes through the page cache, which is asked "
      "to drop it before it is read back",
      file.path));
  const std::lock_guard lock(mutex_);
  figures_.direct_io = false;
}

FilePass::Chunk FilePass::chunk(File& file, std::uint64_t index) const {
  const std::uint64_t offset = index * chunk_bytes_;
  return {&file, index, offset, std::min(chunk_bytes_, file.bytes - offset)};
}

std::uint64_t FilePass::chunks(const File& file) const {
  return (file.bytes + chunk_bytes_ - 1) / chunk_bytes_;
}

/// Indices of all chunks, or of a random selection that may contain duplicates.
std::vector<std::uint64_t> FilePass::chunks_to_read(const File& file, Reading reading) const {
  const std::uint64_t all = chunks(file);
  std::vector<std::uint64_t> chosen(reading == Reading::back ? all
                                                             : (all + reread_divisor - 1) / reread_divisor);
  std::iota(chosen.begin(), chosen.end(), std::uint64_t{0});
  if (reading == Reading::back) return chosen;
  for (std::uint64_t& index : chosen) index = mix64(run_ ^ mix64(std::uint64_t{pass_} << 32 | index)) % all;
  return chosen;
}

std::uint32_t* FilePass::pinned_block(std::size_t slot, std::uint64_t block) const {
  return pinned_chunks_[slot].as<std::uint32_t>() + block * file_block_words;
}

WordsView FilePass::on_device(std::size_t slot, const Chunk& chunk) const {
  return {device_chunks_[slot].as<std::uint32_t>(), chunk.bytes / sizeof(std::uint32_t)};
}

Pattern FilePass::pattern(std::uint32_t file, std::uint64_t chunk, std::uint32_t generation) const {
  const bool inverse = (generation + chunk) % 2 == 1;
  const std::uint64_t place = std::uint64_t{file} << 32 | chunk;
  return {.kind = inverse ? PatternKind::random_inverse : PatternKind::random,
          .seed = pattern_seed(environment_, PatternPurpose::file, place, generation)};
}

BlockIdentity FilePass::identity(const Chunk& chunk, std::uint64_t block) const {
  return {.run = run_,
          .offset = chunk.offset + block * block_bytes,
          .generation = chunk.file->generation,
          .rank = static_cast<std::uint32_t>(environment_.place.rank),
          .file = chunk.file->index};
}

FileBlock FilePass::make_block(const BlockIdentity& of) const {
  const PatternFunction payload(pattern(of.file, of.offset / chunk_bytes_, of.generation));
  const std::uint64_t first_word = of.offset % chunk_bytes_ / sizeof(std::uint32_t);
  FileBlock block;
  for (std::size_t i = 0; i < block.size(); ++i) block[i] = payload(first_word + i);
  stamp(block.data(), of);
  return block;
}

}  // namespace egt
