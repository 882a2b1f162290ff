#include "workload/file/file_claim.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <ctime>
#include <filesystem>
#include <system_error>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "egt/core/file_io.hpp"
#include "egt/core/pattern.hpp"
#include "egt/core/text.hpp"

namespace egt {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view prefix = "extreme_gpu_trainer.rank", suffix = ".tmp";
constexpr int claim_attempts = 200;
constexpr std::chrono::milliseconds between_attempts{5};
constexpr double untouched_seconds = 24 * 3600;  ///< for a file from another node
constexpr double making_seconds = 2;             ///< within which a new file gets its lock and content

enum class Lock { taken, held_by_another, not_supported };

Lock try_lock(const Descriptor& file) {
  if (::flock(file.get(), LOCK_EX | LOCK_NB) == 0) return Lock::taken;
  return errno == EWOULDBLOCK ? Lock::held_by_another : Lock::not_supported;
}

/// True if `path` names this open file. Sets errno if the path does not exist.
bool is_named(const struct stat& file, const std::string& path) {
  struct stat named {};
  errno = 0;
  return ::lstat(path.c_str(), &named) == 0 && named.st_ino == file.st_ino && named.st_dev == file.st_dev;
}

class PosixClaim : public FileClaim {
 public:
  PosixClaim(Descriptor file, const struct stat& identity, std::string path)
      : file_(std::move(file)), identity_(identity), path_(std::move(path)) {}

  Status check() override {
    if (is_named(identity_, path_)) return {};
    if (errno == 0)
      return {StatusCode::unavailable, fmt::format("{}: the file was replaced while it was in use", path_)};
    if (errno == ENOENT || errno == ENOTDIR)
      return {StatusCode::unavailable,
              fmt::format("{}: the file was deleted or moved while it was in use", path_), errno};
    return file_error(path_, "cannot be looked up", errno, StatusCode::unavailable);
  }

 private:
  const Descriptor file_;  ///< holds the lock
  const struct stat identity_;
  const std::string path_;
};

bool is_gone(std::int64_t process) {
  return ::kill(static_cast<pid_t>(process), 0) != 0 && errno == ESRCH;
}

bool is_left_over(const TestFileName& name, const std::string& hostname, Lock lock, const struct stat& file) {
  if (lock == Lock::held_by_another) return false;
  const double age_seconds = std::difftime(std::time(nullptr), file.st_mtime);
  if (name.hostname != hostname) return age_seconds > untouched_seconds;
  // Possibly created by another rank that has not locked it yet. An exited process may remain as a zombie.
  const bool may_be_in_the_making = file.st_size == 0 && age_seconds < making_seconds;
  return (lock == Lock::taken && !may_be_in_the_making) || is_gone(name.process);
}

/// Holds the lock while unlinking, so that a process that just created the file detects its loss.
void remove_if_left_over(const std::string& path, const TestFileName& name, const std::string& hostname,
                         Leftovers& removed) {
  const Descriptor file(::open(path.c_str(), O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  struct stat found {};
  if (file.get() < 0 || ::fstat(file.get(), &found) != 0 || !S_ISREG(found.st_mode)) return;
  if (!is_left_over(name, hostname, try_lock(file), found) || !is_named(found, path)) return;
  if (::unlink(path.c_str()) != 0) return;
  ++removed.files;
  removed.bytes += static_cast<std::uint64_t>(found.st_size);
}

}  // namespace

std::string to_text(const TestFileName& name) {
  return fmt::format("{}{}.{}.{:x}.{}@{}{}", prefix, name.rank, name.process, name.run, name.index,
                     name.hostname, suffix);
}

/// Derives `run` from the time of day, because process ids are reused.
TestFileName first_test_file(const RankPlace& place) {
  const auto now = std::chrono::system_clock::now().time_since_epoch().count();
  return {.rank = place.rank,
          .process = ::getpid(),
          .run = mix64(static_cast<std::uint64_t>(now)),
          .index = 0,
          .hostname = place.hostname};
}

std::optional<TestFileName> parse_test_file_name(std::string_view text) {
  if (!text.starts_with(prefix) || !text.ends_with(suffix)) return std::nullopt;
  text.remove_prefix(prefix.size());
  text.remove_suffix(suffix.size());
  TestFileName name;
  const bool is_ours = take_number(text, name.rank) && take_char(text, '.') &&
                       take_number(text, name.process) && name.process > 0 && take_char(text, '.') &&
                       take_number(text, name.run, 16) && take_char(text, '.') &&
                       take_number(text, name.index) && take_char(text, '@');
  if (!is_ours) return std::nullopt;
  name.hostname = text;
  return name;
}

/// Between creation and lock, another process's cleanup may lock the file: waits for it. Or the cleanup may
/// remove the file: creates it again.
Result<std::unique_ptr<FileClaim>> claim_file(const std::string& path) {
  Descriptor file;
  int error = 0;
  for (int attempt = 0; attempt < claim_attempts; ++attempt) {
    if (attempt > 0) std::this_thread::sleep_for(between_attempts);
    if (!file.valid())
      file = Descriptor(::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
    error = file.valid() ? EBUSY : errno;
    if (!file.valid() && (error == EEXIST || error == EINTR)) continue;
    if (!file.valid()) break;
    if (try_lock(file) == Lock::held_by_another) continue;
    struct stat identity {};
    if (::fstat(file.get(), &identity) == 0 && is_named(identity, path))
      return std::unique_ptr<FileClaim>(new PosixClaim(std::move(file), identity, path));
    file = Descriptor();
  }
  return file_error(path, "cannot make it", error, StatusCode::unavailable);
}

Leftovers remove_leftover_files(const std::string& directory, const std::string& hostname) {
  Leftovers removed;
  std::error_code error;
  for (fs::directory_iterator entry(directory, error), end; !error && entry != end; entry.increment(error))
    if (const auto name = parse_test_file_name(entry->path().filename().string()))
      remove_if_left_over(entry->path(), *name, hostname, removed);
  return removed;
}

void remove_test_files_of(std::int64_t process, const std::string& directory, const std::string& hostname) {
  std::error_code error, left;
  for (fs::directory_iterator entry(directory, error), end; !error && entry != end; entry.increment(error)) {
    const auto name = parse_test_file_name(entry->path().filename().string());
    if (name && name->process == process && name->hostname == hostname) fs::remove(entry->path(), left);
  }
}

}  // namespace egt
