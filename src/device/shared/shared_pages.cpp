#include "device/shared/shared_pages.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "egt/core/units.hpp"

namespace egt {
namespace {

constexpr const char* backend = "host";

/// The file's name, visible only in /proc.
std::string name_of(const SharedHandle& handle) {
  return fmt::format("egt-{:016x}", handle.token);
}

Status failed(StatusCode code, const std::string& doing) {
  const int error = errno;
  return Status(code, fmt::format("{}: {}", doing, std::strerror(error)), error);
}

std::atomic_ref<std::uint32_t> first_word(const SharedPages& pages) {
  return std::atomic_ref(*static_cast<std::uint32_t*>(pages.data()));
}

Result<void*> map(int file, std::size_t bytes) {
  void* const data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (data == MAP_FAILED)
    return failed(StatusCode::out_of_memory,
                  fmt::format("cannot map {} of shared memory", format_bytes(bytes)));
  return data;
}

Status owner_ended(const SharedHandle& handle) {
  return Status(
      StatusCode::unavailable,
      fmt::format("shared memory cannot be opened: process {} has released it or is no more", handle.pid));
}

}  // namespace

SharedPages::Mapping::~Mapping() {
  if (data != nullptr) munmap(data, bytes);
}

Result<SharedPages> SharedPages::create(std::size_t bytes) {
  SharedHandle handle = SharedHandle::make(backend, bytes);
  auto mapping = std::make_unique<Mapping>();
  mapping->file = Descriptor(memfd_create(name_of(handle).c_str(), MFD_CLOEXEC));
  if (!mapping->file.valid()) return failed(StatusCode::unavailable, "cannot make a file in memory");
  // Allocate the pages now. Otherwise a later shortage would terminate the process.
  if (const int error = posix_fallocate(mapping->file.get(), 0, static_cast<off_t>(bytes)); error != 0) {
    errno = error;
    const bool is_limited = error == EFBIG;  // a file size limit (ulimit -f) also applies here
    return failed(is_limited ? StatusCode::unavailable : StatusCode::out_of_memory,
                  fmt::format("no {} of shared memory", format_bytes(bytes)));
  }
  EGT_TRY_ASSIGN(mapping->data, map(mapping->file.get(), bytes));
  mapping->bytes = bytes;
  handle.details = std::to_string(mapping->file.get());
  return SharedPages(std::move(mapping), handle.text());
}

Result<SharedPages> SharedPages::open(const SharedHandle& handle) {
  EGT_TRY(handle.check_reach(backend));
  const std::string path = fmt::format("/proc/{}/fd/{}", handle.pid, handle.details);
  // The descriptor may refer to another file by now, which must not even be opened.
  std::array<char, 128> link{};
  if (readlink(path.c_str(), link.data(), link.size() - 1) < 0) {
    if (errno == ENOENT) return owner_ended(handle);
    return failed(StatusCode::unavailable, "shared memory cannot be opened through " + path);
  }
  if (std::strstr(link.data(), name_of(handle).c_str()) == nullptr) return owner_ended(handle);
  const Descriptor file(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (!file.valid()) return failed(StatusCode::unavailable, "shared memory cannot be opened through " + path);
  struct stat found {};
  if (fstat(file.get(), &found) != 0 || found.st_size != static_cast<off_t>(handle.bytes))
    return owner_ended(handle);
  auto mapping = std::make_unique<Mapping>();
  EGT_TRY_ASSIGN(mapping->data, map(file.get(), handle.bytes));
  mapping->bytes = handle.bytes;
  return SharedPages(std::move(mapping), handle.text());
}

void report_released(const SharedPages& pages) {
  first_word(pages).store(1, std::memory_order_release);
}

bool is_released(const SharedPages& pages, int process) {
  return first_word(pages).load(std::memory_order_acquire) != 0 ||
         (::kill(process, 0) != 0 && errno == ESRCH);
}

}  // namespace egt
