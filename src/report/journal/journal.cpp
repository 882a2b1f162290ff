#include "report/journal/journal.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <future>
#include <mutex>
#include <utility>

#include "egt/core/file_io.hpp"
#include "egt/core/json_access.hpp"
#include "egt/core/process_limits.hpp"
#include "egt/core/record_queue.hpp"
#include "egt/core/units.hpp"
#include "judge/record_schema.hpp"
#include "report/journal/journal_files.hpp"

namespace egt {
namespace {

constexpr std::chrono::milliseconds sync_period{500};
constexpr std::chrono::seconds last_sync_patience{2};
constexpr std::chrono::milliseconds lock_period{100};
constexpr int deleted = -1;  ///< distinct from all errno values
constexpr int truncated = -2;
constexpr std::size_t scan_bytes = 1 << 16;
constexpr std::size_t first_records_bytes = 1 << 14;

bool must_be_on_disk(const Record& record) {
  if (record.kind == RecordKind::fault || record.kind == RecordKind::loss ||
      record.kind == RecordKind::injection)
    return true;
  return record.kind == RecordKind::end && text_at(record.body, "reason") != "signal";
}

/// The journal line. Records that may be dropped get no number, so every gap means lost evidence.
std::string line_of(const Record& record, RecordCount& count) {
  Json json = to_json(record);
  if (!may_be_dropped(record.kind)) json["number"] = ++count;
  return one_line(json) + "\n";
}

Status failed_at(const std::string& path, const char* what, int error) {
  return {code_of_errno(error, StatusCode::io_error),
          fmt::format("{}: {}: {}", path, what, std::strerror(error)), error};
}

/// -1 if unknown.
std::int64_t length_of(int file) {
  struct stat found {};
  return ::fstat(file, &found) == 0 ? static_cast<std::int64_t>(found.st_size) : -1;
}

/// Byte offset after the last complete line; 0: there is none.
std::int64_t end_of_lines(int file, std::int64_t length) {
  std::string chunk(scan_bytes, '\0');
  for (std::int64_t end = length; end > 0;) {
    const std::int64_t begin = std::max<std::int64_t>(0, end - static_cast<std::int64_t>(scan_bytes));
    const ssize_t got = ::pread(file, chunk.data(), static_cast<std::size_t>(end - begin), begin);
    if (got <= 0) return length;
    const std::size_t newline = chunk.rfind('\n', static_cast<std::size_t>(got) - 1);
    if (newline != std::string::npos) return begin + static_cast<std::int64_t>(newline) + 1;
    end = begin;
  }
  return 0;
}

/// The writer of the journal, from its latest start record.
std::string writer_of(const std::string& path) {
  std::string who;
  static_cast<void>(for_each_line(path, [&](const JournalLine& line) {
    if (line.is_record && line.record.kind == RecordKind::start)
      who = fmt::format(" (process {} on {})", value_at<int>(line.record.body, "process").value_or(0),
                        text_at(member(line.record.body, "identity"), "hostname"));
    return Status();
  }));
  return who;
}

Status is_written(const std::string& path) {
  return {StatusCode::unavailable,
          fmt::format("{}: a run that is still going writes it{}; wait for its end, or stop it first", path,
                      writer_of(path))};
}

/// Locks the file while it is open, here or in a child process. unavailable: another process holds the lock.
/// `unlocked` is set if the file system has no locks.
Status lock(int file, const std::string& path, std::string& unlocked) {
  if (::flock(file, LOCK_EX | LOCK_NB) == 0) return {};
  if (errno == EWOULDBLOCK) return is_written(path);
  unlocked = fmt::format(
      "{}: flock: {}; use this directory for one run at a time, and report it only after its end, or mount "
      "the file system with -o flock (Lustre) or -o local_lock=flock (NFS)",
      path, std::strerror(errno));
  return {};
}

/// Removes a last line that a crash cut off, since the next line would be appended to it.
Status cut_torn_line(int file, const std::string& path) {
  const std::int64_t length = length_of(file);
  const std::int64_t whole = end_of_lines(file, length);
  if (whole == length || ::ftruncate(file, whole) == 0) return {};
  return failed_at(path, "its torn last line cannot be cut off", errno);
}

/// Checks that the disk can hold a run's first records. File systems without space reservation fail at the
/// first byte.
Status try_space(int file, const std::string& path) {
  const std::int64_t length = length_of(file);
  int error = write_all(file, std::string(first_records_bytes, '\0'));  // incomplete line, which readers skip
  if (error == 0 && ::fdatasync(file) != 0) error = errno;
  if (::ftruncate(file, length) != 0 && error == 0) error = errno;
  return error == 0 ? Status() : failed_at(path, "cannot be written", error);
}

}  // namespace

std::string journal_name(int rank) {
  return fmt::format("journal.rank{}.jsonl", rank);
}

/// State shared by the journal and its thread.
struct Journal::Shared {
  explicit Shared(Descriptor opened) : file(std::move(opened)), length(length_of(file.get())) {}

