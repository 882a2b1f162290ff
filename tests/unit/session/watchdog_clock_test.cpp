#include "session/recovery/watchdog.hpp"

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

/// Watchdogs with simulated time and network: when they decide, to 0.01 s.
namespace egt {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

constexpr int simulated_ranks = 3;

std::size_t index(int rank) {
  return static_cast<std::size_t>(rank);
}

/// Time advances only while all running watchdogs wait for a later time.
class Simulation {
 public:
  double now() const {
    const std::lock_guard lock(mutex_);
    return now_;
  }
  void advance(double seconds) {
    std::unique_lock lock(mutex_);
    const double target = now_ + seconds;
    for (;;) {
      quiet_.wait(lock, [this] { return all_quiet(); });
      if (now_ >= target) return;
      now_ = target;
      for (const Member& member : members_)
        if (is_running(member)) now_ = std::min(now_, member.until);
      changed_.notify_all();
    }
  }
  void stop(int rank, bool stopped) { set(rank, &Member::stopped, stopped); }
  void kill(int rank) { set(rank, &Member::gone, true); }
  void end() {
    const std::lock_guard lock(mutex_);
    ending_ = true;
    changed_.notify_all();
  }

  // Interface of the heartbeats
  void send(int rank, const std::string& text) {
    const std::lock_guard lock(mutex_);
    Member& own = members_[index(rank)];
    own.text = text;
    ++own.news;
    own.sent_at = now_;
    changed_.notify_all();
  }
  void leave(int rank) { set(rank, &Member::left, true); }
  void wake(int rank) { set(rank, &Member::woken, true); }
  /// All other ranks; returns when there is news or the time is over.
  std::vector<Peer> poll(int rank, double seconds) {
    constexpr double shortest = 1e-3;  // time advances
    std::unique_lock lock(mutex_);
    Member& own = members_[index(rank)];
    own.until = now_ + std::max(seconds, shortest);
    own.waits = true;
    quiet_.notify_all();
    changed_.wait(lock, [&] { return ending_ || (is_running(own) && has_reason(own)); });
    own.waits = own.woken = false;
    std::vector<Peer> peers;
    own.seen.clear();
    for (int other = 0; other < simulated_ranks; ++other) {
      const Member& member = members_[index(other)];
      own.seen.push_back(member.news);
      if (other != rank)
        peers.push_back({.rank = other,
                         .pid = 1000 + other,
                         .hostname = "here",
                         .text = member.text,
                         .texts = member.news,
                         .seconds = now_ - member.sent_at,
                         .gone = member.gone,
                         .left = member.left});
    }
    return peers;
  }

 private:
  struct Member {
    std::string text;
    std::uint64_t news = 0;  ///< number of texts and state changes
    double sent_at = 0;
    bool stopped = false, gone = false, left = false, woken = false;
    bool waits = false;
    double until = 0;
    std::vector<std::uint64_t> seen;  ///< `news` of all ranks
  };

  void set(int rank, bool Member::*what, bool value) {
    const std::lock_guard lock(mutex_);
    members_[index(rank)].*what = value;
    ++members_[index(rank)].news;
    changed_.notify_all();
  }
  static bool is_running(const Member& member) { return !member.stopped && !member.gone && !member.left; }
  bool has_reason(const Member& member) const {
    if (member.woken || now_ >= member.until) return true;
    for (std::size_t other = 0; other < members_.size(); ++other)
      if (&members_[other] != &member && (member.seen.empty() || member.seen[other] != members_[other].news))
        return true;
    return false;
  }
  bool all_quiet() const {
    return std::all_of(members_.begin(), members_.end(), [this](const Member& member) {
      return !is_running(member) || (member.waits && !has_reason(member));
    });
  }

  mutable std::mutex mutex_;
  std::condition_variable changed_, quiet_;
  double now_ = 0;
  bool ending_ = false;
  std::vector<Member> members_ = std::vector<Member>(simulated_ranks);
};

class SimulatedHeartbeat final : public Heartbeat {
 public:
  SimulatedHeartbeat(Simulation& simulation, int rank) : simulation_(simulation), rank_(rank) {}
  int rank() const override { return rank_; }
  const std::vector<Peer>& peers() override { return peers_; }
  void send(const std::string& text) override { simulation_.send(rank_, text); }
  void poll(double seconds) override { peers_ = simulation_.poll(rank_, seconds); }
  bool flush(double) override { return true; }
  void wake() override { simulation_.wake(rank_); }
  void goodbye() override { simulation_.leave(rank_); }

 private:
  Simulation& simulation_;
  const int rank_;
  std::vector<Peer> peers_;
};

/// A rank whose main thread is the test's; it makes a step every 0.01 s.
struct SimulatedRank {
  SimulatedRank(Simulation& simulation, int rank, const WatchOptions& options)
      : heartbeat(simulation, rank),
        board([&simulation] { return simulation.now(); }),
        watchdog(heartbeat, board, {{"here", "a"}, {"here", "b"}, {"here", "c"}}, options,
                 {.on_restart = {},
                  .on_give_up =
                      [this, &simulation](const std::vector<Loss>& lost) {
                        const std::lock_guard lock(mutex);
                        losses = lost;
                        given_up_at = simulation.now();
                      },
                  .stopping_for = {},
                  .on_late_stop = {}},
                 [&simulation] { return simulation.now(); }) {
    work();
    EXPECT_TRUE(watchdog.start().ok());
  }

