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

/// Bytes a second.
struct FileRates {
  double written = 0;
  double read = 0;
  double both = 0;  ///< of a byte written and read back: twice that over both times
};

/// What the passes did so far; seconds of the wall clock.
struct FileFigures {
  std::uint64_t passes = 0;  ///< written, read back and verified as a whole
  std::uint64_t bytes_written = 0;
  std::uint64_t bytes_read = 0;      ///< back, after they were written
  std::uint64_t bytes_right = 0;     ///< of those: as they were written
  std::uint64_t bytes_reread = 0;    ///< later again, before they were rewritten
  std::uint64_t bytes_judged = 0;    ///< of both: compared with what was written
  std::uint64_t bytes_measured = 0;  ///< written before the first pass
  double write_seconds = 0;
  double read_seconds = 0;
  std::uint64_t mismatches = 0;                                ///< words that were not as expected
  std::array<std::uint64_t, file_fault_kinds> wrong_blocks{};  ///< by FileFault
  bool direct_io = false;
  bool stays_cached = false;  ///< in memory, from where it was read back
  /// The highest rates of one file so far. `measure_rates_alone` counts, too.
  FileRates fastest;
};

/// Writes a rank's files from the device and reads them back to the device, where their payload is verified;
/// chunk by chunk, so that the device makes or checks one chunk while the disk has another. The host puts
/// the blocks' identities into what the device made. Of what was read it compares the identities bit for
/// bit, and puts the pattern's own words back in their place, so that the device sees the plain pattern: no
/// word of a block is left uncompared, and a word that is damaged after that on its way to the device shows
/// there.
///
/// There are two files, in turn written over in place, so that a write that did not happen leaves what was
/// there before. What a file must hold, its generation, is kept here only. Before a file is rewritten, random
/// chunks of it are read again: what went wrong after it was found right, while the other was written and
/// read, shows then. Used by one thread; `figures` and `set_step` are safe from any other.
///
/// What the disk does wrong beside that ends the pass: a full disk, of which the reserve counts as full (see
/// disk_reserve.hpp), after what was written until then has been read back and verified; an error of the
/// device or the file system, which is a fault; a file that somebody deleted or replaced. One that became
/// shorter is a fault too, told once, after which the pass goes on.
class FilePass {
 public:
  static constexpr std::uint64_t block_bytes = file_block_bytes;  ///< a file is whole blocks
  static constexpr std::uint64_t largest_chunk = 16 << 20;        ///< bytes
  static constexpr std::size_t files = 2;

  struct Plan {
    std::array<std::string, files> paths;
    std::string directory = ".";                ///< of all of them
    std::uint64_t bytes = block_bytes;          ///< of all files: whole blocks, at least one
    std::uint64_t chunk_bytes = largest_chunk;  ///< whole blocks
  };

  FilePass(Environment& environment, FileLayer& layer, const Plan& plan);

  /// Makes the files, empty, and finds out whether direct I/O is to be had; takes the buffers.
  Status prepare();
  /// One pass over all files. Where it fails, `file_failed` tells whose fault it was.
  Status run(const std::stop_token& stop);
  /// Before the first pass: writes the first bytes of a file, for so many seconds, and reads them back and
  /// verifies them, with no other load. Bytes that do not exist yet are written twice, of which the second
  /// time counts: the first one allocates space on the disk, which passes do not. May be called again. The
  /// figures hold its faults, `bytes_measured` and `fastest` only.
  Result<FileRates> measure_rates_alone(double seconds);
  /// Was it the file or its disk, rather than the device?
  bool file_failed() const { return file_failed_; }

  /// For the records: the step that was enqueued last.
  void set_step(std::int64_t step) { step_ = step; }
  FileFigures figures() const;

 private:
  struct File {
    std::string path;
    std::uint32_t index = 0;
    std::uint64_t bytes = 0;
    std::unique_ptr<FileClaim> claim;
    std::uint32_t generation = 0;                 ///< of all its blocks: the pass that wrote them; 0: never
    std::uint64_t written = 0;                    ///< of this generation: bytes from its start
    std::vector<bool> told;                       ///< blocks of this generation that are known to be wrong
    std::optional<std::uint32_t> exchanged_with;  ///< a file that was found to hold this one's blocks
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
  Status write_or_give_up_direct(File& file, const std::stop_token& stop);
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
  void tell(File& file, Reading reading);
  bool is_told_exchange(const File& file, const FileIncidents::Incident& incident);

  Result<std::unique_ptr<OpenFile>> open(const File& file, FileAccess access);
  Status of_file(Status status);
  void tell_disk_error(const Status& status);
  void begin(const char* phase);
  void begin(const char* operation, const std::string& path);
  void give_up_direct(const File& file);
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
  std::optional<Clock::time_point> write_until_;  ///< no chunk is begun after it, except the first
  std::uint64_t grown_to_ = 0;  ///< bytes of the file that is written: what is beyond needs room
  bool direct_ = true;
  bool file_failed_ = false;
  std::uint32_t pass_ = 0;   ///< passes begun
  FileIncidents incidents_;  ///< of the reading under way
  std::array<std::vector<std::uint64_t>, OperationPipeline::slots>
      strangers_;  ///< blocks with a wrong identity
  std::atomic<std::int64_t> step_{-1};
  mutable std::mutex mutex_;
  FileFigures figures_;
  std::array<Buffer, OperationPipeline::slots> device_chunks_;
  std::array<Buffer, OperationPipeline::slots> pinned_chunks_;
  std::unique_ptr<OperationPipeline> in_flight_;  ///< last: its stream ends before the buffers go
};

}  // namespace egt
