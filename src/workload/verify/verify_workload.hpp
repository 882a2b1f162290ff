#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "egt/workload/workload.hpp"
#include "workload/common/digest_exchange.hpp"
#include "workload/common/fault_reporter.hpp"
#include "workload/options.hpp"
#include "workload/verify/allocation_check.hpp"
#include "workload/verify/operation_checks.hpp"

namespace egt {

/// What `verify` lets every device do beside the main job, in rounds: evaluation, similarity, steps of the
/// optimizers, and, in the first and the last one, memory that is taken and given back. All answers are
/// known: they must be the same on all ranks of a device model, in every round, and as the host computes
/// them. Main thread only; all ranks make the same calls in the same order.
class VerifyWorkload : public Workload {
 public:
  /// `communication_stream`: where the communicator's other collectives run; asked from prepare on.
  VerifyWorkload(Environment& environment, const ReadinessOptions& options,
                 std::function<Stream&()> communication_stream);

  std::string name() const override { return "readiness"; }
  Status prepare() override;
  /// The first round.
  Status start() override;
  Status enqueue(const Step& step) override;
  Status retire(std::int64_t step, StepOutcome& outcome) override;
  Status give_up_steps(double timeout_seconds) override;
  Status resume(RestartInfo& restart) override;
  /// The last round.
  Status finish(const Ending& ending) override;
  PartReport report() const override;

 private:
  static constexpr std::size_t questions = EncodingCheck::answers + OptimizerCheck::answers;

  Status enqueue_round(std::int64_t step);
  Status collect_round(bool with_cleanup);
  void judge(std::size_t question, const std::vector<Answers>& answers);
  std::optional<WrongAnswer> host_finding(std::size_t question) const;
  Status clean_up(std::int64_t step);
  void tell_wrong_words(const AllocationOutcome& outcome, std::int64_t step);
  std::string failure() const;

  Environment& environment_;
  const ReadinessOptions options_;
  const std::function<Stream&()> communication_stream_;
  EncodingCheck encoding_;
  OptimizerCheck optimizer_;
  AllocationCheck cleanup_;
  std::unique_ptr<DigestExchange> exchange_;
  FaultReporter reporter_;
  std::vector<int> groups_;  ///< of each rank
  std::array<std::vector<Answers>, questions> past_;
  std::optional<std::int64_t> under_way_;  ///< the step of the round that is enqueued
  std::int64_t last_step_ = -1;

  std::uint64_t rounds_ = 0;
  std::array<std::uint64_t, questions> verified_{};  ///< rounds in which this rank's answer was right
  std::uint64_t cleanups_ = 0, cleanup_attempts_ = 0, wrong_ = 0;
  std::uint64_t words_verified_ = 0;
  AllocationOutcome last_cleanup_;

  std::unique_ptr<Event> done_;
  std::unique_ptr<Stream> stream_;  ///< last: it waits for its work before the memory goes
};

}  // namespace egt
