#include "session/session.hpp"

#include <gmock/gmock.h>

#include <chrono>
#include <csignal>
#include <thread>

#include "device/injection/injecting_device.hpp"
#include "session/stop_signal.hpp"
#include "tests/support/workload_fixture.hpp"

namespace egt {
namespace {

/// A single rank.
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

class NoRecovery : public Recovery {
 public:
  std::optional<int> meet(const Status&, const std::function<Status()>&) override {
    ++asked;
    return std::nullopt;
  }
  void resumed(int, std::int64_t, std::int64_t) override {}
  void end_steps() override {}
  bool lost_peers() const override { return false; }

  int asked = 0;
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

/// Steps with a duration; their votes count when they retire.
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
  Status finish(const Shutdown&) override { return {}; }
  PartReport report() const override { return {}; }

 private:
  const double step_seconds_;
  std::vector<StopVote> votes_;
};

/// A session of one rank with its context.
struct LoneSession {
  LoneControl control;
  InjectingDevice device{test::small_host_device()};
  RecordQueue records{0};
  KeepingSink journal;
  Telemetry telemetry{nullptr, 60, Clock::now()};
  ProgressBoard board;
  RecordRouter route{control, records, journal, board.line("journal"), {}};
  LoadControl load;
  NoRecovery recovery;
  Session::Workloads workloads;

  Status run(const SessionPlan& plan) {
    Session session({.monitored = {.rank = 0, .hostname = "node1", .device_uuid = "GPU-1"},
                     .device = device,
                     .records = records,
                     .route = route,
                     .telemetry = telemetry,
                     .board = board,
                     .load = load,
                     .recovery = recovery},
                    workloads);
    return session.run(plan);
  }
};

/// Uses all of the time limit to finish.
class SlowFinish : public SlowSteps {
 public:
  explicit SlowFinish(std::vector<double>& seconds) : SlowSteps(0), seconds_(seconds) {}
  Status finish(const Shutdown& ending) override {
    seconds_.push_back(ending.seconds(60));
    if (ending.hurry) std::this_thread::sleep_for(std::chrono::duration<double>(seconds_.back()));
    return {};
  }

 private:
  std::vector<double>& seconds_;
};

/// Reports its start.
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

/// Ends in a collective and leaves its phase on the main thread's line.
class EndsInACollective : public SlowSteps {
 public:
  explicit EndsInACollective(ProgressBoard& board) : SlowSteps(0), line_(board.line("main")) {}
  Status retire(std::int64_t step, StepOutcome& outcome) override {
    line_.wait_for_peers("checks: digests of all ranks");
    return SlowSteps::retire(step, outcome);
  }
  Status finish(const Shutdown&) override {
    line_.begin("checks: digests of all ranks", 7);
    line_.wait_for_peers("checks: digests of all ranks");
    return {};
  }

 private:
  ProgressBoard::Line& line_;
};

/// Records the main thread's line when it retires a step and when it finishes.
class LooksAtTheBoard : public SlowSteps {
 public:
  LooksAtTheBoard(ProgressBoard& board, std::vector<Activity>& seen)
      : SlowSteps(0), line_(board.line("main")), seen_(seen) {}
  Status retire(std::int64_t step, StepOutcome& outcome) override {
    seen_.push_back(line_.read());
    return SlowSteps::retire(step, outcome);
  }
  Status finish(const Shutdown&) override {
    seen_.push_back(line_.read());
    return {StatusCode::timeout, "its disk does not answer"};
  }

 private:
  ProgressBoard::Line& line_;
  std::vector<Activity>& seen_;
};

TEST(Session, APartThatHangsIsNotTakenForTheCollectiveBeforeIt) {
  LoneSession lone;
  std::vector<Activity> seen;
  lone.workloads.push_back(std::make_unique<EndsInACollective>(lone.board));
  lone.workloads.push_back(std::make_unique<LooksAtTheBoard>(lone.board, seen));
  lone.workloads.push_back(std::make_unique<SlowSteps>(0));
  SessionPlan plan;
  plan.steps = 1;
  EXPECT_EQ(lone.run(plan).code(), StatusCode::timeout);
  ASSERT_EQ(seen.size(), 2u);
  for (const Activity& activity : seen) EXPECT_FALSE(activity.waits_for_peers) << activity.phase;
  EXPECT_EQ(seen[0].phase, "step");
  EXPECT_EQ(seen[1].phase, "finish: slow");
  EXPECT_GT(seen[1].patience_seconds, 60) << "a part may take longer to finish than a collective";
  EXPECT_EQ(lone.board.line("main").read().phase, "finish: slow") << "where it failed";
}

TEST(Board, ALongFileOperationShowsItsFileAndTheStateOfItsTask) {
  double now = 0;
  ProgressBoard board([&] { return now; });
  ProgressBoard::Line& line = board.line("file");
  line.begin_file_operation("write", "/mnt/a");
  now = 30;
  EXPECT_EQ(line.read().task_state, "R") << "it runs this test";
  EXPECT_EQ(blocked_file_text(line.read()), "write of /mnt/a has not returned for 30.0 s (task state R)");
  line.begin("wait for the device");
  EXPECT_EQ(line.read().file, "");
}

TEST(Session, TheFirstWorkloadStartsBesideTheLoadOfAllOthers) {
  std::vector<std::string> started;
  LoneSession session;
  for (const char* name : {"train", "files", "memory"})
    session.workloads.push_back(std::make_unique<NamedStart>(name, started));
  ASSERT_TRUE(session.run({.duration_seconds = {}, .steps = 1, .is_done = {}, .before_step = {}}).ok());
  EXPECT_THAT(started, testing::ElementsAre("files", "memory", "train"));
}

/// Fails at step 2 with `failure`, and reads the journal at its end.
class FailingSteps : public SlowSteps {
 public:
  FailingSteps(Status failure, const KeepingSink& journal)
      : SlowSteps(0), failure_(failure), journal_(journal) {}
  Status enqueue(const Step& step) override { return step.index == 2 ? failure_ : SlowSteps::enqueue(step); }
  Status finish(const Shutdown&) override {
    for (const Record& record : journal_.records)
      if (record.kind == RecordKind::fault) faults.push_back(record);
    return {};
  }

