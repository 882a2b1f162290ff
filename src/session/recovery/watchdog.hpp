#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "egt/core/clock.hpp"
#include "egt/core/progress_board.hpp"
#include "egt/core/status.hpp"
#include "egt/ranks/heartbeat.hpp"
#include "session/recovery/failure_detector.hpp"

namespace egt {

/// Callbacks for the watchdog's decisions. Called on the watchdog's thread.
struct WatchdogHooks {
  /// Called once per restart. Must interrupt the main thread's wait for peers, within the silence limit.
  std::function<void(const RestartOrder&)> on_restart;
  /// Called once, if the run cannot continue on any rank. Writes all known results and ends the process. If
  /// it returns, nothing is judged any more, but news is still sent.
  std::function<void(const std::vector<Loss>&)> on_give_up;
  /// Seconds since a stop signal; 0: none. mpirun ends ranks soon after a signal; they are not lost.
  std::function<double()> stopping_for;
  /// Called once, some time after a stop signal, since this process may be killed at any moment. The argument
  /// lists what the main threads of all ranks still do.
  std::function<void(std::vector<LateStop>)> on_late_stop;
};

/// Thread on every rank that reports this rank's activities to all others, and detects stuck or lost ranks by
/// `failure_detector.hpp`. The lowest rank that answers decides for all.
class Watchdog {
 public:
  /// `heartbeat` and `board` outlive the watchdog. After `start` nothing else uses the heartbeat. `ranks`:
  /// identities of all ranks, in rank order. No thread runs and no message is sent before `start`.
  Watchdog(Heartbeat& heartbeat, const ProgressBoard& board, std::vector<WatchedRank> ranks,
           const WatchOptions& options, WatchdogHooks hooks, SecondsClock clock = steady_seconds);
  /// Calls `leave` if it was not called before.
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  /// Starts the thread; from here on silent peers are judged. All ranks start at about the same time, right
  /// after the heartbeat was opened. unavailable if the thread cannot be created.
  Status start();

  /// Reports that this rank cannot continue. All ranks abort soon; the call does not wait for it. Any thread.
  void fail(const Status& why, const Json& fault = nullptr);
  /// Waits until `on_give_up` has returned, for up to `seconds`. Not on the watchdog's thread.
  void await_end(double seconds);
  /// The restart after which this rank's main thread has not resumed yet. Any thread; only locks a mutex.
  std::optional<RestartOrder> restart_ordered() const;
  /// Reports that the main thread joined restart `number`, left the old communicator, and waits.
  void arrived(int number);
  /// Returns whether all joined restart `number`. The main thread polls it before it builds the new
  /// communicator.
  bool all_arrived(int number) const;
  /// Reports that the main thread has the new communicator and resumes.
  void resumed(int number);
  /// Reports that the main thread has completed all its steps and joins no further restart.
  void end_steps();
  /// Orderly shutdown: sends a goodbye, ends the thread, and judges no rank any more. Once; main thread.
  void leave();
  /// Returns whether another rank reported this one as lost. Reads the news that arrived while this process
  /// was stopped, and waits up to a second for the watchdog's thread. Any thread.
  bool given_up();

  // Calls for on_give_up, on the watchdog's thread only.

  /// Returns whether this rank writes the result. All ranks agree on it.
  bool is_deputy() const;
  /// All other ranks in their current state.
  std::vector<Peer> peers();
  /// Sends `word` to all remaining ranks. On each of them, `heard(word)` is true once it has arrived.
  void report_all(const std::string& word);
  bool heard(const std::string& word);
  /// Exchanges news until `done` (true), or for up to `seconds` (false).
  bool wait_until(const std::function<bool()>& done, double seconds);

 private:
  void run();
  void turn(double wait_seconds);
  double exchange(double wait_seconds);
  void send_news(double now);
  void take_news(double now);
  void take_peer(const Peer& peer, double now);
  void adopt(const RestartOrder& order, double now);
  void follow(double now);
  void decide(double now);
  void give_up(const std::vector<Loss>& losses);
  double stopping_for() const;
  void report_late_stop(double now);
  void change(const std::function<void(WatchNews&)>& change);
  WatchNews own_news() const;

  Heartbeat& heartbeat_;
  const ProgressBoard& board_;
  const WatchOptions options_;
  const WatchdogHooks hooks_;
  const SecondsClock clock_;

  // Used only by the watchdog's thread.
  WatchTable table_;
  std::vector<std::uint64_t> texts_;  ///< number of texts read, by rank
  double sent_at_ = -1;
  double turned_at_ = 0;
  bool restarting_ = false;  ///< a restart is in progress
  bool ending_ = false;      ///< on_give_up was called
  bool late_stop_told_ = false;

  mutable std::mutex mutex_;  ///< protects the members below
  std::condition_variable progressed_;
  bool changed_ = false;  ///< `mine_` changed since it was sent
  WatchNews mine_;        ///< this rank's news without activities
  int all_arrived_ = 0;
  bool lost_ = false;   ///< this rank is among the losses
  bool ended_ = false;  ///< on_give_up has returned
  std::uint64_t drain_wanted_ = 0, drain_done_ = 0;
  bool leaving_ = false;

  std::jthread thread_;  ///< last, so that it is joined before the other members are destroyed
};

}  // namespace egt
