#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "egt/core/progress_board.hpp"
#include "egt/core/record_queue.hpp"
#include "egt/ranks/control.hpp"
#include "egt/ranks/heartbeat.hpp"
#include "ranks/restartable_communicator.hpp"
#include "session/options.hpp"
#include "session/recovery/crash_report.hpp"
#include "session/recovery/watchdog.hpp"
#include "session/session.hpp"

namespace egt {

/// Connects a rank with its peers outside the workload: the watchdog, its restarts, and the end of the run
/// after a lost rank. One thread, unless stated otherwise.
class RecoveryCoordinator : public Recovery {
 public:
  /// Opens a new communicator. Collective.
  using Connect = std::function<Result<std::unique_ptr<Communicator>>()>;

  /// All references outlive the object.
  struct Setup {
    Control& control;
    RestartableCommunicator& communicator;
    ProgressBoard& board;
    RecordQueue& records;
    WatchOptions options;
    std::string device_uuid;  ///< of this rank's device
    Connect connect;
    CrashReport& crash_report;  ///< executed when a rank is lost
  };

  /// Collective. Opens the heartbeat. No rank is judged before `start`.
  static Result<std::unique_ptr<RecoveryCoordinator>> open(Setup setup);
  Status start() { return watchdog_->start(); }

  std::optional<int> meet(const Status& failure, const std::function<Status()>& drain) override;
  void resumed(int number, std::int64_t given_up_step, std::int64_t next_step) override;
  void end_steps() override { watchdog_->end_steps(); }
  /// Any thread.
  bool lost_peers() const override { return given_up_; }

  /// This rank cannot continue, and its work is over. The watchdog informs all ranks, and the crash report
  /// ends this process like all others. Returns only if that did not happen within half a minute.
  void fail(const Status& why, const Json& fault);
  /// An orderly shutdown.
  void leave() { watchdog_->leave(); }
  /// Returns whether the other ranks reported this one as lost while its process was stopped.
  bool was_given_up() { return watchdog_->given_up(); }
  /// Waits until this process's crash report has written its files and ends the process.
  void await_crash_report();

 private:
  explicit RecoveryCoordinator(Setup setup) : setup_(std::move(setup)) {}
  Status open_watchdog();
  std::optional<RestartOrder> await_order(const Status& failure);
  Status rebuild(int number, const std::function<Status()>& drain);

  Setup setup_;
  std::unique_ptr<Heartbeat> heartbeat_;  ///< without connections if there is one rank
  std::unique_ptr<Watchdog> watchdog_;
  std::atomic<bool> given_up_{false};
  RestartOrder order_;  ///< order of the restart in progress
};

}  // namespace egt
