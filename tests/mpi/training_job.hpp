#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "judge/evidence.hpp"
#include "mpi_test.hpp"
#include "ranks/mpi/mpi_communicator.hpp"
#include "ranks/mpi/mpi_control.hpp"
#include "ranks/restartable_communicator.hpp"
#include "tests/support/corrupting_communicator.hpp"
#include "tests/support/corrupting_device.hpp"
#include "workload/train/train_workload.hpp"

namespace egt::test {

/// Counted from the publication of a mismatch.
struct ExaminationFailure {
  int rank = 0;
  int publication = 0;   ///< index on this rank, from 0, of the publication that starts the examination
  int all_gather = -1;   ///< index of the failing all-gather after it, from 0; -1: the publication fails
  bool is_late = false;  ///< the all-gather reaches the peers and fails only on this rank
};

/// A short training of a small network, the same on every rank except for injected errors. Checks follow
/// steps 3, 7 and 11; the last step, 12, is followed by the check of `finish`.
struct Job {
  std::int64_t steps = 13, check_every = 4, epoch_steps = 3;
  std::int64_t samples = 8;  ///< per rank
  bool balances = false;     ///< batch shares follow the pass times of the ranks
  std::vector<Precision> precisions = {Precision::fp64, Precision::fp32, Precision::tf32, Precision::fp16,
                                       Precision::bf16};
  Optimizer optimizer = Optimizer::sgd;
  std::optional<double> learning_rate = {};
  std::vector<std::int64_t> layers = {16, 96, 24, 8};  // the second layer's weights exceed a block of words
  std::vector<std::string> injections = {};            ///< in the syntax of `--inject`
  std::vector<CorruptingCommunicator::Hit> hits = {};
  int broken_rank = -1;              ///< all GEMMs of this rank are wrong
  std::int64_t broken_from = -1;     ///< from this step on; -1: from the first answer on
  std::int64_t broken_until = 1000;  ///< works again from this step on
  Flip broken_words = {};
  SystematicError error = SystematicError::none;  ///< on all ranks
  std::function<std::string(int rank)> model = [](int) { return "test device"; };
  std::string golden_path = {};  ///< used as a name only
  std::optional<Golden> golden = {};
  /// Delay by rank from the start of a repair until the communicator is aborted; a new one follows.
  std::function<std::chrono::microseconds(int rank)> restart_in_repair = {};
  /// The failure during the examination of a mismatch, after which all ranks restart.
  std::optional<ExaminationFailure> failure = {};
  /// Step that a rank does not reach at first, as if it were stuck; then all ranks restart. -1: none.
  std::function<std::int64_t(int rank)> stuck_before = {};
  int spoilt_rank = -1;          ///< the state that this rank restores first differs from the kept one
  bool spoilt_at_start = false;  ///< instead its state changes before it is kept as the initial one
  int extreme_iterations = 1;
  bool covers_all = false;         ///< every pass is compared with a second one
  std::int64_t votes_from = 1000;  ///< all ranks vote for the end from this step on
};

/// Faults reported by all ranks, the same on every rank, and this rank's metrics.
struct Outcome {
  std::vector<Json> faults, injections;
  std::vector<Json> superseded;  ///< provisional faults with a more specific later record
  std::string failure;           ///< error that ended the run on this rank
  std::uint64_t repeats = 0;     ///< faults that were counted but not reported again
  int restarts = 0;
  std::set<std::int64_t> repaired_steps;  ///< those that this rank's board showed when polled
  std::vector<std::string> notices;
  PartReport part;
  Golden golden;  ///< computed by the job

