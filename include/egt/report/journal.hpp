#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "egt/report/sink.hpp"

namespace egt {

/// "journal.rank3.jsonl"
std::string journal_name(int rank);

/// A rank's records as they happen, one JSON line each. Every record is the system's when `write` returns, so
/// that a crash of the process loses none. A fault, put in on purpose or not, and the end of a run that no
/// signal hurries, is on disk by then too; the others follow within about a second, from a thread of the
/// journal's own: a busy disk may take long.
class Journal : public Sink {
 public:
  /// Creates the file; an error where it exists already, so that two runs do not mix.
  static Result<std::unique_ptr<Journal>> open(const std::string& directory, int rank);
  Journal(const Journal&) = delete;
  Journal& operator=(const Journal&) = delete;
  ~Journal() override;

  /// One write(2) of a whole line. On a full disk: no_space, and the file still ends with a whole line.
  Status write(const Record& record) override;
  /// Never waits: tells whether the records so far could be brought to the disk.
  Status flush() override;

 private:
  Journal(int file, std::string path);
  Status failed(const char* what, int error) const;
  Status sync();
  void keep_syncing(const std::stop_token& stop);

  const int file_;
  const std::string path_;
  std::int64_t length_ = 0;  // bytes of whole lines
  std::atomic<bool> dirty_ = false;
  std::atomic<int> sync_error_ = 0;  // errno, of the thread
  std::mutex mutex_;
  std::condition_variable_any wake_;
  std::jthread syncer_;  // last: it uses all of the above
};

/// All records of a journal. A last line that a crash tore is left out; any other bad line is an error.
Result<std::vector<Record>> read_journal(const std::string& path);

}  // namespace egt
