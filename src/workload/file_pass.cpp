#include "egt/workload/file_pass.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "egt/core/clock.hpp"
#include "egt/workload/findings.hpp"

namespace egt {

Status FilePass::prepare() {
  Device& device = environment_.device;
  auto file = open(FileAccess::create);
  if (file.status().code() == StatusCode::unsupported) {
    give_up_direct();
    file = open(FileAccess::create);
  }
  EGT_TRY(file.status());
  {
    const std::lock_guard lock(mutex_);
    figures_.direct_io = direct_;
  }
  EGT_TRY_ASSIGN(in_flight_, InFlight::create(device, StreamPriority::normal, "the file part"));
  const std::size_t chunk_bytes = std::min(bytes_, largest_chunk);
  for (Buffer& buffer : device_chunks_) {
    EGT_TRY_ASSIGN(buffer, device.allocate(chunk_bytes));
  }
  for (Buffer& buffer : pinned_chunks_) {
    EGT_TRY_ASSIGN(buffer, device.allocate_pinned(chunk_bytes));
  }
  return {};
}

Status FilePass::run(const std::stop_token& stop) {
  ++generation_;
  wrong_chunks_ = wrong_words_ = 0;
  Status status = timed(&FileFigures::write_seconds, [&] { return write_or_give_up_direct(stop); });
  if (status.ok()) status = timed(&FileFigures::read_seconds, [&] { return read(stop); });
  tell_rest_of_pass();
  if (!status.ok()) {
    // The judgements in line speak of a file that is closed by now.
    EGT_TRY(in_flight_->discard(InFlight::deadline_seconds));
    return status;
  }
  const std::lock_guard lock(mutex_);
  ++figures_.passes;
  return {};
}

Status FilePass::timed(double FileFigures::*seconds, const std::function<Status()>& work) {
  const Clock::time_point start = Clock::now();
  const Status status = work();
  const std::lock_guard lock(mutex_);
  figures_.*seconds += seconds_since(start);
  return status;
}

FileFigures FilePass::figures() const {
  const std::lock_guard lock(mutex_);
  return figures_;
}

/// Some file systems take direct I/O when the file is opened and refuse it when it is written.
Status FilePass::write_or_give_up_direct(const std::stop_token& stop) {
  const Status status = write(stop);
  if (status.code() != StatusCode::unsupported || !direct_) return status;
  EGT_TRY(in_flight_->discard(InFlight::deadline_seconds));
  give_up_direct();
  return write(stop);
}

Status FilePass::write(const std::stop_token& stop) {
  EGT_TRY_ASSIGN(const std::unique_ptr<OpenFile> file, open(FileAccess::create));
  for (std::uint64_t i = 0; i < chunks(); ++i) EGT_TRY(fill_then_write(*file, chunk(i), stop));
  EGT_TRY(in_flight_->drain(InFlight::deadline_seconds, stop));
  EGT_TRY(of_file(file->sync()));
  if (!direct_) EGT_TRY(of_file(file->drop_cache()));
  return {};
}

/// The write is the judgement of the copy: so it begins when the copy is done, with the next chunk in line.
Status FilePass::fill_then_write(OpenFile& file, const Chunk& chunk, const std::stop_token& stop) {
  EGT_TRY_ASSIGN(const std::size_t slot, in_flight_->acquire(stop));
  const WordsView words = on_device(slot, chunk);
  void* const pinned = pinned_chunks_[slot].data();
  return in_flight_->submit(
      [&](Stream& stream, Evidence*) -> Status {
        EGT_TRY(environment_.device.fill(words, pattern(chunk), stream));
        return environment_.device.copy(pinned, words.data, chunk.bytes, stream);
      },
      [this, &file, chunk, pinned, stop](const Evidence&, double) -> Status {
        if (stop.stop_requested()) return {StatusCode::stopped, "the file part was stopped"};
        EGT_TRY(of_file(file.write(pinned, chunk.bytes, chunk.offset)));
        // What the page cache holds back stays small, so that no sync takes long.
        if (!direct_) EGT_TRY(of_file(file.sync()));
        const std::lock_guard lock(mutex_);
        figures_.bytes_written += chunk.bytes;
        return {};
      },
      stop);
}

Status FilePass::read(const std::stop_token& stop) {
  EGT_TRY(spoil_buffers());
  EGT_TRY_ASSIGN(const std::unique_ptr<OpenFile> file, open(FileAccess::read));
  for (std::uint64_t i = 0; i < chunks(); ++i) EGT_TRY(read_then_verify(*file, chunk(i), stop));
  return in_flight_->drain(InFlight::deadline_seconds, stop);
}

Status FilePass::read_then_verify(OpenFile& file, const Chunk& chunk, const std::stop_token& stop) {
  EGT_TRY_ASSIGN(const std::size_t slot, in_flight_->acquire(stop));
  if (stop.stop_requested()) return {StatusCode::stopped, "the file part was stopped"};
  const WordsView words = on_device(slot, chunk);
  void* const pinned = pinned_chunks_[slot].data();
  EGT_TRY(of_file(file.read(pinned, chunk.bytes, chunk.offset)));
  {
    const std::lock_guard lock(mutex_);
    figures_.bytes_read += chunk.bytes;
  }
  return in_flight_->submit(
      [&](Stream& stream, Evidence* evidence) -> Status {
        EGT_TRY(environment_.device.copy(words.data, pinned, chunk.bytes, stream));
        return environment_.device.verify(words, pattern(chunk), &evidence->mismatches, stream);
      },
      [this, chunk](const Evidence& evidence, double) {
        judge(chunk, evidence.mismatches);
        return Status();
      },
      stop);
}

/// The buffers still hold what was written last: a read or a copy that does nothing must not pass.
Status FilePass::spoil_buffers() {
  for (std::size_t slot = 0; slot < InFlight::slots; ++slot) {
    std::memset(pinned_chunks_[slot].data(), 0, pinned_chunks_[slot].bytes());
    EGT_TRY(environment_.device.set_zero(device_chunks_[slot].data(), device_chunks_[slot].bytes(),
                                         in_flight_->stream()));
  }
  return {};
}

/// The first chunk of a pass that is wrong is told at once, the others in one line at the end of the pass.
void FilePass::judge(const Chunk& chunk, const Mismatches& found) {
  {
    const std::lock_guard lock(mutex_);
    figures_.mismatches += found.count;
    figures_.bytes_right += chunk.bytes - found.count * sizeof(std::uint32_t);
  }
  if (found.count == 0) return;
  wrong_words_ += found.count;
  if (++wrong_chunks_ > 1) return;
  const Mismatches::Sample sample = lowest_sample(found);
  Fault fault = fault_of(environment_, "file", "file pattern", "io", step_);
  fault.where = fmt::format("{}, pass {}", path_, generation_);
  fault.offset = chunk.offset + sample.index * sizeof(std::uint32_t);
  describe_mismatch(fault, found, sample);
  environment_.records.emit(fault);
}

void FilePass::tell_rest_of_pass() {
  if (wrong_chunks_ > 1)
    environment_.records.warning(
        fmt::format("{}, pass {}: {} words in {} chunks of {} bytes were read back wrong", path_, generation_,
                    wrong_words_, wrong_chunks_, std::min(bytes_, largest_chunk)));
}

Result<std::unique_ptr<OpenFile>> FilePass::open(FileAccess access) {
  auto file = layer_.open(path_, access, direct_);
  if (!file.ok()) return of_file(file.status());
  return file;
}

/// Remembers that it was the file's side that failed.
Status FilePass::of_file(Status status) {
  const bool direct_refused = direct_ && status.code() == StatusCode::unsupported;
  if (!status.ok() && !direct_refused) file_failed_ = true;
  return status;
}

void FilePass::give_up_direct() {
  direct_ = false;
  environment_.records.notice(fmt::format(
      "{}: direct I/O is not available there; the file goes through the page cache, which is asked "
      "to drop it before it is read back",
      path_));
  const std::lock_guard lock(mutex_);
  figures_.direct_io = false;
}

FilePass::Chunk FilePass::chunk(std::uint64_t index) const {
  const std::uint64_t offset = index * largest_chunk;
  return {index, offset, std::min(largest_chunk, bytes_ - offset)};
}

std::uint64_t FilePass::chunks() const {
  return (bytes_ + largest_chunk - 1) / largest_chunk;
}

WordsView FilePass::on_device(std::size_t slot, const Chunk& chunk) const {
  return {device_chunks_[slot].as<std::uint32_t>(), chunk.bytes / sizeof(std::uint32_t)};
}

Pattern FilePass::pattern(const Chunk& chunk) const {
  const bool inverse = (generation_ + chunk.index) % 2 == 1;
  return {.kind = inverse ? PatternKind::random_inverse : PatternKind::random,
          .seed = pattern_seed(environment_, PatternPurpose::file, chunk.index, generation_)};
}

}  // namespace egt
