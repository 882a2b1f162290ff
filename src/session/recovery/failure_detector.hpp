#pragma once

#include <optional>
#include <string>
#include <vector>

#include "egt/core/progress_board.hpp"
#include "egt/core/record.hpp"
#include "session/options.hpp"

namespace egt {

/// Orders all ranks to abort the communicator and to meet for a new one.
struct RestartOrder {
  int number = 0;                ///< restart number in this run, from 1; 0: none yet
  std::vector<Loss> waited_for;  ///< ranks that blocked the others when the timeout expired
};

/// The whole state of a rank, sent by its watchdog to all others. Only the newest message counts.
struct WatchNews {
  std::vector<Activity> activities;   ///< activities of its threads
  std::optional<std::string> failed;  ///< why its main thread cannot continue
  Json fault;                         ///< if `failed` by the device: body of the fault's record; else null
  bool by_restart = false;            ///< `failed` because of a restart outside its steps
  int arrived = 0;                    ///< newest restart that its main thread joined
  int resumed = 0;                    ///< newest restart after which it resumed
  bool steps_ended = false;        ///< its main thread has completed all steps and joins no further restart
  RestartOrder order;              ///< newest order known to it
  std::vector<Loss> given_up;      ///< losses because of which the rank aborts
  std::vector<std::string> words;  ///< messages of its crash report
};

std::string to_text(const WatchNews& news);
/// std::nullopt if the text is not from this program.
std::optional<WatchNews> parse_watch_news(const std::string& text);

/// Identity of a watched rank.
struct WatchedRank {
  std::string hostname;
  std::string device_uuid;
};

/// One rank as another sees it. All times are seconds on the watching rank's monotonic clock.
struct RankView {
  WatchedRank who;
  WatchNews news;
  double heard_at = 0;              ///< when `news` arrived (activity times count up to here)
  std::optional<double> gone_at;    ///< when its connection ended without a goodbye
  bool gone_in_stop = false;        ///< gone after this process was asked to stop
  std::optional<double> failed_at;  ///< when its main thread's failure became known
  bool left = false;                ///< it sent a goodbye
};

/// Input of a watchdog's decisions.
struct WatchTable {
  int self = 0;
  std::vector<RankView> ranks;  ///< by rank, including `self`
  /// Events before this time do not count: the start, the end of the newest restart, or when this process
  /// last resumed after it had been stopped.
  double watched_from = 0;
  RestartOrder order;
  double ordered_at = 0;
  std::optional<double> all_arrived_at;  ///< when all had joined restart `order.number`
  std::vector<Loss> as_ordered;          ///< by rank: its main thread when the order came
};

/// Decision of the watchdog.
struct WatchDecision {
  enum class Act { none, restart, give_up };
  Act act = Act::none;
  std::vector<Loss> losses;  ///< restart: ranks waited for; give_up: lost ranks
};

namespace watch {

constexpr double min_silence_seconds = 2;
constexpr double quiet_seconds = 1;     ///< without news: the rank may be silent, so blame no other rank yet
constexpr double gather_seconds = 0.1;  ///< ranks that end together are reported together
constexpr double arrival_grace_seconds = 10;  ///< max wait for all ranks at a restart
/// After a stop signal mpirun ends ranks. A rank that still runs after this time reports the others as lost.
constexpr double stop_excuse_seconds = 5;

/// Max time without a message from a connected rank.
double silence_limit(const WatchOptions& options);
/// Max duration of a thread's activity: its own limit if set, else the limit of its progress line.
double patience(const Activity& activity, const WatchOptions& options);

}  // namespace watch

/// The rank that decides for all: the lowest one that answers.
int leader(const WatchTable& table, const WatchOptions& options, double now);
/// The rank that writes the result after `losses`: the lowest rank that is not lost or has only failed. A
/// failed process still has its records, and rank 0 has those of all ranks. If there is no such rank, it is
/// the lowest stuck rank.
int deputy(const std::vector<Loss>& losses, int size);
/// A restart was ordered, and not all ranks have resumed.
bool restart_open(const WatchTable& table);
bool all_arrived(const WatchTable& table);
/// Current state of every rank's main thread, by rank.
std::vector<Loss> main_threads(const WatchTable& table, const WatchOptions& options, double now);

/// Activities of all participating ranks' main threads, by rank, after a stop request. `signal` is not set.
std::vector<LateStop> late_stops(const WatchTable& table, double now);

/// The rules:
/// - A rank exited unexpectedly or failed: abort. If it failed because a restart interrupted it, the ranks
///   that the restart waited for are lost.
/// - A main thread is stuck or a rank is silent: restart if max_restarts allows it and no rank's steps have
///   ended, else abort. A rank whose steps have not ended and that does not join in time is lost.
/// - A background thread is stuck: abort. If a main thread is stuck while a file operation has run for half
///   the collective timeout, the file operation is blamed instead: abort.
/// - Of several stuck main threads, those that do not wait for peers are blamed, or those at the min step if
///   all wait.
WatchDecision judge(const WatchTable& table, const WatchOptions& options, double now);

}  // namespace egt
