#include "egt/core/process_limits.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <future>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "egt/core/system_files.hpp"

namespace egt {
namespace {

/// Thread limits of the process's control group and its ancestors: "pids.max 24 (24 in use) of the control
/// group /a".
std::vector<std::string> group_limits() {
  std::vector<std::string> limits;
  for (const ControlGroup& group : control_groups("/", "pids"))
    if (const auto most = number_in<std::uint64_t>(group.folder / "pids.max"))
      limits.push_back(fmt::format("pids.max {} ({} in use) of the control group {}", *most,
                                   first_line(group.folder / "pids.current").value_or(""), group.name));
  return limits;
}

void add_limit(std::vector<std::string>& limits, const char* option, decltype(RLIMIT_AS) which, rlim_t unit) {
  rlimit limit{};
  if (::getrlimit(which, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
    limits.push_back(fmt::format("ulimit -{} {}", option, limit.rlim_cur / unit));
}

}  // namespace

bool is_address_space_limited() {
  rlimit limit{};
  return ::getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
}

Status check_address_space(const std::string& what, std::size_t bytes) {
  void* room = ::mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (room != MAP_FAILED) {
    ::munmap(room, bytes);
    return {};
  }
  std::vector<std::string> limits;
  add_limit(limits, "v", RLIMIT_AS, 1024);
  return {StatusCode::out_of_memory,
          fmt::format("{} needs {} MiB of address space, and {} leaves less: raise it", what, bytes >> 20,
                      limits.empty() ? "this machine" : limits.front())};
}

Status no_thread(const std::string& what, const std::system_error& error) {
  std::vector<std::string> limits = group_limits();
  add_limit(limits, "u", RLIMIT_NPROC, 1);
  add_limit(limits, "v", RLIMIT_AS, 1024);
  add_limit(limits, "d", RLIMIT_DATA, 1024);  // Linux counts thread stacks as data
  if (limits.empty())
    limits.push_back("kernel.threads-max " + first_line("/proc/sys/kernel/threads-max").value_or(""));
  return {StatusCode::unavailable,
          fmt::format("no thread for {}: {}; raise the limit that is reached: {}", what,
                      error.code().message(), fmt::join(limits, ", ")),
          error.code().value()};
}

Status check_threads(const std::string& what, int count) {
  std::promise<void> all_started;
  const std::shared_future<void> end = all_started.get_future().share();
  std::vector<std::jthread> threads;
  Status status;
  for (int i = 0; i < count && status.ok(); ++i) {
    auto thread = start_thread<std::jthread>(what, [end] { end.wait(); });
    status = thread.status();
    if (status.ok()) threads.push_back(std::move(thread.value()));
  }
  all_started.set_value();
  return status;
}

Status check_descriptors(const std::string& what, int count) {
  std::vector<int> files;
  int file = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  for (int i = 1; i < count && file >= 0; file = ::dup(file), ++i) files.push_back(file);
  const bool has_room = file >= 0 || errno != EMFILE;
  if (file >= 0) files.push_back(file);
  for (const int open : files) ::close(open);
  if (has_room) return {};
  std::vector<std::string> limits;
  add_limit(limits, "n", RLIMIT_NOFILE, 1);
  return {StatusCode::unavailable,
          fmt::format("{} needs {} open files, and {} leaves fewer: raise it", what, count, limits.front())};
}

}  // namespace egt