  std::string weight_digest() const { return part.figures.at("weight_digest").get<std::string>(); }
  std::int64_t figure(const char* name) const { return part.figures.at(name).get<std::int64_t>(); }
  std::vector<Json> of_kind(const std::string& kind) const {
    std::vector<Json> found;
    for (const Json& fault : faults)
      if (fault.at("kind") == kind) found.push_back(fault);
    return found;
  }
};

inline std::uint32_t flip_bit_29(std::uint32_t word) {
  return word ^ 0x20000000u;  // reaches the weights even from a zero gradient
}
inline std::uint32_t make_nan(std::uint32_t) {
  return 0x7FC00000u;
}
/// Hits the gradients' all-reduces, not the digests, nor the end of a step with its loss and votes.
inline CorruptingCommunicator::Hit gradient_hit(int rank, std::uint32_t (*change)(std::uint32_t)) {
  return {.rank = rank, .bytes_at_least = 64, .change = change};
}

inline bool is_sure(const Json& fault) {
  return fault.at("blame") == "certain" || fault.at("blame") == "majority";
}
inline std::string where(const Json& fault) {
  return fault.at("where").get<std::string>();
}
inline std::string all_of(const std::vector<Json>& faults) {
  return Json(faults).dump(1);
}

/// The restart of a job. Each rank starts it, or joins shortly after the first one if its part of the repair
/// has not begun yet: in a run, too, an interruption reaches all ranks. `number`: of the job, the same on all
/// ranks.
class SharedRestart {
 public:
  SharedRestart(RestartableCommunicator& communicator, int number)
      : communicator_(communicator), name_(fmt::format("/egt_restart_{}_{}", getppid(), number)) {
    const int file = shm_open(name_.c_str(), O_RDWR | O_CREAT, 0600);
    EXPECT_EQ(ftruncate(file, sizeof(*shared_)), 0);
    void* shared = mmap(nullptr, sizeof(*shared_), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    EXPECT_NE(shared, MAP_FAILED);
    close(file);
    shared_ = static_cast<Shared*>(shared);
    // A killed test leaves no file.
    if (++shared_->opened == mpi_session().place().size) shm_unlink(name_.c_str());
  }
  SharedRestart(const SharedRestart&) = delete;
  SharedRestart& operator=(const SharedRestart&) = delete;
  ~SharedRestart() { munmap(shared_, sizeof(*shared_)); }

  /// Any thread.
  void begin() {
    double none = 0;
    shared_->first.compare_exchange_strong(none, now());
    interrupt();
  }
  void follow() {
    if (const double first = shared_->first; first > 0 && now() > first + 0.02) interrupt();
  }
  /// No interruption after this call.
  void end() {
    const std::lock_guard lock(mutex_);
    interrupted_ = true;
  }

 private:
  static double now() { return std::chrono::duration<double>(Clock::now().time_since_epoch()).count(); }
  void interrupt() {
    const std::lock_guard lock(mutex_);
    if (!std::exchange(interrupted_, true)) communicator_.interrupt();
  }

  RestartableCommunicator& communicator_;
  std::string name_;
  struct Shared {
    std::atomic<double> first;  ///< time of the first rank's start in seconds; 0: not started
    std::atomic<int> opened;    ///< ranks that have opened it
  };
  Shared* shared_;
  std::mutex mutex_;
  bool interrupted_ = false;
};

class TrainingJobs : public ::testing::Test {
 protected:
  static constexpr double timeout_s = 30;

  void SetUp() override {
    reopen();
    auto control = open_mpi_control(mpi_session(), timeout_s);
    ASSERT_TRUE(control.ok()) << control.status().what();
    control_ = std::move(control.value());
  }

  static int size() { return mpi_session().place().size; }
  static int rank() { return mpi_session().place().rank; }

  /// The context of one rank's reports, with nothing in flight.
  struct Context {
    std::unique_ptr<Device> device;
    RecordQueue records;
    Injector injector;
    ProgressBoard board;
    LoadControl load;
    Environment environment;

    explicit Context(Communicator& communicator)
        : device(std::move(open_host_device_of_rank().value())),
          records(rank()),
          injector({}, mpi_session().place(), records),
          environment{*device,       communicator, records, mpi_session().place(), 5, injector,
                      "test device", board,        load} {}
  };
  Context context() { return Context(*real_); }