  const Descriptor file;
  std::atomic<bool> dirty = false;
  std::atomic<int> sync_error = 0;   ///< an errno, `deleted` or `truncated`
  std::atomic<std::int64_t> length;  ///< min size of the open file in bytes
  std::mutex mutex;
  std::condition_variable wake;
  bool stopping = false;
  bool ended = false;

  void keep(const std::string& path);
  void check_place(const std::string& path);
};

/// Main loop of the thread.
void Journal::Shared::keep(const std::string& path) {
  std::unique_lock lock(mutex);
  while (!wake.wait_for(lock, sync_period, [&] { return stopping; })) {
    lock.unlock();
    check_place(path);
    if (dirty.exchange(false) && ::fdatasync(file.get()) != 0) sync_error = errno;
    lock.lock();
  }
  ended = true;
  wake.notify_all();
}

/// Checks that the open file still has its name and all written bytes. Log rotation moves or truncates files.
void Journal::Shared::check_place(const std::string& path) {
  const std::int64_t written = length;
  struct stat open {
  }, named{};
  if (::fstat(file.get(), &open) != 0) return;
  if (open.st_size < written) sync_error = truncated;
  const bool is_found = ::stat(path.c_str(), &named) == 0;
  const bool is_other = is_found && (named.st_ino != open.st_ino || named.st_dev != open.st_dev);
  if (is_other || (!is_found && errno == ENOENT)) sync_error = deleted;
}

Result<std::unique_ptr<Journal>> Journal::open(const std::string& directory, int rank, Mode mode) {
  const std::string path = directory + "/" + journal_name(rank);
  const int exclusive = mode == Mode::create ? O_EXCL : 0;
  const int descriptor = ::open(path.c_str(), O_RDWR | O_CREAT | exclusive | O_APPEND | O_CLOEXEC, 0644);
  if (descriptor < 0 && errno == EEXIST)
    return Status(
        StatusCode::invalid_argument,
        fmt::format("{}: exists already; two runs in one directory: give each its own --output", path));
  if (descriptor < 0) return failed_at(path, "cannot be created", errno);
  Descriptor file(descriptor);
  std::string unlocked;
  EGT_TRY(lock(descriptor, path, unlocked));
  EGT_TRY(cut_torn_line(descriptor, path));
  if (Status taken = try_space(descriptor, path); !taken.ok()) {
    if (mode == Mode::create) ::unlink(path.c_str());
    return taken;
  }
  std::unique_ptr<Journal> journal(new Journal(path, std::move(file)));
  journal->unlocked_ = std::move(unlocked);
  const Status started = journal->start();
  if (!started.ok() && mode == Mode::create) ::unlink(path.c_str());
  EGT_TRY(started);
  return journal;
}

Journal::Journal(std::string path, Descriptor file)
    : path_(std::move(path)), shared_(std::make_shared<Shared>(std::move(file))) {}

Status Journal::start() {
  EGT_TRY_ASSIGN(keeper_,
                 start_thread("the journal", [shared = shared_, path = path_] { shared->keep(path); }));
  return {};
}

Journal::~Journal() {
  if (!keeper_.joinable()) return;
  std::unique_lock lock(shared_->mutex);
  shared_->stopping = true;
  shared_->wake.notify_all();
  const bool ended = shared_->wake.wait_for(lock, last_sync_patience, [&] { return shared_->ended; });
  lock.unlock();
  if (ended)
    keeper_.join();
  else
    keeper_.detach();  // the disk may block it forever; the thread owns what it uses
}

Status Journal::failed(const char* what, int error) const {
  return failed_at(path_, what, error);
}

bool RecordSpacing::admits(RecordKind kind, double seconds) {
  constexpr double share = 0.001;
  if (kind != RecordKind::progress && kind != RecordKind::epoch) return true;
  const auto [last, is_first] = last_.try_emplace(kind, seconds);
  if (!is_first && seconds - last->second < seconds * share) return false;
  last->second = seconds;
  return true;
}

Status Journal::write(const Record& record) {
  if (!spacing_.admits(record.kind, seconds_since(opened_))) return {};
  const std::string line = line_of(record, *count_);
  const std::int64_t before = length_of(shared_->file.get());
  if (before < shared_->length) shared_->sync_error = truncated;
  if (const int error = write_all(shared_->file.get(), line)) {
    // Best effort: readers accept an incomplete line at the end, but not in the middle.
    if (::ftruncate(shared_->file.get(), before) != 0)
      return failed("cannot be cut back after a failed write", errno);
    return failed("cannot be written", error);
  }
  // Other writers, see append_records, may have added lines meanwhile.
  std::string stored(
      static_cast<std::size_t>(std::max<std::int64_t>(0, length_of(shared_->file.get()) - before)), '\0');
  if (::pread(shared_->file.get(), stored.data(), stored.size(), before) >= 0 &&
      stored.find(line) == std::string::npos)
    return {StatusCode::io_error, path_ + ": does not hold what was written"};
  const std::int64_t length = before + static_cast<std::int64_t>(line.size());
  shared_->length = length;
  shared_->dirty = true;
  if (must_be_on_disk(record)) EGT_TRY(sync());
  return {};
}

Status Journal::flush() {
  if (const auto now = Clock::now(); now - looked_ >= sync_period) {  // the thread may block on a busy disk
    looked_ = now;
    shared_->check_place(path_);
  }
  const int error = shared_->sync_error.exchange(0);
  if (error == 0) return {};
  const auto lost = [this](const char* why) {
    return Status(StatusCode::unavailable,
                  fmt::format("{}: {} during the run; records of this rank are lost", path_, why));
  };
  if (error == deleted) return lost("deleted or replaced");
  if (error == truncated) return lost("truncated");
  return failed("cannot be brought to disk", error);
}

Status Journal::sync() {
  shared_->dirty = false;
  if (::fdatasync(shared_->file.get()) != 0) return failed("cannot be brought to disk", errno);
  return {};
}

namespace {

/// Result of appending lines.
struct Appended {
  Status status;
  std::size_t lines = 0;  ///< complete lines in the file
};

Appended append_lines(const std::string& path, const std::vector<std::string>& lines) {
  Appended done;
  const Descriptor file(::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  if (!file.valid()) return {failed_at(path, "cannot be opened", errno)};
  // Never truncate: the owner may still be writing an incomplete line. Readers skip empty lines.
  const std::int64_t length = length_of(file.get());
  const bool torn = end_of_lines(file.get(), length) != length;
  for (const std::string& line : lines) {
    const int error = write_all(file.get(), torn && done.lines == 0 ? "\n" + line : line);
    if (error != 0) done.status = failed_at(path, "cannot be written", error);
    if (error != 0) break;
    ++done.lines;
  }
  if (::fdatasync(file.get()) != 0 && done.status.ok())
    done.status = failed_at(path, "cannot be brought to disk", errno);
  return done;
}

}  // namespace

Status append_records(const std::string& directory, std::vector<Record>& records,
                      const std::shared_ptr<RecordCount>& count, double seconds) {
  if (records.empty()) return {};
  const std::string path = directory + "/" + journal_name(records.front().rank);
  std::vector<std::string> lines;
  std::vector<std::uint64_t> counts;  // counter before each line
  for (const Record& record : records) {
    counts.push_back(*count);
    lines.push_back(line_of(record, *count));
  }
  std::uint64_t after = *count;
  auto task = std::make_shared<std::packaged_task<Appended()>>(
      [path, lines = std::move(lines)] { return append_lines(path, lines); });
  std::future<Appended> done = task->get_future();
  auto thread = start_thread("the last words", [task] { (*task)(); });
  if (thread.ok())
    thread.value().detach();  // a disk may block it forever
  else
    (*task)();
  if (done.wait_for(std::chrono::duration<double>(seconds)) != std::future_status::ready) {
    records.clear();
    return {StatusCode::timeout,
            fmt::format("{}: the disk did not take the last words within {:g} s", path, seconds)};
  }
  const Appended appended = done.get();
  // Numbers of lines not in the file are reused, unless another thread assigned later ones.
  if (appended.lines < counts.size()) count->compare_exchange_strong(after, counts[appended.lines]);
  records.erase(records.begin(), records.begin() + static_cast<std::ptrdiff_t>(appended.lines));
  return appended.status;
}

Status await_writers(const std::string& directory, double patience_seconds) {
  EGT_TRY_ASSIGN(const std::vector<JournalFile> journals, find_journals(directory));
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::duration<double>(patience_seconds);
  for (const JournalFile& journal : journals) {
    const Descriptor file(::open(journal.path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
    if (!file.valid()) continue;  // the later read reports it
    const auto is_busy = [&] { return ::flock(file.get(), LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK; };
    bool busy = is_busy();
    for (; busy && std::chrono::steady_clock::now() < deadline; busy = is_busy())
      std::this_thread::sleep_for(lock_period);
    if (busy) return is_written(journal.path);
  }
  return {};
}

}  // namespace egt
