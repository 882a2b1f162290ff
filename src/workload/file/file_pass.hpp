#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "egt/core/clock.hpp"
#include "egt/device/device.hpp"
#include "egt/workload/workload.hpp"
#include "workload/common/operation_pipeline.hpp"
#include "workload/file/file_block.hpp"
#include "workload/file/file_incidents.hpp"
#include "workload/file/file_layer.hpp"

namespace egt {

/// Throughput in bytes per second.
struct FileRates {
  double written = 0;
  double read = 0;
  double both = 0;  ///< combined: all bytes over the sum of both times
};

/// Totals of the passes so far; wall-clock seconds.
struct FileFigures {
  std::uint64_t passes = 0;  ///< written, read back and verified completely
  std::uint64_t bytes_written = 0;
  std::uint64_t bytes_read = 0;      ///< read back after the write
  std::uint64_t bytes_right = 0;     ///< of those: correct
  std::uint64_t bytes_reread = 0;    ///< read again later, before the next rewrite
  std::uint64_t bytes_judged = 0;    ///< bytes read or reread that were compared
  std::uint64_t bytes_measured = 0;  ///< written before the first pass
  double write_seconds = 0;
  double read_seconds = 0;
  std::uint64_t mismatches = 0;                                ///< number of wrong words
  std::array<std::uint64_t, file_fault_kinds> wrong_blocks{};  ///< by FileFault
  bool direct_io = false;
  bool stays_cached = false;  ///< served from memory when read back
  /// Highest rates of one file so far, including `measure_rates_alone`.
  FileRates fastest;
};

/// Writes a rank's files from the device and reads them back to the device, which verifies their payload.
/// Chunks are pipelined, so that the device generates or verifies one chunk while the disk transfers another.
/// The host writes the blocks' identities into the data. After reading, it compares the identities bit for
/// bit and restores the pattern's own words, so that the device verifies the plain pattern. So every word is
/// compared, and corruption on the way to the device is detected too.
///
/// The two files are overwritten in place alternately, so that a lost write leaves older data. The expected
/// rewrite number of a file is kept only here. Before a rewrite, random chunks are read again. This detects
/// corruption that happened after the first verification, while the other file was written and read. One
/// thread; only `figures` and `set_step` are thread-safe.
///
/// Errors: disk errors and a deleted or replaced file end the pass. A full disk (including its reserve, see
/// disk_reserve.hpp) ends it only after the data written so far was verified. An error of the block device or
/// file system is also a fault. A truncated file is a fault, reported once, and the pass continues.
class FilePass {
 public:
  static constexpr std::uint64_t block_bytes = file_block_bytes;  ///< files consist of whole blocks
  static constexpr std::uint64_t largest_chunk = 16 << 20;        ///< bytes
  static constexpr std::size_t files = 2;

  struct Plan {
    std::array<std::string, files> paths;
    std::string directory = ".";                ///< of all files
    std::uint64_t bytes = block_bytes;          ///< of all files together: whole blocks, at least one
    std::uint64_t chunk_bytes = largest_chunk;  ///< whole blocks
  };

  FilePass(Environment& environment, FileLayer& layer, const Plan& plan);

  /// Creates the empty files, detects whether direct I/O works, and allocates the buffers.
  Status prepare();
  /// Runs one pass over all files. After a failure, `file_failed` shows its origin.
  Status run(const std::stop_token& stop);
  /// Measures standalone rates before the first pass: writes the start of a file for `seconds`, reads it back
  /// and verifies it. New bytes are written twice and only the second write counts, because the first one
  /// allocates disk space, which passes do not. May be called again. Only faults, `bytes_measured` and
  /// `fastest` enter the metrics.
  Result<FileRates> measure_rates_alone(double seconds);
  /// True if the file or its disk failed, not the device.
  bool file_failed() const { return file_failed_; }

  /// Last enqueued step, for the records.
  void set_step(std::int64_t step) { step_ = step; }
  FileFigures figures() const;

