#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "egt/core/status.hpp"
#include "workload/file/file_system.hpp"

namespace egt {

enum class FileAccess {
  create,   ///< for writing: made, or made empty
  rewrite,  ///< for writing over what is there
  read,
};

/// An open file; closed by its destructor. With direct I/O, data, bytes and offset are multiples of 4096.
/// Errors: no_space, io_error; unsupported where the file system refuses direct I/O only now.
class OpenFile {
 public:
  virtual ~OpenFile() = default;
  /// All of it.
  virtual Status write(const void* data, std::size_t bytes, std::uint64_t offset) = 0;
  /// All of it; the end of the file before that is an io_error.
  virtual Status read(void* data, std::size_t bytes, std::uint64_t offset) = 0;
  /// How long the file is, bytes.
  virtual Result<std::uint64_t> size() = 0;
  /// Returns when what was written is on the disk.
  virtual Status sync() = 0;
  /// Makes the system forget what it caches of an open file to read, so that it is read from the disk. False:
  /// it keeps most of it. Also with direct I/O: ext4 with data=journal, for one, accepts O_DIRECT and caches.
  virtual Result<bool> drop_cache() = 0;
};

/// A file's name belongs to somebody as long as this lives; see file_claim.hpp.
class FileClaim {
 public:
  virtual ~FileClaim() = default;
  /// Is it still the file that was made? unavailable: it was deleted, moved, or replaced by another.
  virtual Status check() = 0;
};

/// Of a file system, bytes.
struct DiskSpace {
  std::uint64_t free_bytes = 0;  ///< that a user may still write
  std::uint64_t total_bytes = 0;
};

/// What runs that ended without removing their files had left.
struct Leftovers {
  std::uint64_t files = 0;
  std::uint64_t bytes = 0;
};

/// The port to a file system. Every call may block for as long as the disk does. From one thread at a time,
/// `remove` aside.
class FileLayer {
 public:
  virtual ~FileLayer() = default;
  /// unavailable: no such directory.
  virtual Result<DiskSpace> space(const std::string& directory) = 0;
  virtual FileSystem file_system(const std::string& directory) = 0;
  /// Makes the file, which is not there yet, and keeps others from taking it for a leftover.
  virtual Result<std::unique_ptr<FileClaim>> claim(const std::string& path) = 0;
  /// Removes the test files of runs that are gone, seen from the host of that name; never those of a live
  /// run. What cannot be removed stays.
  virtual Leftovers remove_leftovers(const std::string& directory, const std::string& hostname) = 0;
  /// unavailable: it cannot be made or opened; unsupported: not with direct I/O.
  virtual Result<std::unique_ptr<OpenFile>> open(const std::string& path, FileAccess access, bool direct) = 0;
  /// Ok where it is not there.
  virtual Status remove(const std::string& path) = 0;
};

/// The system's own.
std::unique_ptr<FileLayer> make_posix_file_layer();

}  // namespace egt
