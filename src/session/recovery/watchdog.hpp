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

/// What the owner does when the watchdog decides. Called on the watchdog's thread.
struct WatchdogHooks {
  /// Once per restart; makes the main thread's wait for peers end soon. Returns within the silence limit.
  std::function<void(const RestartOrder&)> on_restart;
  /// Once: the run cannot go on, on any rank. Writes what is known and ends the process (or returns: then
  /// nothing is judged any more, news still go out).
  std::function<void(const std::vector<Loss>&)> on_give_up;
  /// Seconds since a stop signal came; 0: none did. Soon after it mpirun ends ranks, which is no loss.
  std::function<double()> stopping_for;
  /// Once, some time after a stop signal: this process may be killed at any moment. What the main threads of
  /// all ranks still do.
  std::function<void(std::vector<LateStop>)> on_late_stop;
};

/// A thread on every rank that reports to all others what this rank's threads do, and judges by
/// `failure_detector.hpp` whether somebody is stuck or gone: the lowest rank that answers decides for all.
class Watchdog {
 public:
  /// `heartbeat` and `board` outlive it; the heartbeat is the watchdog's alone from `start` on. `ranks`: by
  /// rank, of all. Nothing happens before `start`.
  Watchdog(Heartbeat& heartbeat, const ProgressBoard& board, std::vector<WatchedRank> ranks,
           const WatchOptions& options, WatchdogHooks hooks, SecondsClock clock = steady_seconds);
  /// Leaves, if that was not done.
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  /// The thread begins; from here on peers that say nothing are judged. All ranks start at about the same
  /// time: right after the heartbeat was opened. unavailable: there is no thread for it.
  Status start();

  /// This rank cannot go on. Any thread. All ranks give up soon; does not wait for that.
  void fail(const Status& why, const Json& fault = nullptr);
  /// Waits until `on_give_up` has returned, if it does, at most `seconds`. Not on the watchdog's thread.
  void await_end(double seconds);
  /// The restart that this rank's main thread has not gone on after. Any thread; takes a lock only.
  std::optional<RestartOrder> restart_ordered() const;
  /// The main thread came to restart `number`, touches the old communicator no more, and waits.
  void arrived(int number);
  /// Did all come to restart `number`? The main thread polls it before it builds the new communicator.
  bool all_arrived(int number) const;
  /// The main thread has the new communicator and goes on.
  void resumed(int number);
  /// The main thread has done all its steps: it comes to no restart any more.
  void end_steps();
  /// An orderly end: says goodbye and ends the thread. Nothing is judged any more. Once; the main thread.
  void leave();
  /// Did another rank give this one up? Looks at what came while this process slept (waits for the watchdog's
  /// thread, at most a second). Any thread.
  bool given_up();

  // For on_give_up, on the watchdog's thread only.

  /// Is this the rank that writes the result? Known to all alike.
  bool is_deputy() const;
  /// All other ranks, as they are now.
  std::vector<Peer> peers();
  /// Reports to all that are left; `heard` there is true from then on.
  void tell_all(const std::string& word);
  bool heard(const std::string& word);
  /// Goes on exchanging news until `done` (true) or at most `seconds` (false).
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
  void tell_late_stop(double now);
  void change(const std::function<void(WatchNews&)>& change);
  WatchNews own_news() const;

  Heartbeat& heartbeat_;
  const ProgressBoard& board_;
  const WatchOptions options_;
  const WatchdogHooks hooks_;
  const SecondsClock clock_;

  // Of the thread alone.
  WatchTable table_;
  std::vector<std::uint64_t> texts_;  ///< of each rank that were taken in
  double sent_at_ = -1;
  double turned_at_ = 0;
  bool restarting_ = false;  ///< a restart is under way
  bool ending_ = false;      ///< on_give_up was called
  bool late_stop_told_ = false;

  mutable std::mutex mutex_;  ///< of what follows
  std::condition_variable progressed_;
  bool changed_ = false;  ///< `mine_`, since it was sent
  WatchNews mine_;        ///< without the activities
  int all_arrived_ = 0;
  bool lost_ = false;   ///< another gave this rank up
  bool ended_ = false;  ///< on_give_up has returned
  std::uint64_t drain_wanted_ = 0, drain_done_ = 0;
  bool leaving_ = false;

  std::jthread thread_;  ///< last, so that it is joined before the rest goes
};

}  // namespace egt
