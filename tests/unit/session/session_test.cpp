#include "session/session.hpp"

#include <gmock/gmock.h>

#include <chrono>
#include <csignal>
#include <thread>

#include "session/stop_signal.hpp"

namespace egt {
namespace {

/// One rank alone.
class LoneControl : public Control {
 public:
  const RankPlace& place() const override { return place_; }
  Result<std::vector<std::string>> gather(const std::string& text) override { return std::vector{text}; }
  Result<std::string> broadcast(const std::string& text) override { return text; }
  Status barrier() override { return {}; }
  Status send_to_root(std::string) override { return {}; }
  Result<std::optional<std::string>> receive() override { return std::optional<std::string>(); }

 private:
  RankPlace place_ = {.rank = 0, .size = 1, .local_rank = 0, .local_size = 1, .hostname = "node1"};
};

class NoRejoin : public Rejoin {
 public:
  std::optional<int> meet(const Status&, const std::function<Status()>&) override { return std::nullopt; }
  void resumed(int, std::int64_t, std::int64_t) override {}
  bool lost_peers() const override { return false; }
};

class KeepingSink : public Sink {
 public:
  Status write(const Record& record) override {
    records.push_back(record);
    return {};
  }
  Status flush() override { return {}; }

  std::vector<Record> records;
};

/// Steps that take a while, whose votes are heard when they retire.
class SlowSteps : public Workload {
 public:
  explicit SlowSteps(double step_seconds) : step_seconds_(step_seconds) {}
  std::string name() const override { return "slow"; }
  Status prepare() override { return {}; }
  Status enqueue(const Step& step) override {
    std::this_thread::sleep_for(std::chrono::duration<double>(step_seconds_));
    votes_.push_back(step.vote);
    return {};
  }
  Status retire(std::int64_t step, StepOutcome& outcome) override {
    outcome.decision = votes_.at(static_cast<std::size_t>(step));
    return {};
  }
  Status finish(const Ending&) override { return {}; }
  PartReport report() const override { return {}; }

 private:
  const double step_seconds_;
  std::vector<StopVote> votes_;
};

/// A session of one rank, and what stands around it.
struct LoneSession {
  LoneControl control;
  RecordQueue records{0};
  KeepingSink journal;
  Telemetry telemetry{nullptr, 60, Clock::now()};
  ProgressBoard board;
  RecordRouter route{control, records, journal, board.line("journal"), {}};
  LoadControl load;
  NoRejoin rejoin;
  Session::Workloads workloads;

  Status run(const SessionPlan& plan) {
    Session session({.records = records,
                     .route = route,
                     .telemetry = telemetry,
                     .board = board,
                     .load = load,
                     .rejoin = rejoin},
                    workloads);
    return session.run(plan);
  }
};

/// Takes all the time there is to finish.
class SlowFinish : public SlowSteps {
 public:
  explicit SlowFinish(std::vector<double>& seconds) : SlowSteps(0), seconds_(seconds) {}
  Status finish(const Ending& ending) override {
    seconds_.push_back(ending.seconds(60));
    if (ending.hurry) std::this_thread::sleep_for(std::chrono::duration<double>(seconds_.back()));
    return {};
  }

 private:
  std::vector<double>& seconds_;
};

/// Tells when it is started.
class NamedStart : public SlowSteps {
 public:
  NamedStart(std::string name, std::vector<std::string>& started)
      : SlowSteps(0), name_(std::move(name)), started_(started) {}
  Status start() override {
    started_.push_back(name_);
    return {};
  }

 private:
  const std::string name_;
  std::vector<std::string>& started_;
};

TEST(Session, TheFirstWorkloadStartsBesideTheLoadOfAllOthers) {
  std::vector<std::string> started;
  LoneSession session;
  for (const char* name : {"train", "files", "memory"})
    session.workloads.push_back(std::make_unique<NamedStart>(name, started));
  ASSERT_TRUE(session.run({.duration_seconds = {}, .steps = 1, .is_done = {}, .before_step = {}}).ok());
  EXPECT_THAT(started, testing::ElementsAre("files", "memory", "train"));
}

TEST(Session, WorkloadsShareTheTimeOfAHurriedEnd) {
  std::vector<double> seconds;
  LoneSession session;
  for (int i = 0; i < 3; ++i) session.workloads.push_back(std::make_unique<SlowFinish>(seconds));
  ASSERT_TRUE(
      session
          .run(
              {.duration_seconds = {}, .steps = {}, .is_done = {}, .is_interrupted = true, .before_step = {}})
          .ok());
  EXPECT_THAT(seconds, testing::ElementsAre(testing::Le(Ending::hurried_seconds), 0, 0));
}

TEST(Session, WorkloadsHaveTheirOwnTimeWhereNothingHurries) {
  std::vector<double> seconds;
  LoneSession session;
  for (int i = 0; i < 2; ++i) session.workloads.push_back(std::make_unique<SlowFinish>(seconds));
  ASSERT_TRUE(session.run({.duration_seconds = {}, .steps = 1, .is_done = {}, .before_step = {}}).ok());
  EXPECT_THAT(seconds, testing::ElementsAre(60, 60));
}

/// What is received cannot be taken back, so this is for a process of its own.
void check_that_a_signal_ends_a_rest() {
  StopSignal::take();
  LoneSession session;
  session.load.set_duty(LoadControl::least_duty);
  session.workloads.push_back(std::make_unique<SlowSteps>(0.25));  // and 4.75 s of rest behind each
  std::string phase;
  Clock::time_point signalled;
  std::jthread sender([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(600));
    phase = session.board.line("main").read().phase;
    signalled = Clock::now();
    std::raise(SIGTERM);
  });
  const Status failure = session.run({.duration_seconds = 60, .steps = {}, .is_done = {}, .before_step = {}});
  EXPECT_TRUE(failure.ok()) << failure.what();
  EXPECT_LT(seconds_since(signalled), 3.0) << "some steps, and no rest";
  EXPECT_EQ(phase, "rest: the duty is lowered");
  ASSERT_TRUE(session.route.pump().ok());
  const std::vector<Record>& written = session.journal.records;
  ASSERT_FALSE(written.empty());
  EXPECT_EQ(written.back().kind, RecordKind::end);
  EXPECT_EQ(written.back().body.at("reason"), "signal");
}

TEST(Session, ASignalEndsARestUnderALoweredDuty) {
  EXPECT_EXIT(
      {
        check_that_a_signal_ends_a_rest();
        std::_Exit(testing::Test::HasFailure() ? 1 : 0);
      },
      testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace egt
