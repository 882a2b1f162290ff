#include "session/recovery/recovery_coordinator.hpp"

#include <utility>

#include "egt/core/wait.hpp"
#include "egt/ranks/agreement.hpp"
#include "ranks/heartbeat/tcp_heartbeat.hpp"
#include "session/stop_signal.hpp"

namespace egt {

namespace {

constexpr double heartbeat_timeout_s = 20;
constexpr double verdict_timeout_s = 30;  // for the crash report to end the process

/// Returns a clock that counts seconds from its first call after a stop signal.
std::function<double()> stop_watch() {
  return [since = std::optional<Clock::time_point>()]() mutable {
    if (StopSignal::received() == 0) return 0.0;
    if (!since) since = Clock::now();
    return seconds_since(*since);
  };
}

}  // namespace

Result<std::unique_ptr<RecoveryCoordinator>> RecoveryCoordinator::open(Setup setup) {
  std::unique_ptr<RecoveryCoordinator> recovery(new RecoveryCoordinator(std::move(setup)));
  EGT_TRY(recovery->open_watchdog());
  return recovery;
}

Status RecoveryCoordinator::open_watchdog() {
  EGT_TRY_ASSIGN(heartbeat_, open_tcp_heartbeat(setup_.control, heartbeat_timeout_s));
  const RankPlace& place = setup_.control.place();
  // All ranks need these, since any remaining rank reports on the others.
  EGT_TRY_ASSIGN(const auto hostnames, all_gather(setup_.control, place.hostname));
  EGT_TRY_ASSIGN(const auto device_uuids, all_gather(setup_.control, setup_.device_uuid));
  std::vector<WatchedRank> ranks;
  for (std::size_t rank = 0; rank < hostnames.size(); ++rank)
    ranks.push_back({hostnames[rank], device_uuids[rank]});
  WatchdogHooks hooks{.on_restart = [this](const RestartOrder&) { setup_.communicator.interrupt(); },
                      .on_give_up =
                          [this](const std::vector<Loss>& losses) {
                            given_up_ = true;
                            setup_.communicator.interrupt();
                            setup_.crash_report.execute(losses, *watchdog_);
                          },
                      .stopping_for = stop_watch(),
                      .on_late_stop =
                          [this](std::vector<LateStop> stops) {
                            for (LateStop& stop : stops) stop.signal = signal_name(StopSignal::received());
                            setup_.crash_report.write_ahead(stops);
                          }};
  watchdog_ = std::make_unique<Watchdog>(*heartbeat_, setup_.board, std::move(ranks), setup_.options,
                                         std::move(hooks));
  return {};
}

/// Waits for a restart order, since a communicator may fail before the watchdog knows which rank caused it.
std::optional<RestartOrder> RecoveryCoordinator::await_order(const Status& failure) {
  if (given_up_ || setup_.control.place().size == 1) return std::nullopt;
  if (auto order = watchdog_->restart_ordered()) return order;
  const bool of_peers = failure.code() == StatusCode::timeout || !setup_.communicator.check().ok();
  if (!of_peers) return std::nullopt;
  std::optional<RestartOrder> order;
  const double seconds = setup_.options.collective_timeout_seconds + watch::arrival_grace_seconds;
  static_cast<void>(wait_until(
      [&]() -> Result<bool> {
        order = watchdog_->restart_ordered();
        return order.has_value() || given_up_;
      },
      {.seconds = seconds, .what = "the watchdog's order"}));
  return order;
}

std::optional<int> RecoveryCoordinator::meet(const Status& failure, const std::function<Status()>& drain) {
  const auto order = await_order(failure);
  if (!order) return std::nullopt;
  order_ = *order;
  const Status rebuilt = rebuild(order->number, drain);
  if (rebuilt.ok()) return order->number;
  if (!given_up_) setup_.records.warning("restart: " + rebuilt.what());
  return std::nullopt;
}

Status RecoveryCoordinator::rebuild(int number, const std::function<Status()>& drain) {
  ProgressBoard::Line& line = setup_.board.line("main");
  line.begin("restart: gives the communicator up");
  setup_.communicator.abort();
  EGT_TRY(drain());
  line.wait_for_peers("restart: waits for all ranks");
  watchdog_->arrived(number);
  const double seconds = 2 * watch::arrival_grace_seconds;
  EGT_TRY(wait_until(
      [&]() -> Result<bool> {
        if (given_up_) return Status(StatusCode::aborted, "a rank is lost");
        return watchdog_->all_arrived(number);
      },
      {.seconds = seconds, .what = "all ranks at the restart"}));
  line.begin("restart: connects");
  EGT_TRY_ASSIGN(auto communicator, setup_.connect());
  setup_.communicator.replace(std::move(communicator));
  return {};
}

void RecoveryCoordinator::resumed(int number, std::int64_t given_up_step, std::int64_t next_step) {
  watchdog_->resumed(number);
  if (setup_.control.place().rank != 0) return;
  Restart restart;
  restart.number = number;
  restart.given_up_step = given_up_step;
  restart.resumed_step = next_step;
  if (!order_.waited_for.empty()) {
    const Loss& held_up = order_.waited_for.front();
    restart.rank = held_up.rank;
    restart.phase = held_up.phase;
    restart.seconds = held_up.seconds;
  }
  setup_.records.emit(RecordKind::restart, next_step, to_json(restart));
}

void RecoveryCoordinator::fail(const Status& why, const Json& fault) {
  watchdog_->fail(why, fault);
  await_crash_report();
}

void RecoveryCoordinator::await_crash_report() {
  watchdog_->await_end(verdict_timeout_s);
}

}  // namespace egt
