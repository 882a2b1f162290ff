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

/// Writes the records of a run as plain log lines: "2026-01-31T23:59:59.123Z warning rank 3: no telemetry".
/// Warnings, errors and a rank's end are in the file when `write` returns. Other lines follow within a
/// second, if `flush` is called regularly. Used by one thread at a time.
class LogFile : public Sink {
 public:
  /// Appends to `path`, or creates the file in an existing folder. Accepts records of `level` and above.
  static Result<std::unique_ptr<LogFile>> open(const std::string& path, LogLevel level);
  ~LogFile() override;
  LogFile(const LogFile&) = delete;
  LogFile& operator=(const LogFile&) = delete;

  /// After a failure such as a full disk, always returns that failure. Lines that can be written still are.
  Status write(const Record& record) override;
  Status flush() override;

  /// Called if the run did not start: removes the file if `open` created it.
  void discard();

 private:
  LogFile(std::string path, bool is_new, Descriptor file, LogLevel level);
  void bring_out();

  const std::string path_;
  const bool is_new_;
  const Descriptor file_;
  const LogLevel level_;
  Status failure_;
  std::string pending_;         // lines not yet in the file
  std::map<int, Json> starts_;  // bodies by rank
  Clock::time_point flushed_ = Clock::now();
};

}  // namespace egt
