#pragma once

#include <cstdint>
#include <list>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "egt/core/clock.hpp"

namespace egt {

/// What one thread of a rank is doing.
struct Activity {
  std::string line;              ///< "main", "journal" (the main thread's, too), "file", "memory"
  std::string phase;             ///< what it does or waits for: "train: sums", "write"; empty: it rests
  std::int64_t step = -1;        ///< of training; -1: it has none
  bool waits_for_peers = false;  ///< it did its own part and waits for what others bring
  double patience_seconds = 0;   ///< how long this may take; 0: as long as a collective may
  double seconds = 0;            ///< since it began
  std::string file = {};         ///< on which it calls the system; empty: it is in no file operation
  std::string task_state = {};   ///< of a thread in a long file operation, as ps prints it ("D"); else empty
};

/// "write of /mnt/a has not returned for 30.0 s (task state D: it waits for the disk)"
std::string blocked_file_text(const Activity& activity);

/// Where a rank's threads tell what they do, so that a stuck one can be named by somebody else. Each writes
/// its own line; anybody may read. Writing costs a lock that nobody holds for long.
class ProgressBoard {
 public:
  /// One thread's line; stays as long as the board.
  class Line {
   public:
    Line(std::string name, const SecondsClock& clock) : name_(std::move(name)), clock_(clock) {}
    /// It begins something new. The clock starts again, also where it is the same phase and step.
    void begin(std::string phase, std::int64_t step = -1, double patience_seconds = 0) {
      begin_file_operation(std::move(phase), {}, step, patience_seconds);
    }
    /// As `begin`; the calling thread calls the system on `file`, which a frozen disk never answers.
    void begin_file_operation(std::string operation, std::string file, std::int64_t step = -1,
                              double patience_seconds = 0);
    /// From here on it waits for others: the clock goes on.
    void wait_for_peers(std::string phase);
    /// It goes on by itself, at the same step: the clock starts again.
    void go_on(std::string phase);
    /// It has nothing to do.
    void rest() { begin({}); }
    Activity read() const;

   private:
    const std::string name_;
    const SecondsClock& clock_;
    mutable std::mutex mutex_;
    Activity activity_;
    int task_ = 0;  ///< the thread in the file operation
    double since_ = clock_();
  };

  explicit ProgressBoard(SecondsClock clock = steady_seconds) : clock_(std::move(clock)) {}

  /// A new line at the first call with this name.
  Line& line(const std::string& name);
  /// All lines, in the order of their making.
  std::vector<Activity> read() const;

 private:
  const SecondsClock clock_;
  mutable std::mutex mutex_;
  std::list<Line> lines_;
  std::vector<std::string> names_;
};

}  // namespace egt
