#include "session/recovery/watchdog.hpp"

#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "egt/core/clock.hpp"
#include "egt/core/progress_board.hpp"
#include "ranks/heartbeat/tcp_heartbeat.hpp"

/// Watchdogs in real processes that are stopped and killed. The test's process is one of the ranks. Time
/// bounds are wide, since other processes share the cores; session_watchdog_clock_test.cpp has the tight
/// bounds.
namespace egt {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr int ranks = 3;

void sleep_for(double seconds) {
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

bool wait_for(const std::function<bool()>& done, double seconds) {
  const Clock::time_point start = Clock::now();
  while (!done()) {
    if (seconds_since(start) > seconds) return false;
    sleep_for(0.005);
  }
  return true;
}

/// Control over socket pairs between rank 0 and the other ranks; a text fits in a packet.
class PairControl final : public Control {
 public:
  PairControl(int rank, std::array<std::array<int, 2>, ranks> pairs) : pairs_(pairs) {
    place_.rank = place_.local_rank = rank;
    place_.size = place_.local_size = ranks;
    place_.hostname = "here";
  }

  const RankPlace& place() const override { return place_; }
  Result<std::vector<std::string>> gather(const std::string& text) override {
    std::vector<std::string> texts;
    if (place_.rank != 0) {
      EGT_TRY(put(pairs_[index(place_.rank)][1], text));
      return texts;
    }
    texts.push_back(text);
    for (int peer = 1; peer < ranks; ++peer) {
      EGT_TRY_ASSIGN(std::string one, get(pairs_[index(peer)][0]));
      texts.push_back(std::move(one));
    }
    return texts;
  }
  Result<std::string> broadcast(const std::string& text) override {
    if (place_.rank != 0) return get(pairs_[index(place_.rank)][1]);
    for (int peer = 1; peer < ranks; ++peer) EGT_TRY(put(pairs_[index(peer)][0], text));
    return text;
  }
  Status barrier() override {
    EGT_TRY(gather("").status());
    return broadcast("").status();
  }
  Status send_to_root(std::string) override { return {StatusCode::unsupported, "not in this test"}; }
  Result<std::optional<std::string>> receive() override { return std::optional<std::string>(); }

 private:
  static std::size_t index(int rank) { return static_cast<std::size_t>(rank); }
  static Status put(int socket, const std::string& text) {
    const std::string packet = text + "|";  // an empty packet would look like an end
    const bool sent = ::send(socket, packet.data(), packet.size(), MSG_NOSIGNAL) >= 0;
    return sent ? Status() : Status(StatusCode::io_error, "send");
  }
  static Result<std::string> get(int socket) {
    std::string text(65536, '\0');
    const ssize_t bytes = ::recv(socket, text.data(), text.size(), 0);
    if (bytes <= 0) return Status(StatusCode::timeout, "recv");
    text.resize(static_cast<std::size_t>(bytes) - 1);
    return text;
  }

  std::array<std::array<int, 2>, ranks> pairs_;
  RankPlace place_;
};

/// One rank: its heartbeat, its watchdog, and a main thread that makes steps until instructed otherwise.
class Rank {
 public:
  Rank(int rank, const std::array<std::array<int, 2>, ranks>& pairs, WatchOptions options)
      : control_(rank, pairs), options_(options) {}

  Status open(WatchdogHooks hooks) {
    EGT_TRY_ASSIGN(heartbeat, open_tcp_heartbeat(control_, 10));
    std::vector<WatchedRank> who;
    for (int rank = 0; rank < ranks; ++rank) who.push_back({"here", "uuid" + std::to_string(rank)});
    watchdog = std::make_unique<Watchdog>(*heartbeat, board, who, options_, std::move(hooks));
    EXPECT_TRUE(watchdog->start().ok());
    return {};
  }

  /// Makes a step, or takes part in a restart. Returns false if the restart failed.
  bool step() {
    ++step_;
    board.line("main").begin("train: forward", step_);
    sleep_for(0.01);
    const auto order = watchdog->restart_ordered();
    if (!order) return true;
    board.line("main").begin("restart", step_);
    watchdog->arrived(order->number);
    if (!wait_for([&] { return watchdog->all_arrived(order->number); }, 8)) return false;
    watchdog->resumed(order->number);
    return ++restarts > 0;
  }

  ProgressBoard board;
  std::unique_ptr<Heartbeat> heartbeat;
  std::unique_ptr<Watchdog> watchdog;  ///< declared after what it uses
  int restarts = 0;

 private:
  PairControl control_;
  const WatchOptions options_;
  std::int64_t step_ = 0;
};

/// Exit code of a child that aborted; encodes the reported rank.
int exit_code(const std::vector<Loss>& losses) {
  return 100 + losses.front().rank * 10 + static_cast<int>(losses.front().how);
}
constexpr int orderly = 1, orderly_restarted = 2, learnt_its_loss = 3, no_result = 4, no_heartbeat = 5;

/// The crash report: the deputy writes it, the other ranks wait for it.
int crash_report(Watchdog& watchdog, const std::vector<Loss>& losses, int rank) {
  for (const Loss& loss : losses)
    if (loss.rank == rank && watchdog.given_up()) return learnt_its_loss;
  if (watchdog.is_deputy())
    watchdog.report_all("result");
  else if (!watchdog.wait_until([&] { return watchdog.heard("result"); }, 3))
    return no_result;
  return exit_code(losses);
}

struct Plan {
  int hanging_rank = -1;  ///< its main thread hangs from the second step on
  double seconds = 20;    ///< then all ranks exit
};

class Watchdogs : public testing::Test {
 protected:
  /// Starts all other ranks as child processes; this process is `self`.
  void begin(int self, const WatchOptions& options, const Plan& plan) {
    plan_ = plan;
    for (auto& pair : pairs_) {
      ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair.data()), 0);
      const timeval limit{10, 0};
      for (const int socket : pair) ::setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    }
    for (int rank = 0; rank < ranks; ++rank) {
      if (rank == self) continue;
      pids_[static_cast<std::size_t>(rank)] = ::fork();
      if (pid(rank) == 0) ::_exit(child(rank, options));
    }
    own_ = std::make_unique<Rank>(self, pairs_, options);
    const Status status = own_->open({.on_restart = {},
                                      .on_give_up =
                                          [this](const std::vector<Loss>& losses) {
                                            given_up_at_ = Clock::now();
                                            is_deputy_ = own_->watchdog->is_deputy();
                                            if (is_deputy_) own_->watchdog->report_all("result");
                                            const std::lock_guard lock(mutex_);
                                            losses_ = losses;
                                          },
                                      .stopping_for = [this] { return stopping_for_.load(); },
                                      .on_late_stop =
                                          [this](const std::vector<LateStop>& stops) {
                                            ++late_stops_told_;
                                            late_stops_ = stops;
                                          }});
    ASSERT_TRUE(status.ok()) << status.what();
    started_ = Clock::now();
  }

