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

/// What ties a rank to its peers beside the work: the watchdog, the restarts that it orders, and the end when
/// it finds that a rank is lost. One thread, but for what says otherwise.
class RecoveryCoordinator : public Rejoin {
 public:
  /// Opens a new communicator; all ranks call it together.
  using Connect = std::function<Result<std::unique_ptr<Communicator>>()>;

  /// All references outlive the recovery.
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

  /// Collective: opens the heartbeat. Nobody is judged before `start`.
  static Result<std::unique_ptr<RecoveryCoordinator>> open(Setup setup);
  Status start() { return watchdog_->start(); }

  std::optional<int> meet(const Status& failure, const std::function<Status()>& drain) override;
  void resumed(int number, std::int64_t given_up_step, std::int64_t next_step) override;
  void end_steps() override { watchdog_->end_steps(); }
  /// Any thread.
  bool lost_peers() const override { return given_up_; }

  /// This rank cannot go on, and its work is over: hands over to the watchdog, by which all are informed, and
  /// to the crash report, which ends this process as all others. Returns where it did not within half a
  /// minute.
  void fail(const Status& why, const Json& fault);
  /// An orderly end.
  void leave() { watchdog_->leave(); }
  /// Was this rank given up by the others while its process did not run?
  bool was_given_up() { return watchdog_->given_up(); }
  /// Lets this process's crash report, which ends the process, write all of its files.
  void await_crash_report();

 private:
  explicit RecoveryCoordinator(Setup setup) : setup_(std::move(setup)) {}
  Status open_watchdog();
  std::optional<RestartOrder> await_order(const Status& failure);
  Status rebuild(int number, const std::function<Status()>& drain);

  Setup setup_;
  std::unique_ptr<Heartbeat> heartbeat_;  ///< none: one rank alone
  std::unique_ptr<Watchdog> watchdog_;
  std::atomic<bool> given_up_{false};
  RestartOrder order_;  ///< of the restart that is being made
};

}  // namespace egt
