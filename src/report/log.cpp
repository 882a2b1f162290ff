#include "report/log.hpp"

#include <fcntl.h>
#include <spdlog/logger.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <iterator>
#include <vector>

#include "egt/core/file_io.hpp"
#include "egt/core/json_access.hpp"
#include "egt/core/record_text.hpp"
#include "egt/core/text.hpp"
#include "report/console/console_text.hpp"

namespace egt {
namespace {

constexpr double flush_period_s = 1.0;
constexpr const char* line_pattern = "%Y-%m-%dT%H:%M:%S.%eZ %l %v";

spdlog::level::level_enum spdlog_level(LogLevel level) {
  constexpr spdlog::level::level_enum levels[] = {spdlog::level::trace, spdlog::level::debug,
                                                  spdlog::level::info,  spdlog::level::warn,
                                                  spdlog::level::err,   spdlog::level::off};
  return levels[static_cast<int>(level)];
}

std::chrono::system_clock::time_point time_of(const Record& record) {
  using std::chrono::milliseconds;
  const std::chrono::duration<double> seconds(record.time);
  return std::chrono::system_clock::time_point(std::chrono::round<milliseconds>(seconds));
}

/// Makes sure that `path` can be appended to, without waiting for a reader where it is a pipe; true where it
/// made the file. spdlog would make missing folders and try again for a while.
Result<bool> make_file(const std::string& path) {
  constexpr int flags = O_WRONLY | O_APPEND | O_NONBLOCK | O_CLOEXEC;
  int file = ::open(path.c_str(), flags | O_CREAT | O_EXCL, 0644);
  const bool is_new = file >= 0;
  if (file < 0 && errno == EEXIST) file = ::open(path.c_str(), flags);
  if (file >= 0) {
    ::close(file);
    return is_new;
  }
  return Status(code_of_errno(errno, StatusCode::unavailable),
                fmt::format("--log-file {}: cannot be opened: {}; name a file that can be written", path,
                            std::strerror(errno)),
                errno);
}

/// A logger of its own, unknown to spdlog's registry. Throws spdlog_ex.
std::unique_ptr<spdlog::logger> make_logger(const std::string& path, LogLevel level) {
  auto file = std::make_shared<spdlog::sinks::basic_file_sink_st>(path);
  auto logger = std::make_unique<spdlog::logger>("log-file", std::move(file));
  logger->set_formatter(
      std::make_unique<spdlog::pattern_formatter>(line_pattern, spdlog::pattern_time_type::utc));
  logger->set_level(spdlog_level(level));
  logger->flush_on(spdlog::level::warn);
  return logger;
}

std::string end_text(const Json& body) {
  const std::string reason = text_at(body, "reason"), error = text_at(member(body, "error"), "what");
  const std::string signal = text_at(body, "signal");
  std::string text = fmt::format("ended ({}): {}", reason, progress_text(body));
  if (!signal.empty()) text += fmt::format("; {}", signal);
  if (!error.empty()) text += fmt::format("; {}", error);
  return text;
}

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

Result<std::unique_ptr<LogFile>> LogFile::open(const std::string& path, LogLevel level) {
  EGT_TRY_ASSIGN(const bool is_new, make_file(path));
  try {
    return std::unique_ptr<LogFile>(new LogFile(path, is_new, make_logger(path, level)));
  } catch (const spdlog::spdlog_ex& error) {
    if (is_new) ::unlink(path.c_str());
    return Status(StatusCode::unavailable, fmt::format("--log-file {}: {}", path, error.what()));
  }
}

LogFile::LogFile(std::string path, bool is_new, std::unique_ptr<spdlog::logger> logger)
    : path_(std::move(path)), is_new_(is_new), logger_(std::move(logger)) {
  logger_->set_error_handler([this](const std::string& what) {
    if (failure_.ok())
      failure_ = Status(StatusCode::io_error, fmt::format("--log-file {}: lines are lost: {}", path_, what));
  });
}

LogFile::~LogFile() = default;

Status LogFile::write(const Record& record) {
  if (record.kind == RecordKind::start) starts_[record.rank] = record.body;
  const auto level = spdlog_level(level_of(record));
  if (!logger_->should_log(level)) return failure_;
  logger_->log(time_of(record), spdlog::source_loc{}, level,
               printable(fmt::format("rank {}: {}", record.rank, text_of(record)), ' '));
  dirty_ = true;
  if (record.kind == RecordKind::end) bring_out();
  return failure_;
}

Status LogFile::flush() {
  if (dirty_ && seconds_since(flushed_) >= flush_period_s) bring_out();
  return failure_;
}

void LogFile::bring_out() {
  logger_->flush();
  flushed_ = Clock::now();
  dirty_ = false;
}

void LogFile::discard() {
  if (is_new_) ::unlink(path_.c_str());
}

std::string LogFile::text_of(const Record& record) const {
  switch (record.kind) {
    case RecordKind::start:
      return start_text(record.body);
    case RecordKind::epoch:
      return epoch_text(record.body, starts_.size());
    case RecordKind::progress:
      return progress_text(record.body);
    case RecordKind::fault:
      return fault_line(record);
    case RecordKind::injection:
      return injection_text(record);
    case RecordKind::notice:
      return text_at(record.body, "text");
    case RecordKind::loss:
      return loss_text(record.body);
    case RecordKind::late_stop:
      return late_stop_text(record.body);
    case RecordKind::finding:
      return finding_text(record.body);
    case RecordKind::restart:
      return restart_text(record.body);
    case RecordKind::end:
      return end_text(record.body);
  }
  return {};
}

std::string LogFile::start_text(const Json& body) const {
  std::string text = fmt::format("started: {}", text_at(body, "command"));
  for (const Json& argument : member(body, "arguments"))
    if (argument.is_string() && argument != member(body, "command"))
      text += fmt::format(" {}", argument.get<std::string>());
  return fmt::format("{}; {}", text, device_text(body, true));
}

/// The hosts are named: a line of a log is read alone.
std::string LogFile::fault_line(const Record& record) const {
  const auto start = starts_.find(value_at<int>(record.body, "rank").value_or(-1));
  return fault_text(record, start == starts_.end() ? Json() : start->second, true);
}

}  // namespace egt
