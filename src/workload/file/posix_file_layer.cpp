#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "egt/core/file_io.hpp"
#include "workload/file/file_claim.hpp"
#include "workload/file/file_layer.hpp"

namespace egt {
namespace {

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

/// Repeats a call that a signal interrupts.
template <typename Call>
auto uninterrupted(const Call& call) {
  auto result = call();
  while (result == -1 && errno == EINTR) result = call();
  return result;
}

class PosixFile : public OpenFile {
 public:
  PosixFile(Descriptor file, std::string path, bool direct)
      : file_(std::move(file)), path_(std::move(path)), direct_(direct) {}

  Status write(const void* data, std::size_t bytes, std::uint64_t offset) override {
    const auto* from = static_cast<const char*>(data);
    for (std::size_t done = 0; done < bytes;) {
      const ssize_t written = uninterrupted([&] {
        return ::pwrite(file_.get(), from + done, bytes - done, static_cast<off_t>(offset + done));
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
          [&] { return ::pread(file_.get(), to + done, bytes - done, static_cast<off_t>(offset + done)); });
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
    if (::fstat(file_.get(), &found) == 0) return static_cast<std::uint64_t>(found.st_size);
    return file_error(path_, "its size is not known", errno);
  }

  Status sync() override {
    if (uninterrupted([&] { return ::fsync(file_.get()); }) == 0) return {};
    return file_error(path_, "cannot sync", errno);
  }

  Result<bool> drop_cache() override {
    if (const int error = ::posix_fadvise(file_.get(), 0, 0, POSIX_FADV_DONTNEED); error != 0)
      return file_error(path_, "cannot drop its cache", error);
    constexpr std::uint64_t sample = 64 << 20;  // bytes; the first ones represent the file
    EGT_TRY_ASSIGN(const std::uint64_t bytes, size());
    const std::size_t looked_at = std::min(bytes, sample);
    void* const pages =
        looked_at == 0 ? MAP_FAILED : ::mmap(nullptr, looked_at, PROT_READ, MAP_SHARED, file_.get(), 0);
    if (pages == MAP_FAILED) return true;
    const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    std::vector<unsigned char> cached((looked_at + page - 1) / page, 0);
    const bool is_known = ::mincore(pages, looked_at, cached.data()) == 0;
    ::munmap(pages, looked_at);
    const auto kept =
        std::count_if(cached.begin(), cached.end(), [](unsigned char one) { return (one & 1) != 0; });
    return !is_known || 2 * static_cast<std::size_t>(kept) <= cached.size();
  }

 private:
  Status failed(const char* what, std::uint64_t offset, int error) const {
    const bool refused = error == EINVAL && direct_;
    return file_error(path_, fmt::format("cannot {} at byte {}", what, offset), error,
                      refused ? StatusCode::unsupported : StatusCode::io_error);
  }

  const Descriptor file_;
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
          fmt::format("{}: {}", directory, error == ENOENT ? "no such directory" : std::strerror(error)),
          error);
    if (!S_ISDIR(found.st_mode))
      return Status(StatusCode::unavailable, fmt::format("{}: not a directory", directory), ENOTDIR);
    struct statvfs of {};
    if (uninterrupted([&] { return ::statvfs(directory.c_str(), &of); }) != 0)
      return file_error(directory, "its free space is not known", errno, StatusCode::unavailable);
    const std::uint64_t unit = of.f_frsize;
    return DiskSpace{.free_bytes = of.f_bavail * unit, .total_bytes = of.f_blocks * unit};
  }

  FileSystem file_system(const std::string& directory) override { return file_system_of(directory); }

  Result<std::unique_ptr<FileClaim>> claim(const std::string& path) override { return claim_file(path); }
  Leftovers remove_leftovers(const std::string& directory, const std::string& hostname) override {
    return remove_leftover_files(directory, hostname);
  }

  Result<std::unique_ptr<OpenFile>> open(const std::string& path, FileAccess access, bool direct) override {
    const int flags = flags_of(access) | O_CLOEXEC | O_NOFOLLOW | (direct ? O_DIRECT : 0);
    Descriptor file(uninterrupted([&] { return ::open(path.c_str(), flags, 0600); }));
    const int error = errno;
    if (file.valid()) return std::unique_ptr<OpenFile>(new PosixFile(std::move(file), path, direct));
    return file_error(path, access == FileAccess::create ? "cannot make it" : "cannot open it", error,
                      error == EINVAL && direct ? StatusCode::unsupported : StatusCode::unavailable);
  }

  Status remove(const std::string& path) override {
    if (::unlink(path.c_str()) == 0 || errno == ENOENT) return {};
    return file_error(path, "cannot remove it", errno);
  }
};

}  // namespace

std::unique_ptr<FileLayer> make_posix_file_layer() {
  return std::make_unique<PosixFileLayer>();
}

}  // namespace egt
