#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "egt/core/clock.hpp"
#include "egt/core/file_io.hpp"
#include "egt/report/sink.hpp"

namespace egt {

/// "journal.rank3.jsonl": the file that is being written. Of a long run there are parts that came before it,
/// "journal.rank3.1-7.jsonl"; `read_journals` knows them.
std::string journal_name(int rank);

/// How many records of a rank were numbered in this part of the run. Every record that is evidence has a
/// number, from 1, so that a reader sees which ones are missing. Journals of earlier versions have none.
using RecordCount = std::atomic<std::uint64_t>;

/// How large a rank's journal may become, bytes.
struct JournalLimits {
  std::int64_t part = 32 << 20;     ///< then the file is closed, and another one begun
  std::int64_t history = 32 << 20;  ///< of all closed parts together: then they are thinned
};

/// A rank's records as they happen, one JSON line each. Every record is the system's when `write` returns, so
/// that a crash of the process loses none. A fault, put in on purpose or not, a loss and the end of a run
/// that no signal hurries are on disk by then too; the others follow within about a second, from a thread of
/// the journal's own: a busy disk may take long.
///
/// It stays bounded however long the run is: the same thread thins the closed parts, of which progress, epoch
/// and notice records are kept at a distance of 2^k seconds, as small as `history` allows and the same from
/// the run's beginning to its end. All other records stay for good. At no moment is a record in no file, or a
/// part half written: a crash leaves the parts before or after the thinning, or both, which the reader tells.
///
/// It is locked as long as the process lives, however that ends, so that no other one writes to it as well.
///
/// Used by one thread. Its destructor waits for the disk some seconds at most.
class Journal : public Sink {
 public:
  enum class Mode {
    create,  ///< a new file; an error where it exists already, so that two runs do not mix
    resume,  ///< goes on behind what is there, less a last line that a crash tore; or begins, where none is
  };
  /// unavailable: it cannot be made, or another process writes it, of which the text tells. no_space: the
  /// disk does not even take a run's first records; then no new file is left.
  static Result<std::unique_ptr<Journal>> open(const std::string& directory, int rank,
                                               Mode mode = Mode::create, const JournalLimits& limits = {});
  Journal(const Journal&) = delete;
  Journal& operator=(const Journal&) = delete;
  ~Journal() override;

  /// Why the file system did not lock the file, and what not to do; empty: it did.
  const std::string& unlocked() const { return unlocked_; }
  /// For `append_records`; outlives the journal.
  const std::shared_ptr<RecordCount>& count() const { return count_; }
  /// One write(2) of a whole line. On a full disk: no_space, and the file still ends with a whole line.
  Status write(const Record& record) override;
  /// Never waits. Reports a file that could not be synced, or that was deleted, replaced or truncated during
  /// the run.
  Status flush() override;

 private:
  struct Shared;

  Journal(std::string directory, int rank, const JournalLimits& limits,
          std::shared_ptr<const Descriptor> file);
  Status start();
  Status failed(const char* what, int error) const;
  Status sync();
  void rotate(std::int64_t length);
  std::optional<std::string> next_part() const;

  const std::string directory_;
  const int rank_;
  const JournalLimits limits_;
  const std::string path_;
  std::shared_ptr<const Descriptor> file_;  ///< a thread that the disk holds may use it last
  std::string unlocked_;
  std::int64_t rotate_at_;  ///< bytes
  const std::shared_ptr<RecordCount> count_ = std::make_shared<RecordCount>(0);
  const std::shared_ptr<Shared> shared_;
  Clock::time_point looked_ = Clock::now();  ///< whether the file is still in its place
  std::thread keeper_;  ///< owns a share of `shared_`: a disk that hangs may outlive the journal
};

/// Waits until no process writes the journals of `directory` any more: those of a run whose mpirun has ended
/// may take some seconds to end too. unavailable after `patience_seconds`: which rank's does.
Status await_writers(const std::string& directory, double patience_seconds);

/// The last words of somebody else than the journal's owner, a watchdog say, and from any thread: lines more
/// at the end of the journal of the rank of `records` (all of one), brought to the disk. Takes `seconds` at
/// most, then `timeout`: whether the lines arrive is not known. On any other error `records` keeps those that
/// are not in the file; else it is empty then. `count`: of the journal.
Status append_records(const std::string& directory, std::vector<Record>& records,
                      const std::shared_ptr<RecordCount>& count, double seconds = 2.0);

/// What the journals of a run hold.
struct Journals {
  std::vector<Record> records;  ///< by rank, in the order of their writing
  std::vector<int> ranks;       ///< that left a journal, in order
  /// Lines that are no records of the rank, files that cannot be read, and missing records; of each file the
  /// first few, and how many more.
  std::vector<std::string> problems;
};

/// Which records of a journal are wanted.
enum class JournalContent {
  everything,
  evidence,  ///< what the verdict and the result are made of, so little of a long run: no epochs, no notices,
             ///< and of progress records that follow each other the last
};

/// All records of all ranks that left a journal in `directory`, of all its parts; what a crash tore off is
/// left out. unavailable: no such directory, or not one journal in it. `see` gets each record in turn, also
/// those that `content` leaves out; null: nobody.
Result<Journals> read_journals(const std::string& directory,
                               JournalContent content = JournalContent::everything, Sink* see = nullptr);

}  // namespace egt
