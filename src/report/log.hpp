#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <string>

#include "egt/core/clock.hpp"
#include "egt/core/file_io.hpp"
#include "egt/report/sink.hpp"
#include "report/log_level.hpp"

namespace egt {

/// The records of a run as plain lines in a file, for people and for programs that watch logs:
/// "2026-01-31T23:59:59.123Z warning rank 3: no telemetry". A line that has to be seen at once (warnings,
/// errors, a rank's end) is in the file when `write` returns, the others at most a second later, as long as
/// `flush` is called. Used by one thread at a time.
class LogFile : public Sink {
 public:
  /// Appends to `path`, or makes the file; the folder must be there. Takes records of `level` and graver.
  static Result<std::unique_ptr<LogFile>> open(const std::string& path, LogLevel level);
  ~LogFile() override;
  LogFile(const LogFile&) = delete;
  LogFile& operator=(const LogFile&) = delete;

  /// After a failure (a full disk): that failure for good; what can be written still is.
  Status write(const Record& record) override;
  Status flush() override;

  /// The run did not begin: removes the file if `open` made it.
  void discard();

 private:
  LogFile(std::string path, bool is_new, Descriptor file, LogLevel level);
  void bring_out();

  const std::string path_;
  const bool is_new_;
  const Descriptor file_;
  const LogLevel level_;
  Status failure_;
  std::string pending_;         // lines that are not in the file yet
  std::map<int, Json> starts_;  // bodies by rank
  Clock::time_point flushed_ = Clock::now();
};

}  // namespace egt
