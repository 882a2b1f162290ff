#pragma once

#include <atomic>
#include <cstdint>
#include <list>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "egt/core/clock.hpp"

namespace egt {

/// Current activity of one thread of a rank.
struct Activity {
  std::string line;              ///< "main", "journal" (also the main thread's), "file", "memory"
  std::string phase;             ///< its work or wait: "train: sums", "write"; empty: idle
  std::int64_t step = -1;        ///< training step; -1: none
  bool waits_for_peers = false;  ///< the thread's own work is done; it waits for data of its peers
  double patience_seconds = 0;   ///< allowed duration; 0: as long as a collective may last
  double seconds = 0;            ///< since the activity began, or since its last beat
  bool beats = false;            ///< there was a beat since the activity began
  std::string file = {};         ///< of its current system call; empty: no file operation
  std::string task_state = {};   ///< of a thread in a long file operation, as ps prints it ("D"); else empty
};

/// "write of /mnt/a has not returned for 30.0 s (task state D: it waits for the disk)"
std::string blocked_file_text(const Activity& activity);

/// Activities of a rank's threads, so that another thread can report a stuck one. Each thread writes its own
/// line; any thread may read. A write needs a lock that is only held briefly.
class ProgressBoard {
 public:
  /// One thread's line; lives as long as the board.
  class Line {
   public:
    Line(std::string name, const SecondsClock& clock) : name_(std::move(name)), clock_(clock) {}
    /// Starts a new activity. The clock restarts, even for the same phase and step.
    void begin(std::string phase, std::int64_t step = -1, double patience_seconds = 0) {
      begin_file_operation(std::move(phase), {}, step, patience_seconds);
    }
    /// As `begin`, before a system call of this thread on `file`. The call never returns if the disk hangs.
    void begin_file_operation(std::string operation, std::string file, std::int64_t step = -1,
                              double patience_seconds = 0);
    /// From now on the thread waits for its peers. The activity's time still counts from its begin.
    void wait_for_peers(std::string phase);
    /// Ends `wait_for_peers`: the thread continues its own work at the same step. The clock restarts.
    void go_on(std::string phase);
    /// Reports progress within the activity: a piece of the work that the thread waits for is done. The clock
    /// restarts. Any thread; only stores the time.
    void beat() { beat_at_ = clock_(); }
    /// The thread is idle.
    void rest() { begin({}); }
    Activity read() const;

   private:
    const std::string name_;
    const SecondsClock& clock_;
    mutable std::mutex mutex_;
    Activity activity_;
    int task_ = 0;  ///< id of the thread of the file operation
    double since_ = clock_();
    std::atomic<double> beat_at_{since_};  ///< before `since_`: no beat in this activity
  };

  explicit ProgressBoard(SecondsClock clock = steady_seconds) : clock_(std::move(clock)) {}

  /// Creates the line at the first call with this name.
  Line& line(const std::string& name);
  /// All lines, in order of creation.
  std::vector<Activity> read() const;

 private:
  const SecondsClock clock_;
  mutable std::mutex mutex_;
  std::list<Line> lines_;
  std::vector<std::string> names_;
};

}  // namespace egt