  void work() {
    const auto order = watchdog.restart_ordered();
    if (!order) return board.line("main").begin("train: forward", ++step);
    if (order->number > arrived) {
      board.line("main").begin("restart", step);
      watchdog.arrived(arrived = order->number);
    }
    if (watchdog.all_arrived(order->number)) watchdog.resumed(order->number);
  }
  std::vector<Loss> lost() {
    const std::lock_guard lock(mutex);
    return losses;
  }

  bool works = true;
  std::int64_t step = 0;
  int arrived = 0;
  std::mutex mutex;
  std::vector<Loss> losses;
  double given_up_at = 0;
  SimulatedHeartbeat heartbeat;
  ProgressBoard board;
  Watchdog watchdog;  ///< last member: its thread uses all the others
};

class WatchdogClock : public testing::Test {
 protected:
  void begin(int max_restarts) {
    options = {.collective_timeout_seconds = 2, .max_restarts = max_restarts};
    for (int rank = 0; rank < simulated_ranks; ++rank)
      all.push_back(std::make_unique<SimulatedRank>(simulation, rank, options));
    run(1);
  }
  void TearDown() override { simulation.end(); }

  SimulatedRank& rank(int number) { return *all[index(number)]; }
  void run(double seconds) {
    for (const double end = simulation.now() + seconds; simulation.now() < end;) {
      for (auto& one : all)
        if (one->works) one->work();
      simulation.advance(0.01);
    }
  }
  /// All of them aborted `seconds` after `start` and reported only this rank.
  void expect_lost(int lost, Loss::How how, std::vector<int> tellers, double start, double seconds) {
    for (const int reporter : tellers) {
      const std::vector<Loss> losses = rank(reporter).lost();
      ASSERT_EQ(losses.size(), 1u) << reporter;
      EXPECT_EQ(losses[0].rank, lost);
      EXPECT_EQ(losses[0].how, how);
      EXPECT_NEAR(rank(reporter).given_up_at - start, seconds, 0.15) << reporter;
    }
  }

  WatchOptions options;
  Simulation simulation;
  std::vector<std::unique_ptr<SimulatedRank>> all;
};

TEST_F(WatchdogClock, RanksThatWorkAreLeftAlone) {
  begin(0);
  run(60);
  for (int one = 0; one < simulated_ranks; ++one) EXPECT_THAT(rank(one).lost(), IsEmpty());
}

TEST_F(WatchdogClock, AKilledRankIsNamedByAllAtOnce) {
  begin(1);
  rank(2).works = false;
  const double killed = simulation.now();
  simulation.kill(2);
  run(1);
  expect_lost(2, Loss::How::vanished, {0, 1}, killed, watch::gather_seconds);
}

TEST_F(WatchdogClock, AStoppedRankIsSilentAtItsLimit) {
  begin(0);
  rank(0).works = false;
  const double stopped = simulation.now();
  simulation.stop(0, true);
  run(watch::silence_limit(options) - 0.2);
  EXPECT_THAT(rank(1).lost(), IsEmpty());
  run(1);
  expect_lost(0, Loss::How::silent, {1, 2}, stopped, watch::silence_limit(options));
}

TEST_F(WatchdogClock, ARankThatHangsIsNamedAfterTheRestartFailed) {
  begin(1);
  rank(2).works = false;
  const double hung = simulation.now(), timeout = options.collective_timeout_seconds;
  run(timeout - 0.1);
  EXPECT_FALSE(rank(0).watchdog.restart_ordered());
  run(0.3);
  ASSERT_TRUE(rank(0).watchdog.restart_ordered());
  EXPECT_EQ(rank(0).watchdog.restart_ordered()->waited_for.front().rank, 2);
  run(watch::arrival_grace_seconds + 1);
  expect_lost(2, Loss::How::stuck, {0, 1, 2}, hung, timeout + watch::arrival_grace_seconds);
  EXPECT_NEAR(rank(0).lost()[0].seconds, timeout, 0.15) << "as it was when the timeout struck";
  EXPECT_THAT(rank(0).lost()[0].text, HasSubstr("restart 1"));
}

TEST_F(WatchdogClock, ARankWithLongWorkThatProgressesIsNotStuckAndOneWhoseBeatsEndIs) {
  begin(0);
  for (auto& one : all) one->works = false;
  for (const int waiting : {0, 1}) rank(waiting).board.line("main").wait_for_peers("train: sums");
  const double timeout = options.collective_timeout_seconds;
  for (int beat = 0; beat < 20; ++beat) {
    rank(2).board.line("main").beat();
    run(timeout - 0.2);
  }
  for (auto& one : all) EXPECT_THAT(one->lost(), IsEmpty());
  rank(2).board.line("main").beat();
  const double hung = simulation.now();
  run(timeout + 1);
  expect_lost(2, Loss::How::stuck, {0, 1, 2}, hung, timeout);
}

TEST_F(WatchdogClock, AStallThatEndsCostsOneRestart) {
  begin(1);
  rank(2).works = false;
  simulation.stop(2, true);
  run(3);
  EXPECT_EQ(rank(0).arrived, 1);
  simulation.stop(2, false);
  rank(2).works = true;
  run(30);
  for (int one = 0; one < simulated_ranks; ++one) {
    EXPECT_THAT(rank(one).lost(), IsEmpty());
    EXPECT_EQ(rank(one).arrived, 1);
    EXPECT_FALSE(rank(one).watchdog.restart_ordered()) << "it went on";
  }
}

}  // namespace
}  // namespace egt
