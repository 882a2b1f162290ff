#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "egt/core/clock.hpp"
#include "egt/core/file_io.hpp"
#include "egt/report/sink.hpp"

namespace egt {

/// "journal.rank3.jsonl"
std::string journal_name(int rank);

/// Number of numbered records of a rank in this part of the run. Every record that is evidence has a number,
/// starting at 1, so that readers detect gaps. Journals of earlier versions have none.
using RecordCount = std::atomic<std::uint64_t>;

/// Limits the journal of a long run. The distance between kept progress records is at least 0.1 % of the time
/// so far, also between epoch records. With one record per second, a day has 5,500 of each kind and a month
/// 8,900, of about 10 KB each. All other records are kept.
class RecordSpacing {
 public:
  /// Whether to keep this record; `seconds` since the journal was opened.
  bool admits(RecordKind kind, double seconds);

 private:
  std::map<RecordKind, double> last_;  ///< time of the last record kept
};

/// Writes a rank's records as JSON lines. Each record is in the page cache when `write` returns, so a process
/// crash loses none. Faults (also injected ones), losses, and the end of a run without a signal are also on
/// disk by then. Others are synced within about a second by the journal's own thread, since a busy disk may
/// block.
///
/// The file is locked while the process lives, so that no other process writes to it.
///
/// Used by one thread. The destructor waits at most a few seconds for the disk.
class Journal : public Sink {
 public:
  enum class Mode {
    create,  ///< a new file; fails if it exists, so that two runs do not mix
    resume,  ///< appends, after removing an incomplete last line; creates the file if missing
  };
  /// unavailable: it cannot be created, or another process is writing it, as the text states. no_space: the
  /// disk cannot hold the run's first records; no new file remains.
  static Result<std::unique_ptr<Journal>> open(const std::string& directory, int rank,
                                               Mode mode = Mode::create);
  Journal(const Journal&) = delete;
  Journal& operator=(const Journal&) = delete;
  ~Journal() override;

  /// Why the file system did not lock the file, and what to avoid; empty if it is locked.
  const std::string& unlocked() const { return unlocked_; }
  /// Record counter for `append_records`; may outlive the journal.
  const std::shared_ptr<RecordCount>& count() const { return count_; }
  /// One write(2) per whole line. On a full disk: no_space, and the file still ends with a whole line.
  Status write(const Record& record) override;
  /// Never waits. Reports a file that could not be synced, or that was deleted, replaced or truncated during
  /// the run.
  Status flush() override;

 private:
  struct Shared;

  Journal(std::string path, Descriptor file);
  Status start();
  Status failed(const char* what, int error) const;
  Status sync();

  const std::string path_;
  std::string unlocked_;
  const std::shared_ptr<RecordCount> count_ = std::make_shared<RecordCount>(0);
  const std::shared_ptr<Shared> shared_;
  const Clock::time_point opened_ = Clock::now();
  RecordSpacing spacing_;
  Clock::time_point looked_ = Clock::now();  ///< last check that the file is still in place
  std::thread keeper_;  ///< shares ownership of `shared_`, since a hanging disk may outlive the journal
};

/// Waits until no process writes the journals of `directory`. Processes may need some seconds to exit after
/// mpirun has ended. After `patience_seconds`: unavailable, with the rank that still writes.
Status await_writers(const std::string& directory, double patience_seconds);

/// Appends the final records of another writer, such as a watchdog, to the journal of the rank of `records`
/// and syncs them. Callable from any thread. `records` must have one rank; `count` comes from the journal.
/// After at most `seconds`, returns `timeout`, and the lines may or may not arrive. On other errors `records`
/// keeps those not in the file; otherwise it is empty.
Status append_records(const std::string& directory, std::vector<Record>& records,
                      const std::shared_ptr<RecordCount>& count, double seconds = 2.0);

/// Checks that the last start record in the journal of each of these ranks is followed by an end record: the
/// disk may lack what was written to it. Reads the end of each file, repeatedly for `patience_seconds`, since
/// a network file system may show it later.
Status check_ends(const std::string& directory, const std::vector<int>& ranks, double patience_seconds = 2);

/// The content of a run's journals.
struct Journals {
  std::vector<Record> records;  ///< by rank, in the order they were written
  std::vector<int> ranks;       ///< ranks that left a journal, in order
  /// Invalid lines, unreadable files and missing records: the first few of each file, and the number of
  /// others.
  std::vector<std::string> problems;
};

/// Which records to return.
enum class JournalContent {
  everything,
  evidence,  ///< input of the verdict and result, a small part of a long run: no epochs or notices, and only
             ///< the last of consecutive progress records
};

/// Reads all records of all journals in `directory`, without incomplete last lines left by a crash.
/// unavailable: no such directory, or no journal in it. `see`, if not null, gets each record in turn, also
/// those that `content` excludes.
Result<Journals> read_journals(const std::string& directory,
                               JournalContent content = JournalContent::everything, Sink* see = nullptr);

}  // namespace egt