  std::vector<Record> faults;

 private:
  const Status failure_;
  const KeepingSink& journal_;
};

/// The faults in the journal when the workload ends, and the run's exit code.
struct FailedRun {
  std::vector<Record> faults;
  StatusCode code = StatusCode::ok;
  int restarts_asked = 0;
};

FailedRun run_failing(const Status& failure, bool device_fails) {
  LoneSession session;
  if (device_fails) session.device.fail_at(1, [] {});
  auto failing = std::make_unique<FailingSteps>(failure, session.journal);
  const FailingSteps& workload = *failing;
  session.workloads.push_back(std::move(failing));
  const Status ended = session.run({.duration_seconds = {}, .steps = 9, .is_done = {}, .before_step = {}});
  return {workload.faults, ended.code(), session.recovery.asked};
}

TEST(Session, ADeviceErrorIsAFaultInTheJournalBeforeAnythingWaitsForTheDevice) {
  const Status error(StatusCode::device_error, "CUDA could not copy memory: .. (cudaErrorIllegalAddress)",
                     700);
  const FailedRun run = run_failing(error, false);
  EXPECT_EQ(run.code, StatusCode::device_error);
  EXPECT_EQ(run.restarts_asked, 0) << "its context cannot be used again";
  ASSERT_EQ(run.faults.size(), 1u);
  const Json& fault = run.faults[0].body;
  EXPECT_EQ(fault["kind"], "device-error");
  EXPECT_EQ(fault["detector"], "CUDA");
  EXPECT_EQ(fault["actual"], "700");
  EXPECT_EQ(fault["where"], error.what());
  EXPECT_EQ(fault["device_uuid"], "GPU-1");
  EXPECT_EQ(fault["phase"], "step");
  EXPECT_EQ(fault["blame"], "certain");
  EXPECT_EQ(run.faults[0].step, 2);
}

/// A vote to stop arrives that no rank sent.
class FalseVote : public SlowSteps {
 public:
  FalseVote() : SlowSteps(0) {}
  Status retire(std::int64_t step, StepOutcome& outcome) override {
    if (step == 5) outcome.decision = StopVote::finished;
    return {};
  }
};

TEST(Session, AnEndThatThisRankDidNotVoteForIsRecorded) {
  for (const bool is_false : {false, true}) {
    LoneSession lone;
    if (is_false)
      lone.workloads.push_back(std::make_unique<FalseVote>());
    else
      lone.workloads.push_back(std::make_unique<SlowSteps>(0.001));
    SessionPlan plan;
    plan.duration_seconds = is_false ? 1000 : 0.02;
    EXPECT_TRUE(lone.run(plan).ok());
    const std::vector<Record> records = lone.records.drain();
    ASSERT_FALSE(records.empty());
    EXPECT_EQ(records.back().kind, RecordKind::end);
    EXPECT_EQ(records.back().body.contains("before_planned_end"), is_false);
  }
}

TEST(Session, AnErrorOfALibraryIsTheDevicesIfTheDeviceFailed) {
  const Status of_library(StatusCode::aborted, "NCCL could not go on: unhandled cuda error", 1);
  const FailedRun run = run_failing(of_library, true);
  EXPECT_EQ(run.code, StatusCode::device_error);
  ASSERT_EQ(run.faults.size(), 1u);
  EXPECT_EQ(run.faults[0].body["actual"], "214");
  const FailedRun other = run_failing(of_library, false);
  EXPECT_EQ(other.code, StatusCode::aborted);
  EXPECT_TRUE(other.faults.empty());
  EXPECT_EQ(other.restarts_asked, 1);
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
  EXPECT_THAT(seconds, testing::ElementsAre(testing::Le(Shutdown::hurried_seconds), 0, 0));
}

TEST(Session, WorkloadsHaveTheirOwnTimeWhereNothingHurries) {
  std::vector<double> seconds;
  LoneSession session;
  for (int i = 0; i < 2; ++i) session.workloads.push_back(std::make_unique<SlowFinish>(seconds));
  ASSERT_TRUE(session.run({.duration_seconds = {}, .steps = 1, .is_done = {}, .before_step = {}}).ok());
  EXPECT_THAT(seconds, testing::ElementsAre(60, 60));
}

TEST(Session, TheLastCallIsOnlyForARunThatEndsRegularly) {
  for (const bool is_interrupted : {false, true}) {
    std::vector<double> finished;
    std::vector<std::size_t> calls;
    LoneSession session;
    session.workloads.push_back(std::make_unique<SlowFinish>(finished));
    SessionPlan plan;
    plan.steps = 1;
    plan.is_interrupted = is_interrupted;
    plan.before_end = [&] { calls.push_back(finished.size()); };
    ASSERT_TRUE(session.run(plan).ok());
    EXPECT_EQ(calls, is_interrupted ? std::vector<std::size_t>{} : std::vector<std::size_t>{1});
  }
}

/// Runs in its own process, because a received signal cannot be reset.
void check_that_a_signal_ends_a_rest() {
  StopSignal::take();
  LoneSession session;
  session.load.set_duty(LoadControl::min_duty);
  session.workloads.push_back(std::make_unique<SlowSteps>(0.25));  // and 4.75 s idle after each
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