  Outcome run(const Job& job) {
    auto opened = open_host_device_of_rank();
    EXPECT_TRUE(opened.ok()) << opened.status().what();
    CorruptingDevice device(std::move(opened.value()), job.broken_words, job.error);
    device.set_broken(is_broken(job, -1));
    RestartableCommunicator restartable(std::move(real_));
    CorruptingCommunicator communicator(restartable, job.hits);
    RecordQueue records(rank());
    Injector injector(parsed(job.injections), mpi_session().place(), records);
    ProgressBoard board;
    LoadControl load;
    Environment environment{
        device, communicator, records, mpi_session().place(), 5, injector, job.model(rank()), board, load};
    environment.rate_window_ms = 0;
    Outcome outcome;
    static int jobs = 0;
    SharedRestart restart(restartable, ++jobs);
    std::jthread watcher([&](const std::stop_token& stop) {
      while (!stop.stop_requested()) {
        restart.follow();
        const Activity now = board.line("main").read();
        if (now.phase.starts_with("repair: ")) outcome.repaired_steps.insert(now.step);
        std::this_thread::sleep_for(std::chrono::microseconds(500));
      }
    });
    std::jthread interrupter;
    if (job.restart_in_repair)
      environment.publish = [&, began = false]() mutable -> Status {
        // A repair that a restart began is not interrupted: all ranks would have to know.
        if (!std::exchange(began, true) && outcome.restarts == 0)
          interrupter = std::jthread([&restart, delay = job.restart_in_repair(rank())] {
            std::this_thread::sleep_for(delay);
            restart.begin();
          });
        return {};
      };
    const std::size_t weight_bytes =
        static_cast<std::size_t>(ParameterLayout(job.layers).size()) * sizeof(float);
    if (job.spoilt_rank == rank() && job.spoilt_at_start)
      device.spoil_before_next_copy(weight_bytes);
    else if (job.spoilt_rank == rank())
      environment.publish = [&, began = false]() mutable -> Status {
        if (!std::exchange(began, true)) device.spoil_next_copy(weight_bytes);
        return {};
      };
    if (job.failure && rank() == job.failure->rank)
      set_failure(*job.failure, environment, communicator, restart);
    GoldenBook golden{job.golden, {}};
    {
      const std::int64_t global = job.samples * size();
      std::vector<std::int64_t> max_samples;
      if (job.balances) max_samples.assign(static_cast<std::size_t>(size()), global);
      TrainWorkload workload(environment, options_of(job), share_batch(global, rank(), size()), max_samples,
                             golden);
      run_steps(workload, device, restartable, job, interrupter, restart, outcome);
      watcher = {};
      gather(records, outcome);
      outcome.part = workload.report();
      outcome.golden = from_root(golden.found);
    }
    reopen();
    return outcome;
  }

 private:
  static void set_failure(const ExaminationFailure& failure, Environment& environment,
                          CorruptingCommunicator& communicator, SharedRestart& restart) {
    const auto fail = [&restart]() -> Status {
      restart.begin();
      return {StatusCode::aborted, "as the test wants it"};
    };
    environment.publish = [=, &communicator, publications = 0]() mutable -> Status {
      if (publications++ != failure.publication) return {};
      if (failure.all_gather < 0) return fail();
      communicator.set_all_gather_failure([=, calls = 0](bool is_enqueued) mutable -> Status {
        const bool is_it = calls == failure.all_gather && is_enqueued == failure.is_late;
        if (is_enqueued) ++calls;
        return is_it ? fail() : Status();
      });
      return {};
    };
  }

  static std::vector<Injection> parsed(const std::vector<std::string>& texts) {
    std::vector<Injection> injections;
    for (const std::string& text : texts) {
      const auto injection = parse_injection(text);
      EXPECT_TRUE(injection.ok()) << injection.status().what();
      if (injection.ok()) injections.push_back(injection.value());
    }
    return injections;
  }

  static TrainOptions options_of(const Job& job) {
    TrainOptions options;
    options.layers = job.layers;
    options.precisions = job.precisions;
    options.optimizer = job.optimizer;
    options.learning_rate = job.learning_rate;
    options.extreme_iterations = job.extreme_iterations;
    options.check_every = job.check_every;
    options.coverage = job.covers_all ? Coverage::full : Coverage::sampled;
    options.epoch_steps = job.epoch_steps;
    options.balance = job.balances ? Balance::automatic : Balance::even;
    options.golden = job.golden_path;
    return options;
  }

  static bool is_broken(const Job& job, std::int64_t step) {
    return rank() == job.broken_rank && step >= job.broken_from && step < job.broken_until;
  }

  void reopen() {
    auto communicator = open_mpi_communicator(mpi_session(), timeout_s);
    ASSERT_TRUE(communicator.ok()) << communicator.status().what();
    real_ = std::move(communicator.value());
  }

  static Status make_steps(Workload& workload, CorruptingDevice& device, const Job& job, std::int64_t first,
                           std::int64_t stuck_before) {
    for (std::int64_t step = first; step < job.steps + MlpTrainer::depth; ++step) {
      if (step == stuck_before) return {StatusCode::aborted, "this rank is stuck"};
      StepOutcome outcome;
      device.set_broken(is_broken(job, step));
      const StopVote vote = step < job.votes_from ? StopVote::none : StopVote::finished;
      if (step < job.steps) EGT_TRY(workload.enqueue({.index = step, .vote = vote}));
      if (step >= first + MlpTrainer::depth) EGT_TRY(workload.retire(step - MlpTrainer::depth, outcome));
    }
    return {};
  }

