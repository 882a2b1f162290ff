#include "report/log.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "egt/core/clock.hpp"
#include "egt/core/json_access.hpp"
#include "egt/core/text.hpp"
#include "report/console/console_text.hpp"

namespace egt {
namespace {

constexpr double flush_period_s = 1.0;
constexpr std::size_t max_pending_bytes = 4096;
constexpr const char* level_names[] = {"trace", "debug", "info", "warning", "error", "off"};

}  // namespace

LogLevel level_of(const Record& record) {
  switch (record.kind) {
    case RecordKind::injection:
    case RecordKind::fault:
    case RecordKind::loss:
      return LogLevel::error;
    case RecordKind::finding:
    case RecordKind::late_stop:
    case RecordKind::restart:
      return LogLevel::warning;
    case RecordKind::progress:
      return LogLevel::debug;
    case RecordKind::notice:
      return text_at(record.body, "level") == "warning" ? LogLevel::warning : LogLevel::info;
    case RecordKind::end: {
      const std::string reason = text_at(record.body, "reason");
      return reason == "error" || reason == "fault" ? LogLevel::error : LogLevel::info;
    }
    case RecordKind::start:
    case RecordKind::epoch:
      break;
  }
  return LogLevel::info;
}

/// Does not wait for a reader if `path` is a pipe.
Result<std::unique_ptr<LogFile>> LogFile::open(const std::string& path, LogLevel level) {
  constexpr int flags = O_WRONLY | O_APPEND | O_NONBLOCK | O_CLOEXEC;
  Descriptor file(::open(path.c_str(), flags | O_CREAT | O_EXCL, 0644));
  const bool is_new = file.valid();
  if (!is_new && errno == EEXIST) file = Descriptor(::open(path.c_str(), flags));
  if (file.valid()) return std::unique_ptr<LogFile>(new LogFile(path, is_new, std::move(file), level));
  return Status(code_of_errno(errno, StatusCode::unavailable),
                fmt::format("--log-file {}: cannot be opened: {}; name a file that can be written", path,
                            std::strerror(errno)),
                errno);
}

LogFile::LogFile(std::string path, bool is_new, Descriptor file, LogLevel level)
    : path_(std::move(path)), is_new_(is_new), file_(std::move(file)), level_(level) {}

LogFile::~LogFile() {
  bring_out();
}

Status LogFile::write(const Record& record) {
  if (record.kind == RecordKind::start) starts_[record.rank] = record.body;
  const LogLevel level = level_of(record);
  if (level < level_) return failure_;
  const auto start = starts_.find(value_at<int>(record.body, "rank").value_or(-1));  // of the faulty rank
  // Log lines are read without context, so they include the hostname.
  std::string line = line_of(record, start == starts_.end() ? Json() : start->second, starts_.size(), true);
  for (std::size_t at; (at = line.find("\n  ")) != std::string::npos;) line.replace(at, 3, "; ");
  pending_ += fmt::format("{} {} {}\n", utc_at(record.time), level_names[static_cast<int>(level)],
                          printable(fmt::format("rank {}: {}", record.rank, line), ' '));
  if (level >= LogLevel::warning || record.kind == RecordKind::end || pending_.size() > max_pending_bytes)
    bring_out();
  return failure_;
}

Status LogFile::flush() {
  if (!pending_.empty() && seconds_since(flushed_) >= flush_period_s) bring_out();
  return failure_;
}

void LogFile::bring_out() {
  const int error = write_all(file_.get(), pending_);
  if (error != 0 && failure_.ok())
    failure_ = Status(StatusCode::io_error,
                      fmt::format("--log-file {}: lines are lost: {}", path_, std::strerror(error)));
  pending_.clear();
  flushed_ = Clock::now();
}

void LogFile::discard() {
  if (is_new_) ::unlink(path_.c_str());
}

}  // namespace egt
