#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

#include "egt/core/status.hpp"

namespace egt {

/// A file descriptor that closes on destruction.
class Descriptor {
 public:
  explicit Descriptor(int number = -1) : number_(number) {}
  Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  ~Descriptor();

  int get() const { return number_; }
  bool valid() const { return number_ >= 0; }

 private:
  int number_;
};

/// no_space if the disk, the quota or the file size limit is exhausted, else `otherwise`.
StatusCode code_of_errno(int error, StatusCode otherwise);

/// "PATH: WHAT: system text of `error`", with that errno as native code and the code of `code_of_errno`.
Status file_error(const std::string& path, const std::string& what, int error,
                  StatusCode otherwise = StatusCode::io_error);

/// Writes all of `text` in one or more calls. Returns 0 or the errno of the failed call. Does not allocate.
int write_all(int file, std::string_view text);

/// Reads a regular file of at most `max_bytes`. Other files are not even opened, since a pipe may block. The
/// error text omits the path and begins with a verb: "is no regular file". Errors: io_error with its errno as
/// native code, or invalid_argument.
Result<std::string> read_regular_file(const std::string& path, std::size_t max_bytes);

/// The crash that a written file survives. `disk`: a system crash, by fsync. `system`: only a crash of the
/// process, but the write is faster.
enum class Durability { disk, system };

/// Replaces a file: readers see either the old file or the complete new one. After an error (no_space,
/// io_error) no temporary file remains. A symbolic link stays and its target is replaced. A device, pipe or
/// descriptor (/dev/stdout) is written in place.
Status write_atomically(const std::string& path, const std::string& text,
                        Durability durability = Durability::disk);

}  // namespace egt
