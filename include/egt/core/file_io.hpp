#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "egt/core/status.hpp"

namespace egt {

/// A file descriptor, closed with its owner.
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

/// no_space where the disk, the quota or the limit on files is full, else `otherwise`.
StatusCode code_of_errno(int error, StatusCode otherwise);

/// "PATH: WHAT: what the system says of `error`", with that errno as its native code, and `code_of_errno`'s.
Status file_error(const std::string& path, const std::string& what, int error,
                  StatusCode otherwise = StatusCode::io_error);

/// All of `text`, however many calls it takes; 0, or the errno of the call that failed. Takes no memory.
int write_all(int file, std::string_view text);

/// When a file that was written is safe: at once from a crash of the system too, or, for those in a hurry,
/// from one of the process only.
enum class Durability { disk, system };

/// Readers see the old file or the whole new one. On an error (no_space, io_error) no temporary file is left.
/// What a link leads to is replaced, not the link; a device, a pipe or a descriptor (/dev/stdout) is written
/// to instead.
Status write_atomically(const std::string& path, const std::string& text,
                        Durability durability = Durability::disk);

}  // namespace egt
