#pragma once

#include <optional>
#include <string>
#include <vector>

#include "egt/core/progress_board.hpp"
#include "egt/core/record.hpp"
#include "session/options.hpp"

namespace egt {

/// All ranks are to give up the communicator and to meet for a new one.
struct RestartOrder {
  int number = 0;                ///< of this run, from 1; 0: none yet
  std::vector<Loss> waited_for;  ///< who held the others up, as it was when the timeout struck
};

/// What a rank's watchdog reports to all others: its whole state, so that only the newest counts.
struct WatchNews {
  std::vector<Activity> activities;   ///< of its threads
  std::optional<std::string> failed;  ///< its main thread cannot go on, and why
  Json fault;                         ///< .. the body of its record, if the device failed; else null
  bool by_restart = false;            ///< .. since a restart interrupted it where it cannot restart
  int arrived = 0;                    ///< the newest restart that its main thread came to
  int resumed = 0;                    ///< the newest restart that it went on after
  bool steps_ended = false;           ///< its main thread has done them all: it comes to no restart any more
  RestartOrder order;                 ///< the newest that it knows of
  std::vector<Loss> given_up;         ///< it ends, because of these
  std::vector<std::string> words;     ///< what its crash report said
};

std::string to_text(const WatchNews& news);
/// None: the text is not of this program.
std::optional<WatchNews> parse_watch_news(const std::string& text);

/// Who is watched.
struct WatchedRank {
  std::string hostname;
  std::string device_uuid;
};

/// One rank, as another sees it. All times are seconds on the watching rank's own monotonic clock.
struct RankView {
  WatchedRank who;
  WatchNews news;
  double heard_at = 0;              ///< when `news` came (its activities' seconds count up to here)
  std::optional<double> gone_at;    ///< its connection ended without a goodbye
  bool gone_in_stop = false;        ///< .. after this process was asked to stop
  std::optional<double> failed_at;  ///< when its main thread's failure came to be known
  bool left = false;                ///< it said goodbye
};

/// All that a rank's watchdog judges by.
struct WatchTable {
  int self = 0;
  std::vector<RankView> ranks;  ///< by rank; `self` too
  /// Nothing that was before counts: the start, the end of the newest restart, or when this process last woke
  /// up after it had been stopped.
  double watched_from = 0;
  RestartOrder order;
  double ordered_at = 0;
  std::optional<double> all_arrived_at;  ///< at restart `order.number`
  std::vector<Loss> as_ordered;          ///< every rank's main thread when the order came, by rank
};

/// What is to be done.
struct WatchDecision {
  enum class Act { none, restart, give_up };
  Act act = Act::none;
  std::vector<Loss> losses;  ///< restart: who is waited for; give_up: who is lost
};

namespace watch {

constexpr double least_silence_seconds = 2;
constexpr double quiet_seconds = 1;     ///< without news: it may be silent soon, so nobody else is blamed yet
constexpr double gather_seconds = 0.1;  ///< ranks that end together are named together
constexpr double arrival_grace_seconds = 10;  ///< for which all are waited for at a restart
/// After a stop signal mpirun ends ranks by itself; who outlives that calls the others lost after all.
constexpr double stop_excuse_seconds = 5;

/// For how long a connected rank may say nothing.
double silence_limit(const WatchOptions& options);
/// For how long a thread's activity may last: its own patience, else by its line.
double patience(const Activity& activity, const WatchOptions& options);

}  // namespace watch

/// The rank that decides for all: the lowest one that answers.
int leader(const WatchTable& table, const WatchOptions& options, double now);
/// The rank that writes the result when `losses` are lost: the lowest one that is not among them or only
/// failed, since its process still has its records, and rank 0 those of all; if there is none, the lowest
/// that is stuck.
int deputy(const std::vector<Loss>& losses, int size);
/// A restart was ordered and not everybody went on after it.
bool restart_open(const WatchTable& table);
bool all_arrived(const WatchTable& table);
/// Every rank's main thread as it is now, by rank.
std::vector<Loss> main_threads(const WatchTable& table, const WatchOptions& options, double now);

/// The main threads of the ranks that take part, by rank, in a run that is told to stop. Without the signal.
std::vector<LateStop> late_stops(const WatchTable& table, double now);

/// The rules. A rank that vanished or failed: give up; if it failed since a restart interrupted it, those are
/// lost that the restart waited for. A main thread that is stuck, or a rank that is silent:
/// a restart while there is one left and no rank's steps have ended, else give up; who does not come to the
/// restart in time, though its steps have not ended, is lost. A background thread that is stuck: give up. If
/// one is in a file operation for half the collective timeout when a main thread is stuck, the file operation
/// is named instead: give up. Of several stuck main threads those are to blame that do not wait for peers;
/// where all wait, those at the least step.
WatchDecision judge(const WatchTable& table, const WatchOptions& options, double now);

}  // namespace egt
