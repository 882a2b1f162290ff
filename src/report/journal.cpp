#include "egt/report/journal.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>
#include <utility>

#include "egt/core/file_io.hpp"
#include "egt/core/json_access.hpp"
#include "egt/report/bodies.hpp"

namespace egt {
namespace {

constexpr std::chrono::milliseconds sync_period{500};

bool must_be_on_disk(const Record& record) {
  if (record.kind == RecordKind::fault || record.kind == RecordKind::loss ||
      record.kind == RecordKind::injection)
    return true;
  return record.kind == RecordKind::end && text_at(record.body, "reason") != "signal";
}

}  // namespace

std::string journal_name(int rank) {
  return fmt::format("journal.rank{}.jsonl", rank);
}

Result<std::unique_ptr<Journal>> Journal::open(const std::string& directory, int rank) {
  std::string path = directory + "/" + journal_name(rank);
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0644);
  if (file >= 0) return std::unique_ptr<Journal>(new Journal(file, std::move(path)));
  if (errno == EEXIST)
    return Status(
        StatusCode::invalid_argument,
        fmt::format("{}: exists already; two runs in one directory: give each its own --output", path));
  return Status(code_of_errno(errno, StatusCode::io_error),
                fmt::format("{}: cannot be created: {}", path, std::strerror(errno)), errno);
}

Journal::Journal(int file, std::string path)
    : file_(file),
      path_(std::move(path)),
      syncer_([this](const std::stop_token& stop) { keep_syncing(stop); }) {}

Journal::~Journal() {
  syncer_.request_stop();
  syncer_.join();
  ::close(file_);
}

void Journal::keep_syncing(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  while (!wake_.wait_for(lock, stop, sync_period, [&] { return stop.stop_requested(); }))
    if (dirty_.exchange(false) && ::fdatasync(file_) != 0) sync_error_ = errno;
}

Status Journal::failed(const char* what, int error) const {
  return {code_of_errno(error, StatusCode::io_error),
          fmt::format("{}: {}: {}", path_, what, std::strerror(error)), error};
}

Status Journal::write(const Record& record) {
  const std::string line = one_line(to_json(record)) + "\n";
  if (const int error = write_all(file_, line)) {
    // Best effort: a torn line is tolerated at the end, not in the middle.
    if (::ftruncate(file_, length_) != 0) return failed("cannot be cut back after a failed write", errno);
    return failed("cannot be written", error);
  }
  length_ += static_cast<std::int64_t>(line.size());
  dirty_ = true;
  return must_be_on_disk(record) ? sync() : Status();
}

Status Journal::flush() {
  const int error = sync_error_.exchange(0);
  return error == 0 ? Status() : failed("cannot be brought to disk", error);
}

Status Journal::sync() {
  dirty_ = false;
  if (::fdatasync(file_) != 0) return failed("cannot be brought to disk", errno);
  return {};
}

Result<std::vector<Record>> read_journal(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return Status(StatusCode::unavailable, fmt::format("{}: cannot be read", path));
  std::vector<Record> records;
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    const bool torn = file.eof();  // no newline after it
    Record record;
    const Json json = Json::parse(line, nullptr, false);
    if (!json.is_discarded() && from_json(json, record))
      records.push_back(std::move(record));
    else if (!torn)
      return Status(StatusCode::io_error, fmt::format("{}: line {} is no record", path, number));
  }
  if (file.bad()) return Status(StatusCode::io_error, fmt::format("{}: cannot be read to its end", path));
  return records;
}

}  // namespace egt
