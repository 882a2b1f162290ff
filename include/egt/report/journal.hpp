#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "egt/core/clock.hpp"
#include "egt/report/sink.hpp"

namespace egt {

/// "journal.rank3.jsonl"
std::string journal_name(int rank);

/// A rank's records as they happen, one JSON line each; move-only. A fault or end record is on disk when
/// `write` returns, the others at most a second after, as long as `flush` is called.
class Journal : public Sink {
 public:
  /// Creates the file; an error where it exists already, so that two runs do not mix.
  static Result<Journal> open(const std::string& directory, int rank);
  Journal(Journal&& other) noexcept;
  Journal& operator=(Journal&&) = delete;
  ~Journal() override;

  /// One write(2) of a whole line. On a full disk: no_space, and the file still ends with a whole line.
  Status write(const Record& record) override;
  /// To the disk, at most once a second.
  Status flush() override;

 private:
  Journal(int file, std::string path) : file_(file), path_(std::move(path)) {}
  Status failed(const char* what, int error) const;
  Status sync();

  int file_;
  std::string path_;
  std::int64_t length_ = 0;  // bytes of whole lines
  bool dirty_ = false;
  Clock::time_point synced_ = Clock::now();
};

/// All records of a journal. A last line that a crash tore is left out; any other bad line is an error.
Result<std::vector<Record>> read_journal(const std::string& path);

}  // namespace egt
