#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>

#include "egt/device/device.hpp"
#include "egt/workload/file_layer.hpp"
#include "egt/workload/in_flight.hpp"
#include "egt/workload/workload.hpp"

namespace egt {

/// What the passes did so far; seconds of the wall clock.
struct FileFigures {
  std::uint64_t passes = 0;  ///< written, read back and verified as a whole
  std::uint64_t bytes_written = 0;
  std::uint64_t bytes_read = 0;
  std::uint64_t bytes_right = 0;  ///< read back as they were written
  double write_seconds = 0;
  double read_seconds = 0;
  std::uint64_t mismatches = 0;  ///< words that were not as expected
  bool direct_io = false;
};

/// Writes one file whole from the device and reads it back to the device, where it is verified; chunk by
/// chunk, so that the device makes or checks one chunk while the disk has another. The pattern of a chunk is
/// made of the file's rank, the pass and the chunk, so stale and misplaced data show. Used by one thread;
/// `figures` and `set_step` are safe from any other.
class FilePass {
 public:
  static constexpr std::uint64_t block_bytes = 4096;        ///< a file is whole blocks
  static constexpr std::uint64_t largest_chunk = 16 << 20;  ///< bytes

  /// `bytes`: whole blocks, at least one.
  FilePass(Environment& environment, FileLayer& layer, std::string path, std::uint64_t bytes)
      : environment_(environment), layer_(layer), path_(std::move(path)), bytes_(bytes) {}

  /// Makes the file, empty, and finds out whether direct I/O is to be had; takes the buffers.
  Status prepare();
  /// One pass. Where it fails, `file_failed` tells whose fault it was.
  Status run(const std::stop_token& stop);
  /// Was it the file or its disk, rather than the device?
  bool file_failed() const { return file_failed_; }

  /// For the records: the step that was enqueued last.
  void set_step(std::int64_t step) { step_ = step; }
  FileFigures figures() const;

 private:
  struct Chunk {
    std::uint64_t index = 0;
    std::uint64_t offset = 0;  ///< bytes
    std::uint64_t bytes = 0;
  };

  Status timed(double FileFigures::*seconds, const std::function<Status()>& work);
  Status write(const std::stop_token& stop);
  Status write_or_give_up_direct(const std::stop_token& stop);
  Status fill_then_write(OpenFile& file, const Chunk& chunk, const std::stop_token& stop);
  Status read(const std::stop_token& stop);
  Status read_then_verify(OpenFile& file, const Chunk& chunk, const std::stop_token& stop);
  Status spoil_buffers();
  void judge(const Chunk& chunk, const Mismatches& found);
  void tell_rest_of_pass();

  Result<std::unique_ptr<OpenFile>> open(FileAccess access);
  Status of_file(Status status);
  void give_up_direct();
  Chunk chunk(std::uint64_t index) const;
  std::uint64_t chunks() const;
  WordsView on_device(std::size_t slot, const Chunk& chunk) const;
  Pattern pattern(const Chunk& chunk) const;

  Environment& environment_;
  FileLayer& layer_;
  const std::string path_;
  const std::uint64_t bytes_;
  bool direct_ = true;
  bool file_failed_ = false;
  std::uint64_t generation_ = 0;    ///< passes begun
  std::uint64_t wrong_chunks_ = 0;  ///< of this pass
  std::uint64_t wrong_words_ = 0;   ///< of this pass
  std::atomic<std::int64_t> step_{-1};
  mutable std::mutex mutex_;
  FileFigures figures_;
  std::array<Buffer, InFlight::slots> device_chunks_;
  std::array<Buffer, InFlight::slots> pinned_chunks_;
  std::unique_ptr<InFlight> in_flight_;  ///< last: its stream ends before the buffers go
};

}  // namespace egt