 private:
  struct File {
    std::string path;
    std::uint32_t index = 0;
    std::uint64_t bytes = 0;
    std::unique_ptr<FileClaim> claim;
    std::uint32_t generation = 0;                 ///< pass that wrote all its blocks; 0: none
    std::uint64_t written = 0;                    ///< bytes written in this rewrite, from the start
    std::vector<bool> reported;                   ///< blocks of this rewrite already known to be wrong
    std::optional<std::uint32_t> exchanged_with;  ///< a file found to hold this file's blocks
  };
  struct Chunk {
    File* file = nullptr;
    std::uint64_t index = 0;
    std::uint64_t offset = 0;  ///< bytes
    std::uint64_t bytes = 0;
  };
  enum class Reading { back, again };

  Status timed(double FileFigures::*seconds, const std::function<Status()>& work);
  void count(std::uint64_t FileFigures::*figure, std::uint64_t amount);
  Status renew(File& file, const std::stop_token& stop);
  Status rewrite(File& file, const std::stop_token& stop);
  Status write(File& file, const std::stop_token& stop);
  Status write_or_abandon_direct(File& file, const std::stop_token& stop);
  Result<FileRates> measure_once(double seconds);
  FileRates rates_since(const FileFigures& before) const;
  Status fill_then_write(OpenFile& open, const Chunk& chunk, const std::stop_token& stop);
  Status write_chunk(OpenFile& open, const Chunk& chunk, const void* data);
  Status check_room(std::uint64_t growth);
  Status verify_what_was_written(File& file, const std::stop_token& stop);
  Status verify(File& file, Reading reading, const std::stop_token& stop);
  Status read(File& file, Reading reading, const std::stop_token& stop);
  Status read_then_verify(OpenFile& open, Chunk chunk, Reading reading, const std::stop_token& stop);
  Status read_chunk(OpenFile& open, Chunk& chunk, void* data);
  Status leave_out_missing(OpenFile& open, Chunk& chunk);
  Status spoil_buffers();

  void stamp_blocks(std::size_t slot, const Chunk& chunk);
  void check_identities(std::size_t slot, const Chunk& chunk);
  void judge(std::size_t slot, const Chunk& chunk, Reading reading, const Mismatches& found);
  std::uint64_t examine_blocks(std::size_t slot, const Chunk& chunk, const Mismatches& found);
  void note(File& file, const BlockFinding& finding);
  void note_missing(File& file, std::uint64_t size);
  void report(File& file, Reading reading);
  bool is_told_exchange(const File& file, const FileIncidents::Incident& incident);

  Result<std::unique_ptr<OpenFile>> open(const File& file, FileAccess access);
  Status of_file(Status status);
  void report_disk_error(const Status& status);
  void begin(const char* phase);
  void begin(const char* operation, const std::string& path);
  void abandon_direct(const File& file);
  Chunk chunk(File& file, std::uint64_t index) const;
  std::uint64_t chunks(const File& file) const;
  std::vector<std::uint64_t> chunks_to_read(const File& file, Reading reading) const;
  std::uint32_t* pinned_block(std::size_t slot, std::uint64_t block) const;
  WordsView on_device(std::size_t slot, const Chunk& chunk) const;
  Pattern pattern(std::uint32_t file, std::uint64_t chunk, std::uint32_t generation) const;
  BlockIdentity identity(const Chunk& chunk, std::uint64_t block) const;
  FileBlock make_block(const BlockIdentity& identity) const;

  Environment& environment_;
  FileLayer& layer_;
  ProgressBoard::Line& line_;
  const std::string directory_;
  const std::uint64_t chunk_bytes_;
  const std::uint64_t run_;  ///< see BlockIdentity
  std::vector<File> files_;
  std::optional<Clock::time_point> write_until_;  ///< no chunk starts later, except the first
  std::uint64_t grown_to_ = 0;  ///< file size so far in bytes; writes beyond it need free space
  bool direct_ = true;
  bool file_failed_ = false;
  std::uint32_t pass_ = 0;   ///< passes started
  FileIncidents incidents_;  ///< of the current reading
  std::array<std::vector<std::uint64_t>, OperationPipeline::slots>
      strangers_;  ///< blocks with a wrong identity
  std::atomic<std::int64_t> step_{-1};
  mutable std::mutex mutex_;
  FileFigures figures_;
  std::array<Buffer, OperationPipeline::slots> device_chunks_;
  std::array<Buffer, OperationPipeline::slots> pinned_chunks_;
  std::unique_ptr<OperationPipeline> in_flight_;  ///< last: its stream finishes before the buffers are freed
};

}  // namespace egt