  void TearDown() override {
    own_.reset();
    for (const int pid : pids_)
      if (pid > 0) {
        ::kill(pid, SIGKILL);
        ::waitpid(pid, nullptr, 0);
      }
    for (const auto& pair : pairs_)
      for (const int socket : pair) ::close(socket);
  }

  int pid(int rank) const { return pids_[static_cast<std::size_t>(rank)]; }
  std::vector<Loss> losses() {
    const std::lock_guard lock(mutex_);
    return losses_;
  }
  /// Runs this rank's steps until a rank is declared lost.
  bool step_until_given_up(double seconds) {
    const Clock::time_point start = Clock::now();
    while (losses().empty() && seconds_since(start) < seconds) own_->step();
    return !losses().empty();
  }
  void step_for(double seconds) {
    const Clock::time_point start = Clock::now();
    while (seconds_since(start) < seconds) own_->step();
  }
  /// Waits for the child's exit code; -1 if it did not exit.
  int ended(int rank, double seconds = 10) {
    int status = 0;
    auto& child = pids_[static_cast<std::size_t>(rank)];
    if (!wait_for([&] { return ::waitpid(child, &status, WNOHANG) == child; }, seconds)) return -1;
    child = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

  std::unique_ptr<Rank> own_;
  std::atomic<double> stopping_for_ = 0;
  int late_stops_told_ = 0;
  std::vector<LateStop> late_stops_;
  bool is_deputy_ = false;
  Clock::time_point started_, given_up_at_;

 private:
  int child(int rank, const WatchOptions& options) {
    Rank self(rank, pairs_, options);
    const Status opened = self.open(
        {.on_restart = {},
         .on_give_up =
             [&](const std::vector<Loss>& losses) { ::_exit(crash_report(*self.watchdog, losses, rank)); },
         .stopping_for = {},
         .on_late_stop = {}});
    if (!opened.ok()) return no_heartbeat;
    const Clock::time_point start = Clock::now();
    while (seconds_since(start) < plan_.seconds) {
      self.step();
      if (plan_.hanging_rank == rank) sleep_for(60);
    }
    self.watchdog->leave();
    return self.restarts > 0 ? orderly_restarted : orderly;
  }

  Plan plan_;
  std::array<std::array<int, 2>, ranks> pairs_{};
  std::array<int, ranks> pids_{};
  std::mutex mutex_;
  std::vector<Loss> losses_;
};

constexpr WatchOptions no_restart{.collective_timeout_seconds = 2, .max_restarts = 0};
constexpr WatchOptions one_restart{.collective_timeout_seconds = 2, .max_restarts = 1};

TEST_F(Watchdogs, AKilledRankIsNamedByAll) {
  begin(0, one_restart, {});
  step_for(0.5);
  ::kill(pid(2), SIGKILL);
  ASSERT_TRUE(step_until_given_up(10));
  ASSERT_EQ(losses().size(), 1u);
  EXPECT_EQ(losses()[0].rank, 2);
  EXPECT_EQ(losses()[0].how, Loss::How::vanished);
  EXPECT_EQ(losses()[0].phase, "train: forward");
  EXPECT_EQ(losses()[0].device_uuid, "uuid2");
  EXPECT_GT(losses()[0].step, 5);
  EXPECT_TRUE(is_deputy_);
  EXPECT_EQ(ended(1), exit_code(losses()));
}

TEST_F(Watchdogs, RankZeroKilledLeavesTheNextOneToWrite) {
  begin(1, one_restart, {});
  step_for(0.5);
  ::kill(pid(0), SIGKILL);
  ASSERT_TRUE(step_until_given_up(20));
  EXPECT_EQ(losses()[0].rank, 0);
  EXPECT_EQ(losses()[0].how, Loss::How::vanished);
  EXPECT_TRUE(is_deputy_);
  EXPECT_EQ(ended(2), exit_code(losses())) << "it heard that the result is written";
}

TEST_F(Watchdogs, AStoppedRankIsSilentAndLearnsThatItIsLost) {
  begin(0, no_restart, {});
  step_for(0.5);
  const Clock::time_point stopped = Clock::now();
  ::kill(pid(1), SIGSTOP);
  ASSERT_TRUE(step_until_given_up(20));
  EXPECT_GT(std::chrono::duration<double>(given_up_at_ - stopped).count(), 1.5) << "not before its limit";
  ASSERT_EQ(losses().size(), 1u);
  EXPECT_EQ(losses()[0].rank, 1);
  EXPECT_EQ(losses()[0].how, Loss::How::silent);
  EXPECT_EQ(ended(2), exit_code(losses()));
  own_->watchdog->leave();
  ::kill(pid(1), SIGCONT);
  EXPECT_EQ(ended(1), learnt_its_loss);
}

TEST_F(Watchdogs, RankZeroStoppedIsNamedByTheOthers) {
  begin(1, no_restart, {});
  step_for(0.5);
  ::kill(pid(0), SIGSTOP);
  ASSERT_TRUE(step_until_given_up(20));
  ASSERT_EQ(losses().size(), 1u);
  EXPECT_EQ(losses()[0].rank, 0);
  EXPECT_EQ(losses()[0].how, Loss::How::silent);
  EXPECT_TRUE(is_deputy_);
  EXPECT_EQ(ended(2), exit_code(losses()));
  ::kill(pid(0), SIGCONT);
  EXPECT_EQ(ended(0), learnt_its_loss);
}

TEST_F(Watchdogs, ARankThatHangsIsNamedAfterTheRestartFailed) {
  begin(0, one_restart, {.hanging_rank = 2});
  const Clock::time_point start = Clock::now();
  while (losses().empty() && seconds_since(start) < 30) own_->step();
  const double seconds = std::chrono::duration<double>(given_up_at_ - start).count();
  ASSERT_EQ(losses().size(), 1u);
  EXPECT_EQ(losses()[0].rank, 2);
  EXPECT_EQ(losses()[0].how, Loss::How::stuck);
  EXPECT_EQ(losses()[0].phase, "train: forward");
  EXPECT_EQ(losses()[0].step, 1);
  EXPECT_THAT(losses()[0].text, HasSubstr("restart 1"));
  EXPECT_GT(seconds, 6) << "not before the restart's time is over";
  EXPECT_EQ(ended(1), exit_code(losses()));
  EXPECT_EQ(ended(2), learnt_its_loss) << "its watchdog answers";
}

TEST_F(Watchdogs, AStallThatEndsCostsOneRestart) {
  begin(0, one_restart, {.seconds = 7});
  step_for(0.5);
  ::kill(pid(2), SIGSTOP);
  const auto ordered = [&] {
    own_->board.line("main").begin("train: forward", 100);  // still working
    return own_->watchdog->restart_ordered().has_value();
  };
  ASSERT_TRUE(wait_for(ordered, 5));
  EXPECT_EQ(own_->watchdog->restart_ordered()->waited_for.front().rank, 2);
  ::kill(pid(2), SIGCONT);
  while (seconds_since(started_) < 7) own_->step();
  own_->watchdog->leave();
  EXPECT_EQ(own_->restarts, 1);
  EXPECT_EQ(ended(1), orderly_restarted);
  EXPECT_EQ(ended(2), orderly_restarted);
  EXPECT_TRUE(losses().empty());
}

TEST_F(Watchdogs, WhoLeavesIsNotLost) {
  begin(0, one_restart, {.seconds = 0.5});
  step_for(3);
  EXPECT_TRUE(losses().empty());
  EXPECT_FALSE(own_->watchdog->given_up());
  own_->watchdog->leave();
  EXPECT_EQ(ended(1), orderly);
  EXPECT_EQ(ended(2), orderly);
}

TEST_F(Watchdogs, AFailureIsToldToAll) {
  begin(0, one_restart, {});
  own_->watchdog->fail({StatusCode::aborted, "device 0 answers no more"});
  ASSERT_TRUE(wait_for([&] { return !losses().empty(); }, 20));
  EXPECT_EQ(losses()[0].text, "device 0 answers no more");
  EXPECT_TRUE(is_deputy_) << "its process still has the records of all ranks";
  EXPECT_TRUE(own_->watchdog->given_up());
  EXPECT_EQ(ended(1), 100 + static_cast<int>(Loss::How::failed));
  EXPECT_EQ(ended(2), 100 + static_cast<int>(Loss::How::failed));
}

TEST_F(Watchdogs, AStopThatComesLateIsToldOnce) {
  begin(0, one_restart, {});
  step_for(0.3);
  stopping_for_ = 0.4;
  step_for(0.3);
  EXPECT_EQ(late_stops_told_, 0);
  stopping_for_ = 0.6;
  step_for(0.3);
  EXPECT_EQ(late_stops_told_, 1);
  ASSERT_EQ(late_stops_.size(), static_cast<std::size_t>(ranks));
  EXPECT_EQ(late_stops_.back().rank, ranks - 1);
}

TEST_F(Watchdogs, AfterAStopSignalAKilledRankIsNoLoss) {
  begin(0, one_restart, {});
  step_for(0.3);
  stopping_for_ = 0.3;
  ::kill(pid(1), SIGKILL);
  ::kill(pid(2), SIGKILL);
  step_for(1);
  EXPECT_TRUE(losses().empty());
}

}  // namespace
}  // namespace egt
