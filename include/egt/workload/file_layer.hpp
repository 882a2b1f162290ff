#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "egt/core/status.hpp"

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
  /// Asks the system to forget what it caches of the file, so that it is read from the disk.
  virtual Status drop_cache() = 0;
};

/// The port to a file system. Every call may block for as long as the disk does. From one thread at a time.
class FileLayer {
 public:
  virtual ~FileLayer() = default;
  /// What a user may still write there, bytes; unavailable: no such directory.
  virtual Result<std::uint64_t> free_bytes(const std::string& directory) = 0;
  /// unavailable: it cannot be made or opened; unsupported: not with direct I/O.
  virtual Result<std::unique_ptr<OpenFile>> open(const std::string& path, FileAccess access, bool direct) = 0;
  /// Ok where it is not there.
  virtual Status remove(const std::string& path) = 0;
};

/// The system's own.
std::unique_ptr<FileLayer> make_posix_file_layer();

}  // namespace egt
