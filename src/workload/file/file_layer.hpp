#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "egt/core/status.hpp"
#include "workload/file/file_system.hpp"

namespace egt {

enum class FileAccess {
  create,   ///< for writing: created or truncated
  rewrite,  ///< for overwriting existing content
  read,
};

/// An open file, closed by its destructor. With direct I/O, data address, bytes and offset are multiples of
/// 4096. Errors: no_space, io_error; unsupported if the file system refuses direct I/O only at this point.
class OpenFile {
 public:
  virtual ~OpenFile() = default;
  /// Writes all bytes.
  virtual Status write(const void* data, std::size_t bytes, std::uint64_t offset) = 0;
  /// Reads all bytes; an earlier end of file is an io_error.
  virtual Status read(void* data, std::size_t bytes, std::uint64_t offset) = 0;
  /// File size in bytes.
  virtual Result<std::uint64_t> size() = 0;
  /// Returns once all written data is on the disk.
  virtual Status sync() = 0;
  /// Drops the page cache of a file open for reading, so that data comes from the disk. False: most stays
  /// cached. Needed with direct I/O too: ext4 with data=journal, for one, accepts O_DIRECT and caches.
  virtual Result<bool> drop_cache() = 0;
};

/// Ownership of a file name during the lifetime of this object; see file_claim.hpp.
class FileClaim {
 public:
  virtual ~FileClaim() = default;
  /// Checks that the path still names the created file. unavailable: it was deleted, moved or replaced.
  virtual Status check() = 0;
};

/// Space on a file system, in bytes.
struct DiskSpace {
  std::uint64_t free_bytes = 0;  ///< available to a user
  std::uint64_t total_bytes = 0;
};

/// Leftovers of runs that ended without removing their files.
struct Leftovers {
  std::uint64_t files = 0;
  std::uint64_t bytes = 0;
};

/// The port to a file system. Every call may block for as long as the disk does. One thread at a time, except
/// for `remove`.
class FileLayer {
 public:
  virtual ~FileLayer() = default;
  /// Error `unavailable`: no such directory.
  virtual Result<DiskSpace> space(const std::string& directory) = 0;
  virtual FileSystem file_system(const std::string& directory) = 0;
  /// Creates a new file and protects it from the removal of leftovers.
  virtual Result<std::unique_ptr<FileClaim>> claim(const std::string& path) = 0;
  /// Removes the test files of ended runs, as seen from node `hostname`, but never those of a running one.
  /// Files that cannot be removed stay.
  virtual Leftovers remove_leftovers(const std::string& directory, const std::string& hostname) = 0;
  /// unavailable: cannot be created or opened; unsupported: no direct I/O.
  virtual Result<std::unique_ptr<OpenFile>> open(const std::string& path, FileAccess access, bool direct) = 0;
  /// Ok if the file does not exist.
  virtual Status remove(const std::string& path) = 0;
};

/// The layer of the operating system.
std::unique_ptr<FileLayer> make_posix_file_layer();

}  // namespace egt
