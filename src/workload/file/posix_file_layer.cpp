#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "workload/file/file_claim.hpp"
#include "workload/file/file_layer.hpp"

namespace egt {
namespace {

std::string error_text(int error) {
  return std::generic_category().message(error);
}

int flags_of(FileAccess access) {
  switch (access) {
    case FileAccess::create:
      return O_WRONLY | O_CREAT | O_TRUNC;
    case FileAccess::rewrite:
      return O_WRONLY;
    case FileAccess::read:
      break;
  }
  return O_RDONLY;
}

/// Calls until it is not interrupted by a signal.
template <typename Call>
auto uninterrupted(const Call& call) {
  auto result = call();
  while (result == -1 && errno == EINTR) result = call();
  return result;
}

class PosixFile : public OpenFile {
 public:
  PosixFile(int descriptor, std::string path, bool direct)
      : descriptor_(descriptor), path_(std::move(path)), direct_(direct) {}
  PosixFile(const PosixFile&) = delete;
  PosixFile& operator=(const PosixFile&) = delete;
  ~PosixFile() override { ::close(descriptor_); }

  Status write(const void* data, std::size_t bytes, std::uint64_t offset) override {
    const auto* from = static_cast<const char*>(data);
    for (std::size_t done = 0; done < bytes;) {
      const ssize_t written = uninterrupted([&] {
        return ::pwrite(descriptor_, from + done, bytes - done, static_cast<off_t>(offset + done));
      });
      if (written < 0) return failed("write", offset + done, errno);
      if (written == 0) return failed("write", offset + done, ENOSPC);
      done += static_cast<std::size_t>(written);
    }
    return {};
  }

  Status read(void* data, std::size_t bytes, std::uint64_t offset) override {
    auto* to = static_cast<char*>(data);
    for (std::size_t done = 0; done < bytes;) {
      const ssize_t got = uninterrupted(
          [&] { return ::pread(descriptor_, to + done, bytes - done, static_cast<off_t>(offset + done)); });
      if (got < 0) return failed("read", offset + done, errno);
      if (got == 0)
        return {StatusCode::io_error, fmt::format("{}: the file ends at byte {}, {} more are missing", path_,
                                                  offset + done, bytes - done)};
      done += static_cast<std::size_t>(got);
    }
    return {};
  }

  Result<std::uint64_t> size() override {
    struct stat found {};
    if (::fstat(descriptor_, &found) == 0) return static_cast<std::uint64_t>(found.st_size);
    const int error = errno;
    return Status(StatusCode::io_error,
                  fmt::format("{}: its size is not known: {}", path_, error_text(error)), error);
  }

  Status sync() override {
    if (uninterrupted([&] { return ::fsync(descriptor_); }) == 0) return {};
    const int error = errno;
    return {error == ENOSPC || error == EDQUOT ? StatusCode::no_space : StatusCode::io_error,
            fmt::format("{}: cannot sync: {}", path_, error_text(error)), error};
  }

  Status drop_cache() override {
    const int error = ::posix_fadvise(descriptor_, 0, 0, POSIX_FADV_DONTNEED);
    if (error == 0) return {};
    return {StatusCode::io_error, fmt::format("{}: cannot drop its cache: {}", path_, error_text(error)),
            error};
  }

 private:
  Status failed(const char* what, std::uint64_t offset, int error) const {
    const StatusCode code = error == ENOSPC || error == EDQUOT || error == EFBIG ? StatusCode::no_space
                            : error == EINVAL && direct_                         ? StatusCode::unsupported
                                                                                 : StatusCode::io_error;
    return {code, fmt::format("{}: cannot {} at byte {}: {}", path_, what, offset, error_text(error)), error};
  }

  const int descriptor_;
  const std::string path_;
  const bool direct_;
};

class PosixFileLayer : public FileLayer {
 public:
  Result<DiskSpace> space(const std::string& directory) override {
    struct stat found {};
    if (const int error = ::stat(directory.c_str(), &found) == 0 ? 0 : errno)
      return Status(
          StatusCode::unavailable,
          fmt::format("{}: {}", directory, error == ENOENT ? "no such directory" : error_text(error)), error);
    if (!S_ISDIR(found.st_mode))
      return Status(StatusCode::unavailable, fmt::format("{}: not a directory", directory), ENOTDIR);
    struct statvfs of {};
    if (uninterrupted([&] { return ::statvfs(directory.c_str(), &of); }) != 0)
      return Status(StatusCode::unavailable,
                    fmt::format("{}: its free space is not known: {}", directory, error_text(errno)), errno);
    const std::uint64_t unit = of.f_frsize;
    return DiskSpace{.free_bytes = of.f_bavail * unit, .total_bytes = of.f_blocks * unit};
  }

  Result<std::unique_ptr<FileClaim>> claim(const std::string& path) override { return claim_file(path); }
  Leftovers remove_leftovers(const std::string& directory, const std::string& hostname) override {
    return remove_leftover_files(directory, hostname);
  }

  Result<std::unique_ptr<OpenFile>> open(const std::string& path, FileAccess access, bool direct) override {
    const int flags = flags_of(access) | O_CLOEXEC | O_NOFOLLOW | (direct ? O_DIRECT : 0);
    const int descriptor = uninterrupted([&] { return ::open(path.c_str(), flags, 0600); });
    if (descriptor >= 0) return std::unique_ptr<OpenFile>(new PosixFile(descriptor, path, direct));
    const int error = errno;
    const StatusCode code = error == EINVAL && direct            ? StatusCode::unsupported
                            : error == ENOSPC || error == EDQUOT ? StatusCode::no_space
                                                                 : StatusCode::unavailable;
    const char* const what = access == FileAccess::create ? "make" : "open";
    return Status(code, fmt::format("{}: cannot {} it: {}", path, what, error_text(error)), error);
  }

  Status remove(const std::string& path) override {
    if (::unlink(path.c_str()) == 0 || errno == ENOENT) return {};
    const int error = errno;
    return {StatusCode::io_error, fmt::format("{}: cannot remove it: {}", path, error_text(error)), error};
  }
};

}  // namespace

std::unique_ptr<FileLayer> make_posix_file_layer() {
  return std::make_unique<PosixFileLayer>();
}

}  // namespace egt