  /// True if `own` is true on any rank.
  bool any(bool own) {
    const auto words = control_->gather(own ? "yes" : "no");
    EXPECT_TRUE(words.ok()) << words.status().what();
    const bool found = std::count(words.value().begin(), words.value().end(), "yes") > 0;
    const auto shared = control_->broadcast(found ? "yes" : "no");
    EXPECT_TRUE(shared.ok()) << shared.status().what();
    return shared.value() == "yes";
  }

  /// `interrupter`: may interrupt the communicator; all ranks restart if one was interrupted.
  void run_steps(Workload& workload, CorruptingDevice& device, RestartableCommunicator& communicator,
                 const Job& job, std::jthread& interrupter, SharedRestart& asked, Outcome& outcome) {
    ASSERT_OK(workload.prepare());
    const Status started = workload.start();
    if (!started.ok()) outcome.failure = started.what();
    if (!started.ok() && job.spoilt_at_start) return;
    ASSERT_OK(started);
    std::int64_t next = 0, stuck_before = job.stuck_before ? job.stuck_before(rank()) : -1;
    for (;;) {
      const Status made = make_steps(workload, device, job, next, std::exchange(stuck_before, -1));
      const bool was_interrupted = interrupter.joinable() || made.code() == StatusCode::aborted;
      interrupter = {};
      if (!any(was_interrupted)) {
        outcome.failure = made.ok() ? "" : made.what();
        if (job.spoilt_rank < 0 && job.votes_from > job.steps) ASSERT_OK(made);
        if (made.ok()) break;
        ASSERT_OK(workload.give_up_steps(timeout_s));  // the steps in flight use its memory
        return;
      }
      ++outcome.restarts;
      asked.end();
      communicator.interrupt();
      communicator.abort();
      ASSERT_OK(workload.give_up_steps(timeout_s));
      reopen();
      communicator.replace(std::move(real_));
      RestartInfo restart{.number = 1, .next_step = next};
      ASSERT_OK(workload.resume(restart));
      next = restart.next_step;
    }
    ASSERT_OK(workload.finish(false));
  }

  void gather(RecordQueue& records, Outcome& outcome) {
    Json own = Json::array();
    for (const Record& record : records.drain()) own.push_back(to_json(record));
    const Json repeats = records.repeats();
    const auto texts = control_->gather(own.dump());
    EXPECT_TRUE(texts.ok()) << texts.status().what();
    Json together = Json::array();
    for (const std::string& text : texts.value())
      for (const Json& record : Json::parse(text)) together.push_back(record);
    const auto all = control_->broadcast(together.dump());
    EXPECT_TRUE(all.ok()) << all.status().what();
    std::vector<Record> together_records;
    for (const Json& json : Json::parse(all.value()))
      EXPECT_TRUE(from_json(json, together_records.emplace_back()));
    const std::vector<const Record*> holding = faults_of(together_records);
    for (const Record* fault : holding) outcome.faults.push_back(fault->body);
    for (const Record& record : together_records) {
      if (record.kind == RecordKind::fault) {
        const Json& blamed = record.body.at("rank");
        const bool own_word = record.rank == (blamed.is_null() ? 0 : blamed.get<int>());
        EXPECT_TRUE(own_word || outcome.restarts > 0) << record.body.dump();
        if (std::find(holding.begin(), holding.end(), &record) == holding.end())
          outcome.superseded.push_back(record.body);
      }
      if (record.kind == RecordKind::injection) outcome.injections.push_back(record.body);
      if (record.kind == RecordKind::notice) outcome.notices.push_back(record.body.at("text"));
    }
    const auto counted = control_->gather(repeats.dump());
    EXPECT_TRUE(counted.ok()) << counted.status().what();
    std::uint64_t sum = 0;
    for (const std::string& text : counted.value())
      for (const Json& repeat : Json::parse(text)) sum += repeat.at("count").get<std::uint64_t>();
    const auto summed = control_->broadcast(std::to_string(sum));
    EXPECT_TRUE(summed.ok()) << summed.status().what();
    outcome.repeats = std::stoull(summed.value());
  }

  Golden from_root(const Golden& own) {
    const auto text = control_->broadcast(own.text());
    EXPECT_TRUE(text.ok()) << text.status().what();
    if (text.value() == Golden().text()) return Golden();
    auto golden = Golden::parse(text.value(), "the test's");
    EXPECT_TRUE(golden.ok()) << golden.status().what();
    return golden.ok() ? golden.value() : Golden();
  }

  std::unique_ptr<Communicator> real_;
  std::unique_ptr<Control> control_;
};

}  // namespace egt::test
