#include "egt/core/file_io.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <utility>

namespace egt {

StatusCode code_of_errno(int error, StatusCode otherwise) {
  return error == ENOSPC || error == EDQUOT || error == EFBIG ? StatusCode::no_space : otherwise;
}

Status file_error(const std::string& path, const std::string& what, int error, StatusCode otherwise) {
  return {code_of_errno(error, otherwise), fmt::format("{}: {}: {}", path, what, std::strerror(error)),
          error};
}

namespace {

/// Waits for a pipe or terminal that another process which shares it has set to non-blocking.
void wait_for(int file) {
  pollfd room{.fd = file, .events = POLLOUT, .revents = 0};
  static_cast<void>(::poll(&room, 1, -1));
  errno = EAGAIN;
}

}  // namespace

Descriptor::~Descriptor() {
  if (valid()) ::close(number_);
}

int write_all(int file, std::string_view text) {
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t wrote = ::write(file, text.data() + done, text.size() - done);
    if (wrote < 0 && errno == EAGAIN) wait_for(file);
    if (wrote < 0 && errno != EINTR && errno != EAGAIN) return errno;
    if (wrote > 0) done += static_cast<std::size_t>(wrote);
  }
  return 0;
}

Result<std::string> read_regular_file(const std::string& path, std::size_t max_bytes) {
  const auto failed = [] {
    return Status(StatusCode::io_error, fmt::format("cannot be read: {}", std::strerror(errno)), errno);
  };
  const auto refused = [](std::string why) { return Status(StatusCode::invalid_argument, std::move(why)); };
  struct stat about {};
  if (::stat(path.c_str(), &about) != 0) return failed();
  if (!S_ISREG(about.st_mode)) return refused("is no regular file");
  // Checked again after the open, because the file may have been replaced.
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  if (!file.valid() || ::fstat(file.get(), &about) != 0) return failed();
  if (!S_ISREG(about.st_mode)) return refused("is no regular file");
  std::size_t size = static_cast<std::size_t>(about.st_size);
  std::string text;
  while (size <= max_bytes) {
    const std::size_t done = text.size();
    text.resize(size + 1);  // one byte more, to see the end
    const ssize_t got = ::read(file.get(), text.data() + done, text.size() - done);
    if (got < 0 && errno != EINTR) return failed();
    text.resize(done + static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
    if (got == 0) return text;
    size = std::max(size, text.size());
  }
  return refused(fmt::format("is too large: {} bytes; the limit is {}", size, max_bytes));
}

namespace {

/// Writes and closes; returns 0 or an errno.
int write_file(const std::string& path, const std::string& text, Durability durability) {
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (file < 0) return errno;
  int error = write_all(file, text);
  if (error == 0 && durability == Durability::disk && ::fsync(file) != 0) error = errno;
  if (::close(file) != 0 && error == 0) error = errno;
  return error;
}

/// False for a device, a pipe, or the target of a descriptor of this process.
bool can_be_replaced(const std::string& path) {
  for (const char* const descriptors : {"/dev/std", "/dev/fd/", "/proc/"})
    if (path.starts_with(descriptors)) return false;
  struct stat there {};
  return ::stat(path.c_str(), &there) != 0 || S_ISREG(there.st_mode) || S_ISDIR(there.st_mode);
}

/// A pipe must have a reader. Returns 0 or an errno.
int write_in_place(const std::string& path, const std::string& text) {
  const Descriptor file(::open(path.c_str(), O_WRONLY | O_APPEND | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  return file.valid() ? write_all(file.get(), text) : errno;
}

/// Syncs a rename to disk. Best effort: some file systems cannot, and the file is already complete.
void sync_folder(const std::string& path) {
  const std::filesystem::path parent = std::filesystem::path(path).parent_path();
  const int folder = ::open(parent.empty() ? "." : parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) return;
  (void)::fsync(folder);
  ::close(folder);
}

}  // namespace

Status write_atomically(const std::string& name, const std::string& text, Durability durability) {
  std::error_code none;
  if (!can_be_replaced(name)) {
    const int error = write_in_place(name, text);
    return error == 0 ? Status() : file_error(name, "cannot be written", error);
  }
  const bool is_link = std::filesystem::is_symlink(name, none);
  const std::string path = is_link ? std::filesystem::weakly_canonical(name, none).string() : name;
  const std::string temporary = fmt::format("{}.tmp.{}", path, ::getpid());
  int error = write_file(temporary, text, durability);
  if (error == 0 && std::rename(temporary.c_str(), path.c_str()) != 0) error = errno;
  if (error != 0) {
    ::unlink(temporary.c_str());
    return file_error(path, "cannot be written", error);
  }
  if (durability == Durability::disk) sync_folder(path);
  struct stat there {};
  if (::stat(path.c_str(), &there) != 0) return file_error(path, "is not there after it was written", errno);
  if (there.st_size == static_cast<off_t>(text.size())) return {};
  return {StatusCode::io_error,
          fmt::format("{}: has {} bytes after {} were written", path, there.st_size, text.size())};
}

}  // namespace egt
