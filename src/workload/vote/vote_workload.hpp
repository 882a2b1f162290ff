#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "egt/core/math/unit_vote.hpp"
#include "egt/workload/workload.hpp"
#include "workload/common/reproducer.hpp"
#include "workload/common/worker_thread.hpp"
#include "workload/vote/vote_round.hpp"

namespace egt {

/// Lets all multiprocessors (on the host all CPUs) do the same known work in rounds, each with new operands,
/// and compares their answers. So a single GPU is judged by more than itself, and a fault names the
/// multiprocessor, its sub-partition and the unit. A separate thread runs the rounds next to the other load.
class VoteWorkload : public Workload {
 public:
  explicit VoteWorkload(Environment& environment) : environment_(environment), thread_("the vote") {}

  std::string name() const override { return "multiprocessors"; }
  Status prepare() override;
  Status start() override;
  Status enqueue(const Step& step) override {
    step_ = step.index;
    return {};
  }
  /// Returns the thread's error.
  Status retire(std::int64_t, StepOutcome&) override { return thread_.failure(); }
  void stop_background() override { thread_.ask_to_stop(); }
  Status finish(const Shutdown& ending) override;
  PartReport report() const override;

 private:
  Status run(const std::stop_token& stop);
  Status vote_once(const std::stop_token& stop);
  /// Starts the next round and waits for its answers.
  Status ask(std::optional<UnitFault> fault, const std::stop_token& stop);
  std::span<const VoterAnswers> answers() const { return round_->answers(); }
  std::optional<UnitFault> due_fault();
  /// Compares the answers of the last round, and repeats it after a fault at a new place.
  Status judge(const std::stop_token& stop);
  /// Counts the verified work of the last round.
  void count_answers();
  std::string place_of(const Dissent& dissent) const;
  std::string undone() const;
  bool is_host() const { return environment_.device.info().backend == "host"; }
  bool has_peers() const { return voters_.size() > 1; }

  Environment& environment_;
  std::unique_ptr<VoteRound> round_;
  UnitVote vote_;  ///< the last one
  ReproducerFiles reproducers_{environment_};
  std::vector<int> voters_, units_, parts_;  ///< those that answered in `prepare`
  int iterations_ = 1;
  double round_ms_ = 0;                     ///< standalone duration of a round
  std::optional<UnitFault> lasting_fault_;  ///< injected into every round
  std::atomic<std::int64_t> step_{-1};
  std::atomic<std::uint64_t> rounds_{0}, incomplete_rounds_{0}, calls_{0}, compared_{0}, dissents_{0};
  std::atomic<int> fewest_{max_unit_voters};  ///< voters in a round
  /// Rounds, and iterations of all lanes, that took part in a vote.
  struct Voted {
    std::uint64_t rounds = 0, iterations = 0;
  };
  std::vector<std::array<Voted, sub_partitions>> voted_{max_unit_voters};
  std::atomic<std::uint64_t> iterations_voted_{0};                      ///< sum over `voted_`
  std::atomic<std::uint64_t> min_rounds_{0}, min_iterations_voted_{0};  ///< min over `voted_`
  std::mutex mutex_;
  std::condition_variable_any woken_;
  std::uint64_t idle_rounds_ = 0;  ///< of `prepare`
  bool is_unjudged_ = false;       ///< a round was asked for; the thread's, later the owner's
  bool finished_ = false, hurried_ = false;
  WorkerThread thread_;  ///< last: it is joined before the other members are destroyed
};

}  // namespace egt
